"""Run functions on many items and tell what became of each."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from gradcheck.process.crew import Crew
from gradcheck.process.desk import Desk
from gradcheck.process.limits import Limits
from gradcheck.process.outcome import Outcome
from gradcheck.process.spawn import refuse_unguarded
from gradcheck.process.worker import Setup

Item = TypeVar("Item")

_OF_MAIN = b"_main__"  # the end of the names of the caller's script, `__main__` and, where the caller is a spawned process, `__mp_main__`
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
        function: at module level, so that it can be pickled; so must be the items and what it returns. Only where it is one of the
            caller's `__main__` do workers import that, and then a script needs `if __name__ == "__main__":`.
        items: read as workers become free.
        jobs: number of workers.
        limits: what one item may take.
        logs: folder for what workers write; what is kept of it is in the outcomes.
        initializer: called in each worker at the beginning of its first item, within that item's time limit, and again if it failed.
        initargs: its arguments.

    Raises:
        ValueError: `jobs` is not positive.
        RuntimeError: no worker lives long enough to begin an item, or the caller's script starts workers while it is imported by one.
    """
    team = Team(initializer, initargs)
    return _and_close(team, team.run_all(function, items, jobs=jobs, limits=limits, logs=logs))


def _and_close(team: Team, results: Iterator[tuple[Item, Outcome]]) -> Iterator[tuple[Item, Outcome]]:
    try:
        yield from results
    finally:
        team.close()


class Team:
    """Workers that stay from one `run_all` to the next, so that what they have imported and loaded is paid for once.

    One call at a time. Where a call is broken off, its workers are killed, and the next has new ones; so it has where it asks for more of
    them, or for other limits.
    """

    def __init__(self, initializer: Callable[..., object] | None = None, initargs: tuple[object, ...] = ()) -> None:
        self._prepare = pickle.dumps((initializer, initargs))
        self._numbers = count()
        self._size = 0
        self._terms: tuple[object, ...] = ()
        self._crew: Crew | None = None
        self._desk: Desk | None = None

    def run_all(
        self, function: Callable[[Item], object], items: Iterable[Item], *, jobs: int, limits: Limits, logs: Path
    ) -> Iterator[tuple[Item, Outcome]]:
        """As the function `run_all`; no more than `jobs` items are in work at a time."""
        refuse_unguarded()
        if jobs < 1:
            raise ValueError(f"jobs is {jobs}: give at least 1")
        return self._results(function, items, jobs, limits, logs)

    def close(self) -> None:
        """Kill the workers and wait until they are gone."""
        if self._crew is not None and self._desk is not None:
            self._crew.close()
            shutil.rmtree(self._desk.folder, ignore_errors=True)
        self._crew = self._desk = None

    def _results(
        self, function: Callable[[Item], object], items: Iterable[Item], jobs: int, limits: Limits, logs: Path
    ) -> Iterator[tuple[Item, Outcome]]:
        crew: Crew | None = None
        given: dict[int, Item] = {}
        numbered = zip(self._numbers, items)  # noqa: B905 - numbers have no end
        room = jobs * (1 if self._crew is not None and jobs < self._size else _AHEAD)  # more than those at work would be given to others
        over = False
        try:
            while True:
                for number, item in islice(numbered, room - len(given)):
                    crew = crew or self._ready(function, jobs, limits, logs)
                    given[number] = item
                    crew.give(number, pickle.dumps((function, item)))
                if crew is None or not given:
                    over = True
                    return
                number, outcome = crew.take()
                yield given.pop(number), outcome
        finally:
            if not over:
                self.close()

    def _ready(self, function: Callable[[Item], object], jobs: int, limits: Limits, logs: Path) -> Crew:
        """The workers, or others where these will not do."""
        main = any(_OF_MAIN in data for data in (self._prepare, pickle.dumps(function)))
        if self._crew is None or jobs > self._size or self._terms != (limits, logs, main):
            self.close()
            logs.mkdir(parents=True, exist_ok=True)
            self._size, self._terms = jobs, (limits, logs, main)
            self._desk = Desk(Path(tempfile.mkdtemp(prefix="workers-", dir=logs.absolute())))  # an item may change the folder of its worker
            self._crew = Crew(jobs, limits, Setup(self._desk, limits.memory, self._prepare), main=main)
        return self._crew
