"""The recurrence, run forward: y_t = sum of terms_t, state_t kept at every step.

Inside the numerics time is the first axis and every input has a batch axis: `Sequence` is that layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck.numerics.dtypes import round_to
from gradcheck.numerics.recurrence import BATCH, TIME, Array, Axes, Recurrence


@dataclass(frozen=True, slots=True)
class Sequence:
    """The inputs of one call, time first.

    Args:
        recurrence: whose inputs they are.
        steps: inputs with a time axis, (T, B, …), in one precision.
        static: inputs without, (1, B or 1, …).
        initial: the state before the first step, (B, …).
        length: T.
        sizes: axis name to size.
    """

    recurrence: Recurrence
    steps: dict[str, Array]
    static: dict[str, Array]
    initial: Array
    length: int
    sizes: Mapping[str, int]

    def at(self, block: slice) -> dict[str, Array]:
        """All inputs of the steps in `block`, each with a leading axis of time (size 1 where static)."""
        return {**{name: value[block] for name, value in self.steps.items()}, **self.static}


def sequence(recurrence: Recurrence, inputs: Mapping[str, Array], dtype: type[np.floating] = np.float64) -> Sequence:
    """`inputs`, in the op's own layout, laid out time first.

    Raises:
        ValueError: an input is missing, or its shape does not fit the others.
    """
    sizes: dict[str, int] = {}
    for name, names in recurrence.inputs.items():
        if name not in inputs:
            raise ValueError(f"input {name!r} is missing")
        shape = np.shape(inputs[name])
        if len(shape) != len(names) or any(sizes.setdefault(axis, size) != size for axis, size in zip(names, shape, strict=True)):
            raise ValueError(f"input {name!r} has shape {shape}, which does not fit {' '.join(names)} with {sizes}")
    steps, static = {}, {}
    for name, names in recurrence.inputs.items():
        value = np.asarray(inputs[name])
        value = value if name in recurrence.constants or value.dtype == object else value.astype(dtype)
        if BATCH not in names:
            value = np.expand_dims(value, 1 if TIME in names else 0)
        if TIME in names:
            steps[name] = np.ascontiguousarray(np.moveaxis(value, names.index(TIME), 0))
        elif name != recurrence.state:
            static[name] = value[None]
    initial = np.asarray(inputs[recurrence.state])
    return Sequence(recurrence, steps, static, initial if initial.dtype == object else initial.astype(dtype), sizes[TIME], sizes)


def forward(call: Sequence, carry: str = "") -> tuple[Array, Array]:
    """(y, states) with y in the op's layout of `output` and states (T + 1, B, …), the initial state first.

    `carry` names a dtype to which the state is rounded after each step, as a kernel that stores it so does.
    """
    step = call.recurrence.step
    states = np.empty((call.length + 1, *call.initial.shape), call.initial.dtype)
    states[0] = call.initial
    outputs = []
    for t in range(call.length):
        inputs = {name: value[0] for name, value in call.at(slice(t, t + 1)).items()}
        state, terms = step(**{call.recurrence.state: states[t]}, **inputs)
        states[t + 1] = round_to(state, carry) if carry else state
        outputs.append(total(call.recurrence, terms))
    y = np.stack(outputs)
    return np.moveaxis(y, 0, call.recurrence.output.index(TIME)), states


def total(recurrence: Recurrence, terms: tuple[Array, ...]) -> Array:
    """y from its terms: each is summed over the axes that y does not have. Leading axes are kept."""
    parts = [term.sum(extra_axes(recurrence, names)) for names, term in zip(recurrence.terms, terms, strict=True)]
    y: Array = sum(parts[1:], start=parts[0])
    return y


def extra_axes(recurrence: Recurrence, names: Axes) -> tuple[int, ...]:
    """Positions, counted from the end, of the axes of a term that y does not have."""
    return tuple(i - len(names) for i, axis in enumerate(names) if axis not in recurrence.output)
