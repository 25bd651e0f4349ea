"""The folders of runs: their names, and who works on them."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import filelock

from gradcheck._errors import UsageError, unknown
from gradcheck.engine.files import replace_file

_NEWEST = 10


class BusyError(UsageError):
    """Another process works on the run."""


def new_folder(root: Path, op: str) -> Path:
    """An empty folder for a run of `op` that begins now."""
    (root / "runs").mkdir(parents=True, exist_ok=True)
    if not (root / ".gitignore").exists():
        (root / ".gitignore").write_text("*\n", "utf-8")
    while True:
        path = root / "runs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{op}-{secrets.token_hex(2)}"
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            (path / "logs").mkdir()
            return path


def newest_first(root: Path) -> list[Path]:
    """The folders of all runs that have a plan. Their names begin with the second; within one, the file's time decides."""
    plans = [(plan.parent.name[:15], plan.stat().st_mtime_ns, plan.parent) for plan in (root / "runs").glob("*/plan.json")]
    return [path for *_, path in sorted(plans, reverse=True)]


def op_of(path: Path) -> str:
    """The op of a run, by its name."""
    return path.name[len("20260101-000000-") : -len("-0000")]


def is_unfinished(path: Path) -> bool:
    """Whether a run has not come to its end."""
    return not (path / "run.json").exists()


def find(root: Path, run_id: str) -> Path:
    """The folder of a run.

    Raises:
        UsageError: there is none.
    """
    paths = {path.name: path for path in newest_first(root)}
    if run_id not in paths:
        near = difflib.get_close_matches(run_id, paths, n=3, cutoff=0.5)
        raise unknown("run", run_id, {*list(paths)[:_NEWEST], *near}, f"(in {root / 'runs'})")
    return paths[run_id]


def hold(path: Path) -> filelock.BaseFileLock:
    """The lock of a run, taken, with the id of this process beside it.

    Raises:
        BusyError: another process works on it.
    """
    lock = filelock.FileLock(path / "lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        pid = path / "pid"
        who = f"process {pid.read_text('utf-8')}" if pid.exists() else "another process"
        raise BusyError(f"run {path.name} is being worked on by {who}: wait for it or end it") from None
    try:
        replace_file(path / "pid", str(os.getpid()).encode())
    except BaseException:
        lock.release()
        raise
    return lock


def is_free(path: Path) -> bool:
    """Whether no process works on the run (and one could)."""
    with held(path) as mine:
        return mine


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool]:
    """Keep others off a run; False where somebody works on it, or nobody can."""
    lock = filelock.FileLock(path / "lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except OSError:  # a Timeout is one too
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
