#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.11"]
# ///
"""Every chore of this repository. `nox` runs the tests; `nox -l` lists the rest."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.11"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")


PARALLEL = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
"""Tests wait for workers and compilers as much as they compute. Beyond four processes their own workers are in each other's way.
They last from milliseconds to many seconds, so that who is done takes from who is not."""


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, name)


BY_NAME = {"torch_gradcheck", "gated_delta_gpu"}
"""Benchmarks that run only when they are asked for."""


@nox.session
def tests(session: nox.Session) -> None:
    """Run the fast tests against the checkout: `nox -s tests -- tests/unit/suite`."""
    session.install("-e.", *group("test"))
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, and who imports whom."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    session.install("-e.", *group("types"))
    session.run("mypy", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel from the sdist, and test that wheel away from the checkout."""
    session.install(*group("build"), *group("test"))
    with tempfile.TemporaryDirectory() as folder:  # not nox's own: that lies inside the checkout, which would be found from there
        away = Path(folder).resolve()
        session.run("python", "-m", "build", "--outdir", str(away / "dist"))
        (built,) = (away / "dist").glob("*.whl")
        session.install(str(built))
        session.install("--force-reinstall", "--no-deps", str(built))  # the same version may be there from the last time
        shutil.copytree("tests", away / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        config = ["-c", str(Path("pyproject.toml").resolve()), "--rootdir", str(away), "-o", f"pythonpath={away}"]
        with session.chdir(away):
            session.run("gradcheck", "lint")
            session.run("pytest", *PARALLEL, *config, "-m", "not slow and not checkout", *(session.posargs or ["tests"]))


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take more than ten seconds."""
    session.install("-e.", *group("test"))
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session
def mlx_tests(session: nox.Session) -> None:
    """Run MLX's own tests of custom kernels on our executor: `nox -s mlx_tests -- path/to/mlx/python/tests/test_fast.py`."""
    if len(session.posargs) != 1:
        session.error("give the path of python/tests/test_fast.py in a checkout of MLX")
    session.install("-e.[cpu]", *group("test"))
    for mode in ("plain", "checked"):
        session.run("python", "tests/mlx_custom_kernels.py", mode, session.posargs[0])


@nox.session
def mlx_lm(session: nox.Session) -> None:
    """Run the Metal kernels of mlx-lm, checked, against float64; print the table of the worst errors."""
    session.install("-e.[cpu]", *group("mlx-lm"))
    session.run("pytest", "-m", "slow", "tests/mlx_lm", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and memory against the ratios that are promised. By name only, since it takes minutes: `nox -s bench -- torch_gradcheck`."""
    named = set(session.posargs)
    scripts = [path for path in sorted(Path("benchmarks").glob("[!_]*.py")) if path.stem in (named or {path.stem} - BY_NAME)]
    if unknown := named - {path.stem for path in scripts}:
        session.error(f"no benchmark named {', '.join(sorted(unknown))} in benchmarks/")
    session.install("-e.[cpu,fast]", *group("bench" if "torch_gradcheck" in named else "mlx-lm"))
    broken = []
    for script in scripts:
        try:
            session.run("python", str(script))
        except nox.command.CommandFailed:
            broken.append(script.name)
    if broken:
        session.error(f"promises not kept: {', '.join(broken)}")


if __name__ == "__main__":
    nox.main()
