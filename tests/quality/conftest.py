"""The real command line, in this process, in a folder of its own; workers are real processes.

Truths are computed once for all tests: the noise of the whole covering grid takes ten seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import pytest

import gradcheck
from gradcheck.cli import main

TESTDATA = Path(__file__).parents[1] / "testdata"
STRANGERS = TESTDATA / "strangers"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left: its exit code, what it wrote, and the run as JSON where it got as far as having one."""

    code: int
    out: str
    err: str

    @property
    def run(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def report(self) -> str:
        """The report for people, beside the JSON on stdout or else on it, in one line: where it breaks depends on the length of a path."""
        return " ".join((self.err if self.out.startswith("{") else self.out).split())

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        return self.run["verdicts"]

    def headline(self, kernel: str) -> str:
        """What the first lines of the report say of a kernel."""
        said = self.report.partition("FAIL ")[2].partition(" because ")[0]
        (mine,) = (part for part in said.split("; ") if kernel in part)
        return mine

    def outcomes(self, kernel: str = "") -> list[str]:
        return [v["outcome"] for v in self.verdicts if not kernel or v["item"]["kernel"] == kernel]

    @property
    def blamed(self) -> dict[str, str]:
        """Outputs and gradients that a failed verdict names, each with the first sentence that does."""
        return self.blamed_in("")

    def blamed_in(self, kernel: str) -> dict[str, str]:
        """As `blamed`, of one of several kernels."""
        found: dict[str, str] = {}
        for verdict in self.verdicts:
            if verdict["outcome"] == "FAILED" and kernel in {"", verdict["item"]["kernel"]}:
                for text in verdict["why"].split("; "):
                    if named := re.match(r"(d \w+|y|\w+_T)(?= at|, worst step|:)", text):
                        found.setdefault(named[0], text)
        return found

    @property
    def kills(self) -> dict[tuple[str, ...], tuple[object, ...]]:
        """The kill table, but for what differs from run to run by nature."""
        return {
            (row["kernel"], row["mutant"], row["variant"], row["form"]): (row["outcome"], row["kills"], row["cases"], row["margin"])
            for row in self.run["kills"]
        }


Cli = Callable[..., Ran]


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """The command as a shell starts it: in a process, and process group, of its own."""
    code = "import sys; from gradcheck.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(Path(gradcheck.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *args], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def shell(folder: Path, *args: str) -> Ran:
    """As `start`, to its end."""
    process = start(folder, *args)
    out, err = process.communicate(timeout=240)
    return Ran(process.returncode, out, err)


def run_ids(folder: Path) -> list[str]:
    """Ids of the runs in a folder, oldest first."""
    return sorted((path.parent.name for path in (folder / ".gradcheck" / "runs").glob("*/plan.json")), key=lambda name: name[:15])


@pytest.fixture(scope="session")
def _truths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of truths for all tests of a session, however many processes share them out."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "truths"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, _truths: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that belongs to no project."""
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(_truths))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    main_module = sys.modules["__main__"]  # pytest, which no worker needs to import
    monkeypatch.setattr(main_module, "__spec__", None)
    monkeypatch.delattr(main_module, "__file__", raising=False)
    return tmp_path


@pytest.fixture
def second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is looked at again in this test, on however slow a machine. It takes longer than all else of a small run, so the others
    do without.
    """
    from gradcheck.engine import secondlook

    monkeypatch.setattr(secondlook, "nearest", partial(secondlook.nearest, seconds=200.0))


@pytest.fixture(autouse=True)
def _first_look_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "second_look" not in request.fixturenames:
        monkeypatch.setattr("gradcheck.engine.run.second_look", lambda *_: {})


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], _truths: Path) -> Cli:
    """Run a command line as a shell would, in the working directory."""

    def call(*args: str) -> Ran:
        capfd.readouterr()
        code = main([str(arg) for arg in args])
        return Ran(code, *capfd.readouterr())

    return call


@pytest.fixture
def check(cli: Cli, _truths: Path) -> Cli:
    """`gradcheck run --op ssm_scan --kernel TARGET … --json`."""

    def call(target: object, *args: str) -> Ran:
        with filelock.FileLock(f"{_truths}.lock"):  # one process computes a truth, the others find it
            return cli("run", "--op", "ssm_scan", "--kernel", str(target), "--json", *args)

    return call


@pytest.fixture(scope="session")
def _runs() -> dict[tuple[object, ...], Ran]:
    return {}


@pytest.fixture
def once(check: Cli, _runs: dict[tuple[object, ...], Ran]) -> Cli:
    """As `check`, of runs that several tests look at: the first of them makes it."""

    def call(*args: object) -> Ran:
        if args not in _runs:
            _runs[args] = check(*args)
        return _runs[args]

    return call


@pytest.fixture
def write(here: Path) -> Callable[[str], str]:
    """A stranger's kernel from the text of a file, which may build on the right scan of `_scan.py`; gives its target."""

    def write(text: str) -> str:
        shutil.copy(STRANGERS / "_scan.py", here)
        (here / "stranger.py").write_text(text, encoding="utf-8")
        return "stranger.py:scan"

    return write


@pytest.fixture
def hello(here: Path) -> Path:
    """Somebody else's repository, as the working directory."""
    shutil.copytree(TESTDATA / "hello", here, dirs_exist_ok=True)
    return here


def edit(file: Path, changes: Mapping[str, str]) -> None:
    """Replace texts that are there exactly once."""
    text = file.read_text("utf-8")
    for find, replace in changes.items():
        assert text.count(find) == 1, (file, find)
        text = text.replace(find, replace)
    file.write_text(text, "utf-8")
