"""A report: a pure function from a finished run to text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck._verdict import Run

Render = Callable[["Run"], str]


@dataclass(frozen=True, slots=True)
class Report:
    """One way to tell a run. `render` does no I/O."""

    name: str
    suffix: str
    render: Render


def report(*, suffix: str) -> Callable[[Render], Report]:
    """Declare the decorated function as a report whose files end in `suffix`; its name is the report's name."""
    return lambda render: Report(render.__name__, suffix, render)
