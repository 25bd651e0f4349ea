"""The workers of a run: a pebble pool, what its workers hold, and what its answers mean."""

from __future__ import annotations

import itertools
import pickle
import queue
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from pebble import ProcessExpired, ProcessPool

from gradcheck.process.desk import Mark
from gradcheck.process.limits import Limits, excess_text, limit_text, resident
from gradcheck.process.outcome import Died, Done, Kind, Outcome, ending, starved
from gradcheck.process.spawn import EXIT_ZERO, NO_GUARD, UNGUARDED, Spawn, kill_group
from gradcheck.process.worker import RETIRED, Setup, enlist, work

_WATCH = 0.025  # seconds between two looks at how much memory is held
_LOGS = 20  # such looks between two at how long the logs are
_LISTEN = 0.5  # seconds without an answer after which the pool is asked whether it still works
_ATTEMPTS = 5  # workers that may die before an item begins, until that is not bad luck


@dataclass(slots=True)
class _Given:
    """An item that was handed out: the pickled task, its present future, how often it was handed out."""

    task: bytes
    future: Future[bytes] | None = None
    attempts: int = 0
    excess: int = 0


class Crew:
    """A pebble pool that is replaced when it breaks, and a thread that watches what its workers hold.

    Pebble starts, times and replaces workers. Which item a worker had is known from the desk.
    """

    def __init__(self, jobs: int, limits: Limits, setup: Setup, *, main: bool = True) -> None:
        self._main = main  # see Spawn
        self._jobs, self._limits, self._setup, self._desk = jobs, limits, setup, setup.desk
        self._given: dict[int, _Given] = {}
        self._answers: queue.SimpleQueue[tuple[int, Future[bytes]]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._changing = threading.Lock()  # the pool, which one thread may replace while another closes the crew
        self._spawn, self._pool = self._open()
        self._watcher = threading.Thread(target=self._watch, name="gradcheck memory watch", daemon=True)
        self._watcher.start()

    def give(self, number: int, task: bytes) -> None:
        """Hand an item out."""
        self._given[number] = _Given(task)
        self._schedule(number)

    def take(self) -> tuple[int, Outcome]:
        """Wait for the next item that is over.

        Raises:
            RuntimeError: no worker lives long enough to begin an item, or another thread has closed the crew.
        """
        while True:
            try:
                number, future = self._answers.get(timeout=_LISTEN)
            except queue.Empty:
                number, future = -1, Future()
            if self._closing.is_set():
                raise RuntimeError("the workers were ended under their items")
            if number < 0:
                if not self._pool.active:
                    self._replace()
                continue
            given = self._given.get(number)
            if given is None or given.future is not future:
                continue  # of a pool that was replaced since
            if _broken(future):
                self._replace()
                continue
            outcome = self._judge(number, given, future)
            if outcome is None:
                self._schedule(number)
                continue
            self._desk.clear(number)
            del self._given[number]
            return number, outcome

    def close(self) -> None:
        """Kill every worker and wait until they are gone. A second time does nothing; it may be called from any thread."""
        with self._changing:
            if not self._closing.is_set():
                self._closing.set()
                self._shut()
        self._watcher.join()

    def _open(self) -> tuple[Spawn, ProcessPool]:
        spawn = Spawn(main=self._main)
        return spawn, ProcessPool(self._jobs, initializer=enlist, initargs=(self._setup,), context=spawn)

    def _shut(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call] # pebble leaves it untyped
        self._pool.join()

    def _schedule(self, number: int) -> None:
        given = self._given[number]
        given.attempts += 1
        given.future = None
        if given.attempts > _ATTEMPTS:
            raise RuntimeError(
                f"{_ATTEMPTS} workers in a row died before they could begin item {number}; what they said is on stderr. "
                "Where a script gives run_all a function of its own, the workers import that script, so it must be importable."
            )
        try:
            future = self._pool.schedule(work, args=(number, given.task), timeout=self._limits.seconds)
        except RuntimeError:  # pebble's: the pool broke a moment ago: `take` will notice and hand all items out anew
            return
        given.future = future
        future.add_done_callback(lambda done: self._answers.put((number, done)))

    def _replace(self) -> None:
        """A new pool for a broken one. An item whose worker had died by itself is over; those that others worked on begin anew."""
        exits = self._spawn.exits
        with self._changing:
            if self._closing.is_set():
                return
            self._shut()
            self._spawn, self._pool = self._open()
        at_work = {mark.pid for number in self._given if (mark := self._desk.mark(number)) is not None}
        if any(status == UNGUARDED for pid, status in exits.items() if pid not in at_work):
            raise RuntimeError(NO_GUARD)
        for number, given in self._given.items():
            mark = self._desk.mark(number)
            if given.future is not None and given.future.done() and not _broken(given.future):
                continue  # its answer waits in the queue
            if mark is not None and mark.pid in exits:
                given.future = Future()
                expired = ProcessExpired("died", code=exits[mark.pid], pid=mark.pid)  # type: ignore[no-untyped-call] # as above
                given.future.set_exception(expired)
                self._answers.put((number, given.future))
            else:
                self._desk.clear(number)
                self._schedule(number)

    def _judge(self, number: int, given: _Given, future: Future[bytes]) -> Outcome | None:
        """What became of an item, or None if its worker died before it began."""
        mark = self._desk.mark(number)
        if future.cancelled():
            return self._died(number, mark, "memory", excess_text(given.excess, self._limits.memory))
        error = future.exception()
        if error is None:
            return self._answer(number, future.result())
        status = self._spawn.exits.pop(mark.pid, None) if mark is not None else None
        if isinstance(error, ProcessExpired):
            kill_group(error.pid)
            if mark is None:
                given.attempts -= error.exitcode == RETIRED  # it has done others before: no sign of bad luck
                return None
            status = error.exitcode
        if status is not None:
            return self._ended(number, mark, status)
        if isinstance(error, TimeoutError):
            return self._died(number, mark, "timeout", f"no answer within {self._limits.seconds:g} s")
        raise error  # the desk cannot be written to, or a mistake in this package

    def _answer(self, number: int, answer: bytes) -> Outcome:
        """What a worker said itself."""
        try:
            outcome = pickle.loads(answer)  # noqa: S301 - from our own worker
        except Exception as error:  # noqa: BLE001 - a value that cannot be rebuilt here runs code of the kernel's choice
            detail = f"its result cannot be unpickled: {type(error).__qualname__}: {error}"
            return self._died(number, self._desk.mark(number), "raised", detail)
        assert isinstance(outcome, Done | Died)  # `work` makes nothing else
        return replace(outcome, log=self._desk.tail(number)) if isinstance(outcome, Died) else outcome

    def _ended(self, number: int, mark: Mark | None, status: int) -> Died:
        """A process that ended under its item."""
        how = ending(0 if status == EXIT_ZERO else status)
        if starved(self._desk.tail(number)):
            return self._died(number, mark, "memory", f"{how} after a failed allocation; {limit_text(self._limits.memory)}")
        return self._died(number, mark, "crashed", how)

    def _died(self, number: int, mark: Mark | None, kind: Kind, detail: str) -> Died:
        seconds = 0.0 if mark is None else max(0.0, time.time() - mark.since)
        return Died(kind, detail, self._desk.tail(number), seconds)

    def _watch(self) -> None:
        """Cancel an item whose worker holds too much; pebble then kills that worker when no answer is on its way."""
        for look in itertools.count():
            if self._closing.wait(_WATCH):
                return
            for number, given in list(self._given.items()):
                if look % _LOGS == 0:
                    self._desk.shorten(number)
                mark = self._desk.mark(number)
                if mark is None or given.future is None or self._limits.memory is None:
                    continue
                excess = resident(mark.pid) - mark.held
                if excess > self._limits.memory:
                    given.excess = excess
                    given.future.cancel()


def _broken(future: Future[bytes]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenProcessPool)
