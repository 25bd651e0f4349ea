"""How a worker is born and how it is killed: the multiprocessing context that is given to pebble."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import current_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType

# Kernels are timed and compared: one thread each, whatever numpy, MLX or numba would take.
PINNED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}

EXIT_ZERO = 256  # no real status; see WorkerProcess.exitcode
UNGUARDED = 78  # exit status of a worker that was about to start workers while it imported the caller's main module
NAME = "gradcheck worker"
NO_GUARD = (
    "workers import the script that starts them, and this one starts them again while it is imported: "
    'put what it does below `if __name__ == "__main__":`'
)

_GRACE = 0.25  # seconds; see WorkerProcess.is_alive
_starting = threading.Lock()  # two runs in one process must not restore each other's environment


class WorkerProcess(SpawnProcess):
    """A spawned process that suits pebble, which judges workers by `is_alive` and `exitcode` and stops them by `terminate`."""

    def __init__(self, exits: dict[int, int], *, main: bool, **options: object) -> None:
        super().__init__(**{**options, "name": NAME})  # type: ignore[arg-type] # pebble's own keywords, passed through
        self._exits = exits
        self._main = main
        self._seen_dead: float | None = None
        self._stopped = False

    def start(self) -> None:
        """Start with pinned threads and SIGINT blocked, so that Ctrl-C during its imports prints no traceback."""
        with _starting, _pinned_environment(), _blocked(signal.SIGINT), _by_daemon(), nullcontext() if self._main else _no_main():
            super().start()

    def terminate(self) -> None:
        """Kill at once: pebble's SIGTERM would wait 3 s for a hang that ignores it, while no other worker can send its result."""
        self._stopped = True
        if self.pid is not None and super().is_alive():
            kill_group(self.pid)
            super().kill()

    def is_alive(self) -> bool:
        """Whether it lives, or died so lately that its word of which item it had taken may still be unread.

        Pebble reads that word in another thread. When the parent is busy, death is seen first up to once in ten times, and the item is lost.
        """
        if super().is_alive():
            return True
        if self._stopped or self.pid is None:
            return False
        now = time.monotonic()
        if self._seen_dead is None:
            self._seen_dead = now
            self._exits[self.pid] = self.exitcode or 0
        return now - self._seen_dead < _GRACE

    @property
    def exitcode(self) -> int | None:
        """As in `Process`, but pebble takes status 0 for a worker that retired and waits for its answer: here no worker retires."""
        status = super().exitcode
        return EXIT_ZERO if status == 0 else status


class Spawn(SpawnContext):
    """Spawned, never forked: MLX does not survive a fork. `exits` has the status of each worker that ended by itself, by pid.

    Args:
        main: whether workers import the caller's `__main__`, which runs a script once more that has no `if __name__ == "__main__":`.
    """

    def __init__(self, *, main: bool = True) -> None:
        super().__init__()
        self.exits: dict[int, int] = {}
        self._main = main

    def Process(self, **options: object) -> WorkerProcess:  # type: ignore[override] # noqa: N802 - the name pebble calls
        """A process that is not yet started."""
        return WorkerProcess(self.exits, main=self._main, **options)


def refuse_unguarded() -> None:
    """Refuse to start workers while a process of `multiprocessing` still imports the main module of its parent.

    Such a process would start workers without end. If it is one of ours it ends at once, and its parent says why.

    Raises:
        RuntimeError: it is another's.
    """
    here = current_process()
    if getattr(here, "_inheriting", False):
        if here.name == NAME:
            os._exit(UNGUARDED)
        raise RuntimeError(NO_GUARD)


def kill_group(pid: int) -> None:
    """Kill a worker and what its kernel forked; a worker leads a process group of its own once it is ready."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # not ready yet, or all gone (macOS answers EPERM for zombies)
        return


@contextmanager
def _pinned_environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in PINNED}
    os.environ.update(PINNED)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _by_daemon() -> Iterator[None]:
    """A daemon, such as dask's, may have no children, lest they outlive it. Ours do not, so here it may."""
    config: dict[str, object] = current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other switch
    daemon = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemon is not None:
            config["daemon"] = daemon


@contextmanager
def _no_main() -> Iterator[None]:
    """Multiprocessing reads off this module what a new process has to import first; an empty one has nothing."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
