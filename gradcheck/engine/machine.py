"""What this machine can run, what is missing, and the command that mends it."""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import gradcheck
from gradcheck._errors import GradcheckError
from gradcheck._kernel import Kernel
from gradcheck._op import Op
from gradcheck.engine import cache
from gradcheck.engine.environment import DEVICES, lacking
from gradcheck.engine.execute import Source, source_of
from gradcheck.engine.plan import Request, make_plan
from gradcheck.engine.probe import Probe, probe
from gradcheck.engine.published import file_of, read_published
from gradcheck.metal import toolchain
from gradcheck.metal.errors import MetalError, NoCompilerError
from gradcheck.process import Died, Limits, run_all
from gradcheck.suite import Suite, load

State = Literal["ok", "missing", "optional"]

EXTRAS = {
    "python-flint": ("flint", "certificates by arb balls rather than mpmath"),
    "numba": ("numba", "compiled lanes of the oracle"),
    "libggml-python": ("libggml", "ggml's own forward, as a kernel"),
}
"""Distributions that are used where they are there: (module, what for)."""

_LIMITS = Limits(60.0, 4 * 2**30)
_LITTLE_DISK = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        name: what it is.
        state: `missing` keeps the main job (every op of the built-in suite) from running here, `optional` does not.
        what: what was found.
        mend: the command or step that changes it, or nothing.
    """

    name: str
    state: State
    what: str
    mend: str = ""


def examine(suites: Sequence[str], cwd: Path) -> tuple[Finding, ...]:
    """Everything a run needs here, and everything it could use. Kernels are loaded, in a worker, but not called."""
    with tempfile.TemporaryDirectory(prefix="gradcheck-") as scratch:
        compiler = _compiler()
        found = [*_installation(), *_extras(), *_folders(cwd), *_device(Path(scratch)), compiler]
        try:
            suite = load([Path(path) for path in suites], cwd=cwd)
        except GradcheckError as error:
            return (*found, Finding("suite", "missing", str(error)))
        found += [Finding(f"suite {root.origin}", "ok", str(root.path)) for root in suite.roots]
        source = source_of(suites, cwd)
        for op in suite.ops.values():
            found += [*_kernels(suite, op, source, Path(scratch), compiler), _bands(suite, op)]
    return tuple(found)


def install(what: str) -> str:
    """The command that installs a distribution, or an extra of gradcheck, into the environment that runs this."""
    checkout = _checkout()
    words = ["-e", what.replace("gradcheck", str(checkout), 1)] if checkout and what.startswith("gradcheck[") else [what]
    pip = [sys.executable, "-m", "pip", "install"] if find_spec("pip") else ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *words])


def _checkout() -> Path | None:
    """The checkout that gradcheck runs from, if it does."""
    above = Path(str(gradcheck.__file__)).resolve().parents[1]
    return above if (above / "pyproject.toml").is_file() else None


def _installation() -> Iterator[Finding]:
    checkout = _checkout()
    where = f"the checkout {checkout}" if checkout else f"an installed copy, {Path(str(gradcheck.__file__)).parent}"
    yield Finding("gradcheck", "ok", f"{gradcheck.__version__}, from {where}")
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}, {sys.executable}")
    yield Finding("numpy", "ok", version("numpy"))


def _extras() -> Iterator[Finding]:
    for distribution, (module, purpose) in EXTRAS.items():
        if find_spec(module) is None:
            yield Finding(distribution, "optional", f"not installed; for {purpose}", install(distribution))
        else:
            yield Finding(distribution, "ok", f"{_version(distribution)}; for {purpose}")


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # the module is there, put on the path by other means
        return "of unknown version"


def _folders(cwd: Path) -> Iterator[Finding]:
    for name, folder, mend in (
        ("cache of truths", cache.folder(), "set GRADCHECK_CACHE_DIR to a folder that can be written"),
        ("run folder", cwd / ".gradcheck", "go to a folder that can be written"),
    ):
        if error := _unwritable(folder if folder.is_dir() else _nearest(folder)):
            yield Finding(name, "missing", f"{folder}: {error}", mend)
        else:
            free = shutil.disk_usage(_nearest(folder)).free
            room = f"{folder}, writable, {free / 2**30:.1f} GiB free"
            yield Finding(name, "ok" if free > _LITTLE_DISK else "optional", room, "" if free > _LITTLE_DISK else "make room")


def _nearest(folder: Path) -> Path:
    """The folder itself, or the one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _unwritable(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _device(logs: Path) -> Iterator[Finding]:
    if find_spec("mlx") is None:
        yield Finding(
            "mlx", "optional", "not installed; for kernels on MLX arrays", install("mlx[cpu]" if sys.platform == "linux" else "mlx")
        )
        return
    ((_, got),) = run_all(mlx_device, [""], jobs=1, limits=_LIMITS, logs=logs)
    if isinstance(got, Died):
        text = f"{_version('mlx')} is installed and does not run: {got.detail.splitlines()[0]}"
        yield Finding("mlx", "optional", text, f"{install('mlx[cpu]' if sys.platform == 'linux' else 'mlx')} --force-reinstall")
    else:
        yield Finding("mlx", "ok", f"{_version('mlx')} on {got.value}")


def mlx_device(_: str) -> str:
    """In a worker: the device that MLX computes on, after it has."""
    import mlx.core as mx  # MLX only where it is asked for

    mx.eval(mx.ones(2) + 1)
    return str(mx.default_device())


def _compiler() -> Finding:
    """What compiles Metal kernels for the CPU. Without it every other kernel runs all the same."""
    name = "compiler of Metal kernels"
    try:
        return Finding(name, "ok", str(toolchain.find()))
    except NoCompilerError as error:
        if lacking("metal"):
            mend = f"{install('gradcheck[cpu]')}, or put clang {toolchain.OLDEST} or newer on PATH"
            return Finding(name, "optional", f"none; for Metal kernels on the CPU. {error}", mend)
        return Finding(name, "ok", "none, and none is needed where there is an Apple GPU")
    except MetalError as error:  # the folder of compiled kernels is not safe
        return Finding(name, "optional", str(error))


def _of_kernel(kernel: Kernel, label: str, compiler: Finding) -> Finding:
    """How a kernel that loads runs here."""
    what = f"in {' '.join(kernel.dtypes)}{', forward only' if kernel.forward_only else ''}"
    if not kernel.metal or not lacking("metal"):
        return Finding(label, "ok", f"runs here, {what}")
    if compiler.state == "ok":
        return Finding(label, "ok", f"runs here on the CPU (metal-cpu), by --kernel {kernel.name}, {what}")
    return Finding(label, "optional", f"needs an Apple GPU or, for the CPU, a compiler: see {compiler.name}", compiler.mend)


def _kernels(suite: Suite, op: Op, source: Source, logs: Path, compiler: Finding) -> Iterator[Finding]:
    """Every kernel of the op; then, where none can check a gradient here, that."""
    declared = {kernel.name: kernel for kernel in op.kernels}
    not_run = make_plan(Request(op.name, cases=("1",)), suite).not_run
    here = [kernel for name, kernel in declared.items() if name not in not_run or not lacking(kernel.requires)]
    wrong = dict(_unloadable(here, op, source, suite, logs))
    for name, kernel in declared.items():
        label = f"kernel {op.name}/{name}"
        if kernel not in here:
            mend = "" if kernel.requires in DEVICES else install(kernel.install or kernel.requires)
            yield Finding(label, "optional", f"needs {lacking(kernel.requires)}", mend)
        elif name in wrong:
            yield Finding(label, "optional", wrong[name])
        else:
            yield _of_kernel(kernel, label, compiler)
    built_in = suite.homes[op.name].origin == "built-in"
    able = [kernel for kernel in here if _of_kernel(kernel, "", compiler).state == "ok"]
    if built_in and not any(kernel.name not in wrong and not kernel.forward_only for kernel in able):
        yield Finding(f"op {op.name}", "missing", "no kernel of it can check a gradient here", "see its kernels above")


def _unloadable(kernels: Sequence[Kernel], op: Op, source: Source, suite: Suite, logs: Path) -> Iterator[tuple[str, str]]:
    """Kernels that are there and do not load, with the reason."""
    home = Source(source.suites or tuple(str(root.path) for root in suite.roots if root.origin == "folder"), str(suite.homes[op.name].path))
    names = {kernel.target: kernel.name for kernel in kernels}
    for ask, got in run_all(probe, [Probe(home, op.name, target) for target in names], jobs=1, limits=_LIMITS, logs=logs):
        if isinstance(got, Died):
            yield names[ask.target], f"does not load: {got.detail.splitlines()[0]}"
        elif got.value:
            yield names[ask.target], f"does not load: {got.value}"


def _bands(suite: Suite, op: Op) -> Finding:
    path, name, mend = file_of(suite, op.name), f"bands of {op.name}", f"gradcheck calibrate --op {op.name}"
    try:
        published = read_published(suite, op.name)
    except GradcheckError as error:
        return Finding(name, "optional", str(error), mend)
    if published is not None:
        return Finding(name, "ok", f"published {published.environment.get('date', '')}, for these sources")
    if path.is_file():
        return Finding(name, "optional", f"{path} is of other sources, so a run measures its own", mend)
    return Finding(name, "optional", "none published, so a run measures its own", mend)
