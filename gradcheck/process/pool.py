"""Run a function on many items and tell what became of each."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from gradcheck.process.crew import Crew
from gradcheck.process.desk import Desk
from gradcheck.process.limits import Limits
from gradcheck.process.outcome import Outcome
from gradcheck.process.worker import Setup

Item = TypeVar("Item")

_AHEAD = 2  # items handed out per worker: one in work, one waiting, so that no worker idles and 50,000 items cost nothing


def run_all(
    function: Callable[[Item], object],
    items: Iterable[Item],
    *,
    jobs: int,
    limits: Limits,
    logs: Path,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[object, ...] = (),
) -> Iterator[tuple[Item, Outcome]]:
    """Call `function` on each item in spawned workers; yield each item with its outcome as they come, not in order.

    Whatever a call does to its process is the outcome of that item, and the others run on. Closing the iterator, or an exception in the
    loop over it, kills the workers. Iterate in one thread: Linux kills a worker when the thread that started it ends.

    Args:
        function: at module level, so that it can be pickled; so must be the items and what it returns.
        items: read as workers become free.
        jobs: number of workers.
        limits: what one item may take.
        logs: folder for what workers write; what is kept of it is in the outcomes.
        initializer: called in each worker at the beginning of its first item, within that item's time limit, and again if it failed.
        initargs: its arguments.

    Raises:
        ValueError: `jobs` is not positive.
        RuntimeError: no worker lives long enough to begin an item.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}: give at least 1")
    return _results(function, items, jobs, limits, logs, pickle.dumps((initializer, initargs)))


def _results(
    function: Callable[[Item], object], items: Iterable[Item], jobs: int, limits: Limits, logs: Path, prepare: bytes
) -> Iterator[tuple[Item, Outcome]]:
    logs.mkdir(parents=True, exist_ok=True)
    desk = Desk(Path(tempfile.mkdtemp(prefix="workers-", dir=logs.absolute())))  # an item may change the folder of its worker
    crew = Crew(jobs, limits, Setup(desk, limits.memory, prepare))
    given: dict[int, Item] = {}
    numbered = enumerate(items)
    try:
        while True:
            for number, item in islice(numbered, _AHEAD * jobs - len(given)):
                given[number] = item
                crew.give(number, pickle.dumps((function, item)))
            if not given:
                return
            number, outcome = crew.take()
            yield given.pop(number), outcome
    finally:
        crew.close()
        shutil.rmtree(desk.folder, ignore_errors=True)
