"""What happens inside a worker process."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing import connection, parent_process

from gradcheck.process.desk import Desk
from gradcheck.process.limits import limit_text, resident
from gradcheck.process.outcome import Died, Done, ending, starved
from gradcheck.process.spawn import kill_group

RETIRED = 77  # exit status of a worker that steps down before its item begins

_FRAMES = 4
_MESSAGE = 2000  # characters of an exception's message that are kept
_PR_SET_PDEATHSIG = 1
_LINE_BUFFERED = 1  # _IOLBF, on Linux and macOS alike


@dataclass(frozen=True, slots=True)
class Setup:
    """What every worker of a run is told once. `prepare` is a pickled pair: the caller's initializer and its arguments."""

    desk: Desk
    memory: int | None
    prepare: bytes


@dataclass(slots=True)
class _Self:
    """This worker.

    Args:
        setup: what it was told.
        spare: descriptor for tracebacks of fatal signals.
        held: resident bytes when it was ready; None until then.
        tired: it is to step down before its next item.
    """

    setup: Setup
    spare: int
    held: int | None = None
    tired: bool = False


_self: _Self | None = None  # pebble hands a worker's state to its tasks in no other way


def enlist(setup: Setup) -> None:
    """Make a worker of this process: called once, before its first item."""
    global _self  # noqa: PLW0603 - see _self
    os.setpgid(0, 0)  # killed together with whatever its kernels fork; a terminal's Ctrl-C does not reach it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a kernel that raises it dies of it, by that name
    die_with_parent()
    _line_buffer_c()
    spare = os.dup(2)
    faulthandler.enable(spare, all_threads=False)
    _self = _Self(setup, spare)


def in_worker() -> bool:
    """Whether this process is a worker, so that whatever becomes of it is an outcome already."""
    return _self is not None


def retire() -> None:
    """Have this worker step down before its next item, for one that is fresh. Outside a worker this does nothing.

    For what a process cannot get rid of but by ending: MLX never lets go of a library that it has compiled.
    """
    if _self is not None:
        _self.tired = True


def work(number: int, task: bytes) -> bytes:
    """Do one item. The answer is a pickled outcome, so nothing a kernel returns or raises can upset the pool's own pickling.

    Args:
        number: the item's number in the run.
        task: a pickled pair, function and item.

    Raises:
        RuntimeError: this process is not a worker.
        OSError: the desk cannot be written to.
    """
    if _self is None:
        raise RuntimeError("work() was called outside a worker: use run_all")
    setup = _self.setup
    held = resident(os.getpid())
    if _self.tired or (setup.memory is not None and _self.held is not None and held - _self.held > setup.memory):
        os._exit(RETIRED)  # earlier items left too much behind: this one begins in a fresh process, without their debt
    _redirect(setup.desk, number, _self.spare)
    setup.desk.begin(number, held)
    me = os.getpid()
    start = time.perf_counter()
    try:
        if _self.held is None:
            # Here and not in `enlist`, so that an initializer that raises, crashes or hangs is an outcome as well.
            prepare, arguments = pickle.loads(setup.prepare)  # noqa: S301 - our own bytes
            if prepare is not None:
                prepare(*arguments)
            _self.held = held = resident(me)
            setup.desk.begin(number, held)
        function, item = pickle.loads(task)  # noqa: S301 - our own bytes
        start = time.perf_counter()
        answer = pickle.dumps(Done(function(item), time.perf_counter() - start))
    except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is an outcome
        answer = pickle.dumps(_died(error, setup.memory, time.perf_counter() - start))
    if os.getpid() != me:
        os._exit(0)  # the kernel forked and this is the child: only the worker itself may answer
    _flush()
    return answer


def die_with_parent(*, by_kernel: bool = sys.platform == "linux") -> None:
    """Have this worker killed when its parent is gone, however it went: a hang must not outlive a parent that was killed -9.

    Args:
        by_kernel: the operating system does it (Linux); else a thread waits for it, which needs the GIL for a moment.
    """
    parent = parent_process()
    if parent is None:
        return
    if by_kernel:
        _follow_parent()
        os.register_at_fork(after_in_child=_follow_parent)  # what a kernel forks goes with the worker
        if os.getppid() != parent.pid:
            os._exit(1)  # it went before the call
    else:
        threading.Thread(target=_wait_and_die, args=(parent.sentinel,), daemon=True).start()


def _follow_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _wait_and_die(sentinel: int) -> None:
    connection.wait([sentinel])
    kill_group(os.getpid())


def _died(error: BaseException, memory: int | None, seconds: float) -> Died:
    if isinstance(error, SystemExit):
        return Died("crashed", ending(_status(error)), "", seconds)
    try:
        message = str(error)[:_MESSAGE]
    except Exception:  # noqa: BLE001 - a kernel's exception may be broken itself
        message = "(its message cannot be had: str() of it raises)"
    name = "MemoryError" if isinstance(error, MemoryError) else type(error).__qualname__  # numpy's is a private subclass
    if isinstance(error, MemoryError) or starved(message):
        return Died("memory", f"{name}: {message or 'no memory'}; {limit_text(memory)}", "", seconds)
    frames = traceback.extract_tb(error.__traceback__)[1:][-_FRAMES:]  # the first is `work`
    return Died("raised", f"{name}: {message}\n{''.join(traceback.format_list(frames))}".rstrip(), "", seconds)


def _status(error: SystemExit) -> int:
    """The exit status that the interpreter would have ended with."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does; it goes to the item's log
    return 1


def _redirect(desk: Desk, number: int, spare: int) -> None:
    """Send what is written, and tracebacks of fatal signals, to the item's log, whatever the last kernel did to the descriptors."""
    log = os.open(desk.log(number), os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_WRONLY)
    targets = (1, 2, spare)
    for target in targets:
        os.dup2(log, target)  # a descriptor onto itself is left as it is
    if log not in targets:  # it is one of them where a kernel had closed that
        os.close(log)
    sys.stdout, sys.stderr = (_stream(target) for target in (1, 2))


def _stream(target: int) -> io.TextIOWrapper:
    # Line by line: what a process has buffered when a signal kills it is lost.
    return open(target, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, replaced or None: the kernel's business
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def _line_buffer_c() -> None:
    """Have C's stdout buffered by line, as if it were a terminal, so that what `printf` said before a crash is not lost."""
    name = "__stdoutp" if sys.platform == "darwin" else "stdout"
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, _LINE_BUFFERED, ctypes.c_size_t(1024))
