"""Every command of README and docs is run: the cheap ones always, all of them in the slow tests; those that cannot be are listed with the reason.

That a command line parses is in `test_docs.py`, and the tutorials are followed line by line in `test_tutorials.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradcheck

pytestmark = pytest.mark.checkout

ROOT = Path(gradcheck.__file__).parents[1]
DOCS = ROOT / "docs"
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "tutorials")]
PAGES = [page for page in ALL if page.is_file()]  # they are read while tests are collected, also where there is no checkout

NOT_RUN = {
    "python -m venv .venv && .venv/bin/pip install -q . &&": "makes an environment; CI's session `wheel` installs what is built and runs it",
    "python -m venv .venv && .venv/bin/pip install -q nox &&": "makes an environment; it is what CI runs last",
    "pip install 'gradcheck[cpu]'": "no registry has the package yet",
    "gradcheck run --op ssm_scan --kernel metal --mutants all": "compiles some 50 kernels; tests/unit/kernels and a calibration run them",
    "gradcheck run --op ssm_scan --oracle self --mutants all --seeds 3": "takes minutes; tests/cli/test_self.py runs smaller ones",
    "gradcheck diff published": "needs bands of exactly these sources; tests/cli/test_diff.py has some",
    "GRADCHECK_REWRITE=1 ": "writes into the checkout; test_docs.py is the test that it runs",
}
"""Beginnings of the lines that are not run here, and why."""

CHEAP = re.compile(r"^gradcheck (list|lint)\b|--list\b|--pytest\b")
RUN_ID = re.compile(r"\b\d{8}-\d{6}-[\w]+-[0-9a-f]{4}\b")
SMALL = " --cases 1 --jobs 1"
"""What a documented run of a whole grid is given here, so that it takes seconds: the words of the page are still all understood."""

TRAIN = """
import mlx.core as mx
double = mx.fast.metal_kernel("double", ["x"], ["y"], "uint i = thread_position_in_grid.x; y[i] = 2 * x[i];")
def run():
    x = mx.arange(8).astype(mx.float32)
    (y,) = double(inputs=[x], grid=(8, 1, 1), threadgroup=(8, 1, 1), output_shapes=[(8,)], output_dtypes=[mx.float32])
    assert y.tolist() == (2 * x).tolist()
def test_double():
    import pytest
    try:
        run()
    except RuntimeError as error:  # no Metal here; under sanitize there is
        pytest.skip(str(error))
if __name__ == "__main__":
    run()
"""


def lines(page: Path) -> list[str]:
    """The command lines of a page's shell blocks, without comments; one that goes on is one line."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = [re.sub(r"\s+#.*", "", line).strip() for code in blocks for line in re.sub(r"\\\n\s*", "", code).split("\n")]
    return [line for line in found if line]


def excused(line: str) -> bool:
    """Whether a line is listed as not run."""
    return any(line.startswith(start) for start in NOT_RUN)


def smaller(line: str) -> str:
    """A run of a whole grid as one of a single case of each branch."""
    whole = line.startswith("gradcheck run ") and "--cases" not in line and "--oracle" not in line
    return line + SMALL if whole else line


class Folder:
    """A repository such as the pages speak of: a kernel, a package, a program, two ops, and a branch to compare with."""

    def __init__(self, path: Path, truths: Path) -> None:
        self.path = path
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("GRADCHECK_", "PYTEST_"))}
        paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
        self.env = {**plain, **paths, "GRADCHECK_CACHE_DIR": str(truths), "GRADCHECK_NO_PLUGINS": "1"}
        self._write()

    def _write(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        (scan,) = re.findall(r"^```python\n(# my_scan\.py\n.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        shown = (DOCS / "how-to/add-an-op.md").read_text(encoding="utf-8")
        ours = re.findall(r"^```python\n# ((?:oracles|kernels|mutants)/\w+\.py)\n(.*?)^```$", shown, re.MULTILINE | re.DOTALL)
        update = "from gradcheck.kernels.gated_delta.update import autodiff as update\n"
        texts = {"my_scan.py": scan, "my_kernels.py": update, "my_package/__init__.py": "", "my_package/scan.py": scan, **dict(ours)}
        for name, text in {**texts, "train.py": TRAIN, "tests/test_kernels.py": TRAIN, ".gitignore": ".gradcheck\n"}.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text, encoding="utf-8")
        for name in ("tests/testdata", "examples"):
            shutil.copytree(ROOT / name, self.path / name)
        self.done("gradcheck new op leaky_scan")
        for file in ("oracles/leaky_scan.py", "mutants/leaky_scan.py"):
            text = (self.path / file).read_text(encoding="utf-8")
            (self.path / file).write_text(text.replace('"numpy"', '"plain"'), encoding="utf-8")

    def repository(self) -> None:
        """Commit it, and a change to a kernel after that."""
        self.done("git init -q . && git config user.email a@b.invalid && git config user.name a && git add -A && git commit -qm base")
        self.done("git update-ref refs/remotes/origin/main HEAD")
        with (self.path / "kernels/linear_scan.py").open("a", encoding="utf-8") as file:
            file.write("\n# a change\n")
        self.done("git commit -qam change")

    def run(self, line: str) -> tuple[int, str]:
        """Exit status and output of a line."""
        ran = subprocess.run(["sh", "-ec", line], cwd=self.path, env=self.env, capture_output=True, text=True, timeout=900, check=False)
        return ran.returncode, ran.stdout + ran.stderr

    def done(self, line: str) -> str:
        """Output of a line that must end well."""
        code, output = self.run(line)
        assert code == 0, f"{line}\n{output}"
        return output

    def runs(self) -> list[str]:
        """Ids of the runs that are kept here."""
        return sorted(path.parent.name for path in (self.path / ".gradcheck/runs").glob("*/run.json"))


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    session = tmp_path_factory.getbasetemp()  # truths are shared by all tests, in all their processes
    truths = Path(os.environ.get("GRADCHECK_CACHE_DIR") or (session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "truths")
    return Folder(tmp_path, truths)


def failing(folder: Folder, commands: list[str]) -> Iterator[str]:
    """What is wrong with these commands, one by one.

    A run of one case may see too little (3, 5, 6), our own suite may be rotten (4), and ggml's own mode may let defects pass (3), which is
    what its page shows. None is the page's fault.
    """
    for line in commands:
        known = folder.runs()
        meant = RUN_ID.sub(known[0], line) if known else line
        code, output = folder.run(smaller(meant))
        fine = {0, 3, 5, 6} if smaller(meant) != meant else {0, 4} if line.startswith("gradcheck lint") else {0}
        fine |= {3} if "--oracle self" in line else set()
        if code not in fine:
            yield f"{smaller(meant)}\nexit {code}\n{output}"


@pytest.mark.parametrize("page", [p for p in PAGES if any(map(CHEAP.search, lines(p)))], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_cheap_commands_of_a_page_run(page: Path, folder: Folder):
    assert list(failing(folder, [line for line in lines(page) if CHEAP.search(line) and not excused(line)])) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_runs(page: Path, folder: Folder):
    folder.repository()
    for _ in range(2 if any(line.startswith(("gradcheck report", "gradcheck diff")) for line in lines(page)) else 0):
        folder.done("gradcheck run --op linear_scan --mutants all --cases 4 --jobs 1")
    assert list(failing(folder, [line for line in lines(page) if not excused(line)])) == []


def test_a_command_that_is_listed_as_not_run_is_in_a_page():
    told = [line for page in PAGES for line in lines(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in told)] == []


def test_commands_are_found_and_a_wrong_one_fails(folder: Folder, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```sh\ngradcheck list ops   # all\ngradcheck list \\\n  kernels\n```\n```text\ngradcheck no\n```\n", encoding="utf-8")
    assert lines(page) == ["gradcheck list ops", "gradcheck list kernels"]
    wrong = ["gradcheck list ops", "gradcheck list oops", "gradcheck replay x/T1/f32/mild/0 --kernel k --pytst", "false"]
    assert [text.partition("\n")[0] for text in failing(folder, wrong)] == wrong[1:]
