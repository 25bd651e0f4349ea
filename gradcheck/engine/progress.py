"""How a run tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `note` is a line to be shown once."""

    stage: Literal["truth", "kernels", "checks", "mutants"]
    done: int
    total: int
    label: str
    note: str = ""


Tell = Callable[[Progress], None]
