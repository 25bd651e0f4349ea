"""Finished runs, read back from their folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gradcheck._errors import UsageError
from gradcheck._verdict import Run
from gradcheck.engine import folders, store
from gradcheck.engine.files import StoreError


def read_run(folder: Path, run_id: str | None = None) -> Run:
    """The run as it was judged when it ended; without an id, the newest finished one.

    Raises:
        UsageError: there is no such run, or it is unfinished.
        StoreError: it cannot be read, or another version of gradcheck wrote it.
    """
    name = newest(folder) if run_id is None else run_id
    summary = store.read(folder, name).summary
    if summary is None:
        raise UsageError(f"run {name} is unfinished, so it has no result yet: gradcheck run --resume {name}")
    return _run_of(summary, folder / "runs" / name / "run.json")


def is_unfinished(folder: Path, run_id: str) -> bool:
    """Whether there is such a run, and it has not come to its end."""
    path = folder / "runs" / run_id
    return (path / "plan.json").is_file() and folders.is_unfinished(path)


def finished_run(path: Path) -> Run | None:
    """The run of this folder as it was judged when it ended; None where it has not, or something of its plan is still to be done.

    Raises:
        StoreError: it cannot be read, or another version of gradcheck wrote it.
    """
    summary = store.summary_of(path)
    run = None if summary is None else _run_of(summary, path / "run.json")
    return run if run is not None and run.done >= run.planned else None


def _run_of(summary: Mapping[str, object], path: Path) -> Run:
    try:
        return msgspec.convert(summary, Run)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} is not a run as this gradcheck writes it ({error}): run it anew") from error


def newest(folder: Path) -> str:
    """Id of the newest finished run.

    Raises:
        UsageError: there is none.
    """
    done = [(path.parent.name[:15], path.stat().st_mtime_ns, path.parent.name) for path in (folder / "runs").glob("*/run.json")]
    if not done:
        raise UsageError(f"no finished run in {folder / 'runs'}: make one with gradcheck run --op NAME, or go to the folder that has them")
    return max(done)[2]
