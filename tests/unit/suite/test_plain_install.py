"""gradcheck installed plainly, not editable, and run from a clone: the clone's suite and the clone's kernels are checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import gradcheck

pytestmark = pytest.mark.checkout

CHECKOUT = Path(gradcheck.__file__).parents[1]
MARKED = "from gradcheck import Report\nmarked = Report('only_in_the_clone', '.txt', str)\n"
SHOW = """
import json
import sys
import gradcheck
from gradcheck.suite import kernel_package, lint, load
suite = load()
targets = {k.target: op for op, o in suite.ops.items() for k in o.kernels}
print(json.dumps({
    "code": gradcheck.__file__,
    "files": sorted(suite.files.values()),
    "reports": sorted(suite.reports),
    "notes": suite.notes,
    "kernels": [str(kernel_package(target, suite.homes[op].path).folder) for target, op in targets.items()],
    "problems": [str(problem) for problem in lint(suite)],
    "taken": sorted({"oracles", "mutants", "reports", "mlx"} & set(sys.modules)),
}))
"""


class Installed(NamedTuple):
    site: Path
    clone: Path


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A clone, its wheel unpacked where pip would put it, and after that one more report in the clone."""
    top = tmp_path_factory.mktemp("plain")
    clone, site = top / "clone", top / "site"
    clone.mkdir()
    for name in ("gradcheck", "oracles", "mutants", "reports"):
        shutil.copytree(CHECKOUT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", clone)
    shutil.copy(CHECKOUT / "LICENSE", clone)
    (clone / "README.md").write_text("# gradcheck\n")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(top)]
    subprocess.run(build, cwd=clone, check=True, capture_output=True)
    (wheel,) = top.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    (clone / "reports" / "marked.py").write_text(MARKED)
    return Installed(site, clone)


def show(installed: Installed, cwd: Path) -> dict[str, list[str]]:
    """What the installed gradcheck loads there. `-P` keeps the working directory off sys.path, as a console script does."""
    env = {**os.environ, "PYTHONPATH": str(installed.site), "GRADCHECK_NO_PLUGINS": "1"}
    done = subprocess.run([sys.executable, "-P", "-c", SHOW], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    shown: dict[str, list[str]] = json.loads(done.stdout)
    assert Path(str(shown["code"])).is_relative_to(installed.site)
    assert shown["taken"] == []
    return shown


def test_run_from_the_clone_the_clone_is_checked_and_the_run_says_so(installed: Installed):
    shown = show(installed, installed.clone)
    assert "only_in_the_clone" in shown["reports"]
    assert all(Path(file).is_relative_to(installed.clone) for file in shown["files"])
    assert shown["kernels"]
    assert all(Path(folder).is_relative_to(installed.clone) for folder in shown["kernels"])
    (note,) = shown["notes"]
    assert note == f"suite gradcheck: using the checkout {installed.clone} instead of the installed {installed.site / 'gradcheck/_suite'}"


def test_run_from_elsewhere_the_installed_suite_is_whole_and_sound(installed: Installed, tmp_path: Path):
    shown = show(installed, tmp_path)
    assert "only_in_the_clone" not in shown["reports"]
    assert shown["files"]
    assert all(Path(file).is_relative_to(installed.site) for file in (*shown["files"], *shown["kernels"]))
    assert (shown["notes"], shown["problems"]) == ([], [])
