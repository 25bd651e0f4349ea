"""What is trained behind an input of an op: the parameters that a gate is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradcheck._truth import F64


@dataclass(frozen=True, slots=True)
class Trained:
    """An input that is trained, and that an input of an op is computed from.

    A kernel is given a gate g, and a model trains a in g = f(a). Where the gate saturates, f' vanishes and so does what d g brings to a:
    a d g that is off there need not be wrong where it counts. The second look at a kernel that failed carries the error through f'.

    Args:
        op: name of the op.
        through: the input of the op that is computed from it.
        slope: f' as a function of the values of `through`, elementwise, up to a constant factor; finite wherever those may lie.
        source: where f is from.
        axes: axis names of the trained input where it has fewer than `through`: its gradient is the sum over the others.
        name: as it is told; the name of the variable that holds it, if not given.
    """

    op: str
    through: str
    slope: Callable[[F64], F64]
    source: str
    axes: str | None = None
    name: str = ""

    @property
    def id(self) -> str:
        """`op/name`, unique in a suite."""
        return f"{self.op}/{self.name}"
