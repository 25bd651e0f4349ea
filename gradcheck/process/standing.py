"""One worker that stays, for a caller that asks for one thing at a time and wants an answer before it asks again."""

from __future__ import annotations

import itertools
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gradcheck.process.crew import Crew
from gradcheck.process.desk import Desk
from gradcheck.process.limits import Limits
from gradcheck.process.outcome import Outcome
from gradcheck.process.worker import Setup

Item = TypeVar("Item")


class Standing:
    """A worker that is started at the first call and replaced when a call kills it. Calls from several threads take turns.

    Its caller may be a script without `if __name__ == "__main__":`; so what is called must be importable from elsewhere.

    Args:
        limits: what one call may take.
        logs: folder for what the worker writes; what is kept of it is in the outcomes.
    """

    def __init__(self, limits: Limits, logs: Path) -> None:
        self._limits, self._logs = limits, logs
        self._numbers = itertools.count()
        self._turn = threading.Lock()
        self._crew: Crew | None = None
        self._desk: Desk | None = None

    def call(self, function: Callable[[Item], object], item: Item) -> Outcome:
        """What became of `function(item)`.

        Raises:
            RuntimeError: no worker lives long enough to begin, or `kill` was called meanwhile.
        """
        with self._turn:
            if self._crew is None:
                self._logs.mkdir(parents=True, exist_ok=True)
                self._desk = Desk(Path(tempfile.mkdtemp(prefix="workers-", dir=self._logs.absolute())))
                self._crew = Crew(1, self._limits, Setup(self._desk, self._limits.memory, pickle.dumps((None, ()))), main=False)
            self._crew.give(next(self._numbers), pickle.dumps((function, item)))
            _, outcome = self._crew.take()
            return outcome

    def kill(self) -> None:
        """End the worker now, under whatever call: that call raises RuntimeError."""
        if (crew := self._crew) is not None:
            crew.close()

    def close(self) -> None:
        """Kill the worker and wait until it is gone; a later call starts another."""
        with self._turn:
            if self._crew is not None and self._desk is not None:
                self._crew.close()
                shutil.rmtree(self._desk.folder, ignore_errors=True)
            self._crew = self._desk = None
