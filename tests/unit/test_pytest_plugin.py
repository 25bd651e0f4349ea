"""`pytest --gradcheck`, as a shell starts it, in somebody else's repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gradcheck

ROOT = Path(gradcheck.__file__).parents[1]
HELLO = Path(__file__).parents[1] / "testdata" / "hello"
ONE = ("--gradcheck", "--gradcheck-op", "leaky_scan", "--gradcheck-cases", "1")
BARE = (*ONE, "--gradcheck-mutants", "none", "--gradcheck-checks", "none", "-k", "plain and f32")

Pytest = Callable[..., tuple[int, str]]


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    shutil.copytree(HELLO, tmp_path / "hello", ignore=shutil.ignore_patterns(".gradcheck", "__pycache__"))
    return tmp_path / "hello"


@pytest.fixture
def run(hello: Path, tmp_path_factory: pytest.TempPathFactory) -> Pytest:
    """Exit status and output of a pytest in that repository, with no plugins but xdist and ours."""
    base = tmp_path_factory.getbasetemp()
    truths = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "truths"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GRADCHECK_"))}
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GRADCHECK_CACHE_DIR": str(truths),
        "GRADCHECK_NO_PLUGINS": "1",
        "COLUMNS": "200",
    }

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-P", "-m", "pytest", "-p", "xdist", "-p", "gradcheck.pytest_plugin", "-p", "no:cacheprovider"]
        done = subprocess.run([*command, *arguments], check=False, cwd=hello, env=environment, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return run


def edit(file: Path, find: str, replace: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(find) == 1
    file.write_text(text.replace(find, replace), "utf-8")


def test_every_case_check_and_mutant_is_an_item_and_passes(run: Pytest):
    code, out = run(*ONE, "-v", "-k", "plain")
    assert code == 0, out
    items = re.findall(r"^gradcheck::leaky_scan::plain::(\S+) PASSED", out, re.MULTILINE)
    assert [name for name in items if name.startswith("mutant:")] == [
        f"mutant:{name}" for name in ("canary", "null", "drop_decay", "state_after_in_da")
    ]
    assert any(name.startswith("leaky_scan/B") for name in items)
    assert any(name.startswith("check:determinism@") for name in items)
    assert re.search(r"^[1-9]\d* comparisons", out, re.MULTILINE)


def test_a_wrong_kernel_fails_its_items_and_says_what_replay_says(run: Pytest, hello: Path):
    edit(hello / "hello/leaky.py", "carried = a * G", "carried = a * G * 1.001")
    code, out = run(*BARE)
    assert code == 1
    for part in ("FAILED  plain: differs from the truth by more than noise", "✗ d h", "by row:", "worst elements"):
        assert part in out, out
    assert re.search(r"replay +gradcheck replay leaky_scan/\S+ --kernel plain", out)


@pytest.mark.parametrize(
    "line, word",
    [("__import__('os').abort()", "CRASHED"), ("__import__('time').sleep(60)", "TIMEOUT"), ("raise OSError('disk')", "OSError")],
)
def test_a_kernel_that_crashes_hangs_or_raises_fails_its_item_and_not_pytest(run: Pytest, hello: Path, line: str, word: str):
    edit(hello / "hello/leaky.py", "        dy, carried = cotangents\n", f"        dy, carried = cotangents\n        {line}\n")
    (hello / "test_other.py").write_text("def test_plain_f32(): pass\n")
    code, out = run(*BARE, "--gradcheck-timeout", "4", "test_other.py")
    assert code == 1
    assert word in out
    assert "1 passed" in out


def test_a_mutant_that_is_not_seen_fails(run: Pytest, hello: Path):
    edit(hello / "mutants/leaky_scan.py", '"G * H[:, t + 1]"', '"G * H[:, t] * 1"')
    code, out = run(*ONE, "--gradcheck-mutants", "state_after_in_da", "--gradcheck-checks", "none", "-k", "mutant and plain")
    assert code == 1
    assert "SURVIVED  state_after_in_da in plain" in out
    assert "2 passed" in out  # canary and null


def test_a_kernel_that_cannot_run_here_is_a_skip_with_its_reason(run: Pytest, hello: Path):
    edit(hello / "oracles/leaky_scan.py", 'requires="mlx"', 'requires="no_such_module"')
    code, out = run(*ONE, "--gradcheck-mutants", "none", "--gradcheck-checks", "none")
    assert code == 0, out
    assert "1 skipped" in out
    assert "not compared: ops of leaky_scan needs the package no_such_module, which is not installed: pip install 'no_such_module'" in out


def test_a_run_in_which_nothing_was_compared_fails(run: Pytest, hello: Path):
    (hello / "test_other.py").write_text("def test_nosuch(): pass\n")
    code, out = run("--gradcheck", "-k", "nosuch")
    assert (code, "nothing was compared, which is no pass" in out, "1 passed" in out) == (5, True, True), out


@pytest.mark.parametrize(
    "option, why",
    [
        (("--gradcheck-op", "leaky_scn"), "did you mean 'leaky_scan'"),
        (("--gradcheck-mutants", "drop_dekay"), "drop_decay"),
        (("--gradcheck-checks", "tain"), "did you mean 'taint'"),
        (("--gradcheck-timeout", "0"), "need positive numbers"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error_before_anything_runs(run: Pytest, option: tuple[str, str], why: str):
    code, out = run("--gradcheck", *option)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert why in out
    assert "INTERNALERROR" not in out


def test_workers_of_xdist_share_the_items_out(run: Pytest):
    alone = run(*BARE)
    shared = run(*BARE, "-n", "2")
    assert (alone[0], shared[0]) == (0, 0), shared[1]
    (one,), (other,) = (re.findall(r"^(\d+) comparisons", out, re.MULTILINE) for _, out in (alone, shared))
    assert one == other


def test_without_the_option_nothing_is_collected_and_nothing_is_imported(run: Pytest, hello: Path):
    (hello / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n    assert not {'numpy', 'mlx', 'click', 'gradcheck.engine'} & set(sys.modules)\n"
    )
    code, out = run("-q")
    assert (code, "1 passed" in out, "comparisons" in out) == (0, True, False), out
    code, out = run("--gradcheck-op", "leaky_scan")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "does nothing without --gradcheck" in out


def test_the_fixture_is_the_suite_of_the_repository(run: Pytest, hello: Path):
    (hello / "test_other.py").write_text("def test_other(gradcheck_suite):\n    assert 'leaky_scan' in gradcheck_suite.ops\n")
    assert run("-q")[0] == 0
    (hello / "test_other.py").write_text("def test_other(gradcheck_suite):\n    assert 'no_such_op' in gradcheck_suite.ops\n")
    assert run("-q")[0] == 1
