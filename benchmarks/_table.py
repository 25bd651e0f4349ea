"""Ratios against the bounds that are promised, as a table. Ratios are taken within one run, since machines differ and share cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: what was measured, and the bound it must not exceed."""

    what: str
    measured: float
    bound: float
    unit: str = "×"

    @property
    def kept(self) -> bool:
        """Whether the promise holds. NaN does not."""
        return self.measured <= self.bound


def cpu_seconds(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The least CPU time of each function, interleaved round by round, so that a busy moment hits all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            began = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - began)
    return best


def show(title: str, rows: Sequence[Row]) -> int:
    """Print the table; 0 if every promise is kept, else 1."""
    print(f"\n{title}")
    for row in rows:
        print(f"  {'ok  ' if row.kept else 'OVER'}  {row.what:<72} {row.measured:9.3g}{row.unit} of at most {row.bound:g}{row.unit}")
    return 0 if all(row.kept for row in rows) else 1
