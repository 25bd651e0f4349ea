"""Kernels that do to their process what a wrong kernel can do. Imported by workers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

MIB = 1 << 20
kept: list[object] = []


def segfault() -> None:
    ctypes.string_at(0)


def crash_after_talking() -> None:
    print("last words in Python")  # noqa: T201 - to be found in the log
    ctypes.CDLL(None).printf(b"last words in C\n")
    os.write(1, b"last words by descriptor\n")
    segfault()


def c_exit() -> None:
    ctypes.CDLL(None)._exit(5)


def overflow() -> None:
    sys.setrecursionlimit(10**9)

    @ctypes.CFUNCTYPE(None)
    def again() -> None:
        again()

    again()


def hang_in_python() -> None:
    while True:
        pass


def hang_in_c() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).pause()


def hang_with_the_gil() -> None:
    ctypes.PyDLL(None).sleep(1000)


def hog_in_numpy() -> None:
    import numpy as np

    kept.extend(np.ones(MIB) for _ in range(400))  # 3.2 GB


def hog_in_mlx() -> None:
    import mlx.core as mx

    for number in range(800):  # 3.2 GB
        kept.append(mx.ones((MIB,)) * number)
        mx.eval(kept[-1])


def hog_in_one_mlx_array() -> None:
    import mlx.core as mx

    mx.eval(mx.ones((800, MIB)))


def more_than_there_is() -> None:
    import numpy as np

    np.ones(1 << 45)


def bad_alloc() -> None:
    ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv()


def leak_100_mib() -> int:
    kept.append(b"x" * (100 * MIB))
    return len(kept)


class Odd(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


class Trap:
    """Its pickle cannot be loaded."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _spring, ()


def _spring() -> None:
    raise LookupError("sprung")


def odd_exception() -> None:
    raise Odd(1, 2)


def unpicklable_exception() -> None:
    error = ValueError("holds a lambda")
    error.held = lambda: None  # type: ignore[attr-defined]
    raise error


def mute_exception() -> None:
    raise Mute


def long_exception() -> None:
    raise ValueError("x" * (50 * MIB))


def unpicklable_result() -> Callable[[], None]:
    return lambda: None


def trapped_result() -> Trap:
    return Trap()


def babble() -> None:
    line = b"babble " * 10_000
    for _ in range(1000):  # 70 MB
        os.write(1, line)
    os.write(2, b"the end\n")
    os._exit(1)


def close_descriptors() -> None:
    print("before")  # noqa: T201 - so that there is something to lose
    sys.stdout.close()
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def close_everything() -> None:
    os.closerange(0, 4096)  # also what it is to answer through


def fork() -> int:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return 1 if child else 2


def fork_and_leave_it(folder: Path) -> None:
    tell(folder)
    if os.fork() == 0:
        tell(folder)
        hang_in_c()


def tell(folder: Path) -> None:
    """Leave this process's id behind, so that a test can look for it."""
    (folder / str(os.getpid())).touch()


def tell_and_hang(folder: Path) -> None:
    tell(folder)
    hang_in_c()


def fork_tell_and_hang(folder: Path) -> None:
    fork_and_leave_it(folder)
    hang_in_c()


def pause(seconds: float) -> None:
    time.sleep(seconds)


def die_later() -> str:
    threading.Timer(0.2, os._exit, (3,)).start()
    return "alive"


def who(seconds: float) -> tuple[float, float, int]:
    """From when until when this process was at it."""
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time(), os.getpid()


def end(status: int) -> None:
    os._exit(status)


def retire_after(number: int) -> tuple[int, int]:
    """Which process did this item; from now on another is to do them."""
    from gradcheck.process import retire

    retire()
    return number, os.getpid()


def environment(names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in names}


PREPARED: list[str] = []


def prepare(word: str) -> None:
    if word == "raise":
        raise LookupError("not prepared")
    if word == "crash":
        segfault()
    PREPARED.append(word)


def perform(item: object) -> object:
    """The function given to `run_all`: call what the item names, or give the item back."""
    if isinstance(item, str):
        return EVERYTHING[item]()
    if isinstance(item, tuple):
        name, *arguments = item
        return globals()[name](*arguments)
    return item


def prepared(_item: object) -> list[str]:
    return PREPARED


EVERYTHING: dict[str, Callable[[], object]] = {
    "segfault": segfault,
    "crash_after_talking": crash_after_talking,
    "abort": os.abort,
    "exit 3": lambda: os._exit(3),
    "exit 0": lambda: os._exit(0),
    "exit in C": c_exit,
    "sys.exit(4)": lambda: sys.exit(4),
    "sys.exit()": sys.exit,
    "sys.exit(text)": lambda: sys.exit("some text"),
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "overflow": overflow,
    "bad_alloc": bad_alloc,
    "more_than_there_is": more_than_there_is,
    "hog_in_numpy": hog_in_numpy,
    "hog_in_mlx": hog_in_mlx,
    "hog_in_one_mlx_array": hog_in_one_mlx_array,
    "odd_exception": odd_exception,
    "unpicklable_exception": unpicklable_exception,
    "mute_exception": mute_exception,
    "long_exception": long_exception,
    "unpicklable_result": unpicklable_result,
    "trapped_result": trapped_result,
    "babble": babble,
    "close_descriptors": close_descriptors,
    "close_everything": close_everything,
    "fork": fork,
    "die_later": die_later,
    "hang_in_python": hang_in_python,
    "hang_in_c": hang_in_c,
    "hang_with_the_gil": hang_with_the_gil,
}


def follow_by_thread(folder: Path) -> None:
    """A process that follows its parent as it does where there is no prctl."""
    from gradcheck.process.worker import die_with_parent

    os.setpgid(0, 0)
    die_with_parent(by_kernel=False)
    tell(folder)
    time.sleep(1000)


def main(action: str, folder: Path) -> None:
    """A parent to be interrupted or killed by a test."""
    if action == "thread":
        get_context("spawn").Process(target=follow_by_thread, args=(folder,)).start()
        time.sleep(1000)
    from gradcheck.process import Limits, run_all

    if action == "daemon":  # as dask's workers are
        daemon = get_context("spawn").Process(target=main, args=("answer", folder), daemon=True)
        daemon.start()
        daemon.join()
        return
    if action == "answer":
        ((_, outcome),) = run_all(perform, [7], jobs=1, limits=Limits(60, None), logs=folder / "logs")
        (folder / repr(outcome.value)).touch()  # type: ignore[union-attr] # or else it fails, as it should
        return
    items = [("fork_tell_and_hang", folder), ("tell_and_hang", folder)]
    for _ in run_all(perform, items, jobs=2, limits=Limits(1000, None), logs=folder / "logs"):
        pass


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
