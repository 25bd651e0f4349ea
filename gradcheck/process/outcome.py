"""What became of an item: it was done, or it died and this is how."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

Kind = Literal["crashed", "timeout", "memory", "raised"]

# What allocators say before they give up: the C++ runtime, then MLX on the CPU and on Metal.
_STARVED = ("std::bad_alloc", "[malloc] Unable to allocate", "[metal::malloc]")


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned.

    Args:
        value: what it returned.
        seconds: wall time inside the function.
    """

    value: object
    seconds: float


@dataclass(frozen=True, slots=True)
class Died:
    """The function did not return.

    Args:
        kind: `crashed` (a signal, or it ended the process), `timeout`, `memory`, or `raised` (an exception).
        detail: `SIGSEGV (signal 11)`, `exit status 3`, `no answer within 60 s`, `MemoryError: …`, or type, message and last frames.
        log: the last 4 kB of what the worker wrote to stdout and stderr while it worked on this item.
        seconds: wall time from the item's start in a worker.
    """

    kind: Kind
    detail: str
    log: str
    seconds: float


Outcome = Done | Died


def ending(status: int) -> str:
    """How a process ended: a negative status is the signal that killed it, as in `Process.exitcode`.

    >>> ending(-11), ending(3)
    ('SIGSEGV (signal 11)', 'exit status 3')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"{signal.Signals(-status).name} (signal {-status})"
    except ValueError:  # real-time signals have no name
        return f"signal {-status}"


def starved(text: str) -> bool:
    """Whether an allocator says in `text` that it got no memory."""
    return any(phrase in text for phrase in _STARVED)
