"""What an item may take, and how much memory a process holds.

Memory is watched from the parent, not limited with `setrlimit`. RLIMIT_AS and RLIMIT_DATA were both tried on Linux with numpy 2.4 and
MLX 0.32: either one makes numpy raise MemoryError, but MLX does not check what `malloc` gave it and dies of SIGSEGV, which nothing can
tell from a wild pointer in the kernel. A process that is seen to hold too much and is then killed leaves no doubt. The price: a worker can
overshoot by what it touches in about 0.2 s, and one single MLX array larger than the whole machine still is a SIGSEGV.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one item may take.

    Args:
        seconds: wall time, counted from when the item starts in a worker.
        memory: bytes of resident memory that a worker may add to what it held when the item began; None is no limit.
            Enforced on Linux only: elsewhere there is no /proc to read it from, and only allocations that fail are `memory`.

    Raises:
        ValueError: a limit is not positive.
    """

    seconds: float
    memory: int | None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"the time limit is {self.seconds} s: give a positive number of seconds")
        if self.memory is not None and not self.memory > 0:
            raise ValueError(f"the memory limit is {self.memory} bytes: give a positive number of bytes, or None for no limit")


def resident(pid: int) -> int:
    """Bytes of physical memory that a process holds; 0 where that cannot be read (it is gone, or this is not Linux)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def limit_text(memory: int | None) -> str:
    """The memory limit as a reader wants it."""
    return "no memory limit was set" if memory is None else f"the limit is {memory / _MIB:.4g} MiB"


def excess_text(held: int, memory: int | None) -> str:
    """Why a worker was killed."""
    return f"held {held / _MIB:.4g} MiB more than when the item began; {limit_text(memory)}"
