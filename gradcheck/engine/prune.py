"""Take old runs away: what is taken is chosen by rule, told before it goes, and never a run that somebody works on."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gradcheck._files import size_of
from gradcheck.engine import folders

_STAMP = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True)
class Old:
    """A run that may go.

    Args:
        path: its folder.
        finished: whether it has come to its end.
        size: bytes that it takes.
    """

    path: Path
    finished: bool
    size: int


def old_runs(
    root: Path, *, keep: int | None = None, older_than: float | None = None, unfinished: bool = False, now: datetime | None = None
) -> list[Old]:
    """The runs that may go, newest first. Without a rule none may.

    Args:
        root: the folder `.gradcheck`.
        keep: so many of the newest finished runs stay, whatever their age.
        older_than: those that began less than so many days ago stay.
        unfinished: runs that have not come to their end may go too; otherwise they stay, and do not count as kept.
        now: the time, where it is not the clock's.
    """
    if keep is None and older_than is None:
        return []
    latest = None if older_than is None else _days_before(now or datetime.now(UTC), older_than)
    found, kept = [], 0
    for path in folders.newest_first(root):
        finished = not folders.is_unfinished(path)
        if not finished and not unfinished:
            continue
        kept += finished
        if (keep is None or kept > keep or not finished) and (latest is None or _began(path) < latest) and folders.is_free(path):
            found.append(Old(path, finished, size_of(path)))
    return found


def remove(runs: Collection[Old]) -> list[Old]:
    """Take these runs away; those that could be. One that somebody has begun to work on since stays."""
    gone = []
    for run in runs:
        with folders.held(run.path) as mine:
            if mine:
                (run.path / "plan.json").unlink(missing_ok=True)  # first: half a run is none
                shutil.rmtree(run.path, ignore_errors=True)
        if not run.path.exists():
            gone.append(run)
    return gone


def _days_before(now: datetime, days: float) -> datetime:
    try:
        return now - timedelta(days=days)
    except OverflowError:  # before the calendar begins, and so before every run
        return datetime.min.replace(tzinfo=UTC)


def _began(path: Path) -> datetime:
    """When a run began, by its name, which no copying changes; by its files where the name says nothing."""
    try:
        return datetime.strptime(path.name[:15], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
