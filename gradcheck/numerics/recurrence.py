"""A recurrence as the numerics see it: one step, and which axis of what means what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Axes = tuple[str, ...]
Step = Callable[..., tuple[Array, tuple[Array, ...]]]

Compiled = Callable[[Mapping[str, Array], Array, Array], Mapping[str, tuple[Array, Array, Array]]]
"""`(inputs, w_y, w_s) -> {name: (value, error, majorant)}` of the outputs, and of every input that has a gradient: see `fast`."""

TIME, BATCH = "T", "B"


def axes(text: str) -> Axes:
    """Axis names of `"B T H P"`."""
    return tuple(text.split())


@dataclass(frozen=True, slots=True)
class Recurrence:
    """`state_t, terms_t = step(state_{t-1}, **inputs at t, **static inputs)` and `y_t = sum of the terms over their extra axes`.

    The step is written over arrays with **any leading axes**, the same number for all; inside it each array has the axes named here,
    less `T`, last. An input without the batch axis arrives with a batch axis of size 1, so that everything broadcasts.

    Args:
        step: the function above; it uses `gradcheck.math` so that it serves float, complex, mpmath and arb numbers.
        inputs: axis names of every input, in the order of the op's inputs; an input without `T` is static (or the state).
        state: the input that is the initial state.
        terms: axis names of each term the step returns, without `T`.
        output: axis names of y, with `T`.
        linear: inputs in which the step is affine, so that a central difference has no truncation at any step size.
        constants: inputs that have no gradient (masks, ids).
        groups: coarse axis to the fine axis it groups: `{"G": "H"}` says g = h // (H / G).
        coupled: axes of the state along which elements influence each other within a step; along all others they are independent.
        separate: per input, axes that are coupled in the state but along which this input may still be perturbed at once,
            because each of its elements enters one element of the terms only (q of a delta rule).
    """

    step: Step
    inputs: Mapping[str, Axes]
    state: str
    terms: tuple[Axes, ...]
    output: Axes
    linear: frozenset[str]
    constants: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    coupled: frozenset[str] = frozenset()
    separate: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The inputs that have a gradient, in order."""
        return tuple(name for name in self.inputs if name not in self.constants)

    @property
    def steps(self) -> tuple[str, ...]:
        """The inputs that have a time axis."""
        return tuple(name for name, names in self.inputs.items() if TIME in names)

    @property
    def static(self) -> tuple[str, ...]:
        """The inputs that are the same at every step; the initial state is not one of them."""
        return tuple(name for name, names in self.inputs.items() if TIME not in names and name != self.state)
