"""Old runs go by rule, and never one that can be resumed or that somebody works on, unless told."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gradcheck.engine import store
from gradcheck.engine.prune import old_runs, remove

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAN = store.Manifest("x", {}, (), {}, "d")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / ".gradcheck"


def made(root: Path, stamp: str, *, finished: bool = True) -> str:
    with store.create(root, PLAN) as run:
        if finished:
            run.finish({"exit": 0})
        (run.logs / "log").write_bytes(b"x" * 1000)
    return run.path.rename(run.path.with_name(f"{stamp}-x-0000")).name


@pytest.fixture
def runs(root: Path) -> list[str]:
    """One a day, the oldest first."""
    return [made(root, f"202611{day}-100000") for day in (26, 27, 28, 29)]


def names(root: Path, **rule) -> list[str]:
    return [run.path.name for run in old_runs(root, now=NOW, **rule)]


def test_without_a_rule_nothing_goes(root, runs):
    assert names(root) == []


@pytest.mark.parametrize("keep, left", [(0, 0), (1, 1), (3, 3), (9, 4)])
def test_so_many_of_the_newest_stay(root, runs, keep, left):
    assert names(root, keep=keep) == runs[::-1][left:]


@pytest.mark.parametrize("days, gone", [(0, 4), (1.5, 3), (2.0, 3), (2.5, 2), (10, 0)])
def test_those_that_are_younger_stay(root, runs, days, gone):
    assert names(root, older_than=days) == runs[:gone][::-1]


def test_with_two_rules_either_holds_a_run_back(root, runs):
    assert names(root, keep=2, older_than=0) == runs[:2][::-1]
    assert names(root, keep=0, older_than=2.5) == runs[:2][::-1]


def test_a_run_that_can_be_resumed_stays_unless_told_and_is_not_counted(root, runs):
    open_one = made(root, "20261125-100000", finished=False)
    newest = made(root, "20261130-100000", finished=False)
    assert names(root, keep=1) == runs[:3][::-1]
    assert names(root, keep=1, unfinished=True) == [newest, *runs[:3][::-1], open_one]
    assert names(root, older_than=4.5, unfinished=True) == [open_one]


def test_what_goes_is_gone_and_the_rest_is_untouched(root, runs):
    gone = remove(old_runs(root, keep=2, now=NOW))
    assert [run.path.name for run in gone] == runs[:2][::-1]
    assert all(run.size > 1000 and run.finished for run in gone)
    assert sorted(path.name for path in (root / "runs").iterdir()) == runs[2:]
    assert all((root / "runs" / name / "logs" / "log").exists() for name in runs[2:])


HOLDER = """
import sys
from pathlib import Path
from gradcheck.engine import store
run = store.open_existing(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_that_a_process_works_on_stays_even_if_it_begins_after_the_choice(root, runs):
    chosen = old_runs(root, keep=0, now=NOW)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), runs[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert runs[0] not in names(root, keep=0)
        assert runs[0] not in [run.path.name for run in remove(chosen)]
        assert store.read(root, runs[0]).summary == {"exit": 0}
        other.kill()
    assert names(root, keep=0) == [runs[0]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
def test_a_folder_that_cannot_be_written_is_not_said_to_be_gone(root, runs):
    chosen = old_runs(root, keep=3, now=NOW)
    (root / "runs").chmod(0o500)
    try:
        assert remove(chosen) == []
    finally:
        (root / "runs").chmod(0o700)
