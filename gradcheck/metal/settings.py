"""How kernels are run on the CPU: an argument, or what surrounds the call, or the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["checked", "plain"]
Schedule = Literal["in-order", "lock-step", "reverse", "random"]

MODES: tuple[Mode, ...] = ("checked", "plain")
SCHEDULES: tuple[Schedule, ...] = ("in-order", "lock-step", "reverse", "random")
CONTRACTIONS = ("on", "off", "fast")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a kernel is compiled and run on the CPU.

    Args:
        mode: `checked` looks at every access and runs in a worker process; `plain` is fast, and a wrong kernel can end this process.
        schedule: in which order the simdgroups of a threadgroup go on. Checked and plain runs take the same.
        seed: of the random schedule.
        seconds: wall time that a checked launch may take.
        contract: whether a * b + c may be one operation: clang's `-ffp-contract`.
        threads: threads of the operating system over which a plain run spreads threadgroups; 0 is one per core.
        keep_going: a run with findings returns what there is of its outputs (NaN where it had not yet written) and leaves the findings to
            the tap, rather than to raise `KernelFault`.

    Raises:
        ValueError: a value that is not one of these.
    """

    mode: Mode = "checked"
    schedule: Schedule = "in-order"
    seed: int = 0
    seconds: float = 60.0
    contract: str = "on"
    threads: int = 0
    keep_going: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("schedule", self.schedule, SCHEDULES),
            ("contract", self.contract, CONTRACTIONS),
        ):
            if value not in known:
                raise ValueError(f"no {name} {value!r} of Metal kernels: it is one of {', '.join(known)}")
        if not self.seconds > 0 or self.threads < 0 or not 0 <= self.seed < 1 << 64:
            raise ValueError(
                f"seconds is {self.seconds}, threads {self.threads}, seed {self.seed}: give positive seconds, the others from 0"
            )


_CURRENT: ContextVar[Settings | None] = ContextVar("metal settings", default=None)


def current() -> Settings:
    """The settings of the innermost `configured` block; else from the environment.

    `GRADCHECK_METAL` is `checked` or `plain`, `GRADCHECK_METAL_SCHEDULE` a schedule, `GRADCHECK_METAL_SEED` and
    `GRADCHECK_METAL_SECONDS` numbers.
    """
    chosen = _CURRENT.get()
    if chosen is not None:
        return chosen
    read = os.environ.get
    return Settings(
        mode=read("GRADCHECK_METAL", "checked"),  # type: ignore[arg-type] # Settings looks at it
        schedule=read("GRADCHECK_METAL_SCHEDULE", "in-order"),  # type: ignore[arg-type]
        seed=int(read("GRADCHECK_METAL_SEED", "0")),
        seconds=float(read("GRADCHECK_METAL_SECONDS", "60")),
    )


@contextmanager
def configured(**changes: object) -> Iterator[Settings]:
    """Within the block kernels run with these changes to the settings around it, see `Settings`."""
    chosen = replace(current(), **changes)  # type: ignore[arg-type] # by name
    token = _CURRENT.set(chosen)
    try:
        yield chosen
    finally:
        _CURRENT.reset(token)
