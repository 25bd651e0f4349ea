"""One call, cut into blocks of time, and the slopes of its steps. Shared by the sweeps over time in `tails` and `costate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from gradcheck.numerics.differences import (
    COARSE_STEP,
    HEADROOM,
    Function,
    Slope,
    analytic,
    change,
    complex_step,
    exact_difference,
    secant,
    stencil,
)
from gradcheck.numerics.forward import Sequence, extra_axes
from gradcheck.numerics.lanes import Lanes, directions, lanes
from gradcheck.numerics.recurrence import Array

Kind = Literal["double", "single", "exact"]

Way = Literal["secant", "complex", "stencil", "exact"]
"""How a slope is taken: see the functions of these names in `differences`."""

Transitions = Callable[[slice], list[tuple[tuple[int | slice, ...], Slope]]]
"""Slopes of (state_t, *terms_t) in state_{t-1} for all t of a block: pairs of index and slope, one per direction."""

BLOCK = 2**15
"""State elements that are differenced at once: a block with its temporaries stays in a core's cache."""

KEPT = 2**22
"""Numbers of slopes in the state that are kept for the second sweep over time, 32 MiB; more are taken anew."""

TRIED = 4
"""First steps of a call at which a complex step is tried against a difference."""

ROUNDINGS = 8.0
"""Roundings that one step may add to a value, each of u times its majorant: the products, exponentials and sums of a step of the
shipped references are 4 to 7."""

UNIT = ROUNDINGS * float(np.finfo(np.float64).eps) / 2
"""The rounding of one step in double precision, relative to the majorant of what it returns."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What every sweep over time needs.

    Args:
        call: the inputs.
        states: (T + 1, B, …), as the forward left them.
        w_y: weights of y, time first.
        w_s: weights of the final state.
        carry: dtype to which the state and its cotangent are rounded after each step, or nothing.
        kind: `double` (differences and complex steps in float64, with bounds), `single` (complex steps in float32: the model of a
            kernel) or `exact` (differences of mpmath or arb numbers).
    """

    call: Sequence
    states: Array
    w_y: Array
    w_s: Array
    carry: str = ""
    kind: Kind = "double"

    def blocks(self) -> list[slice]:
        """Slices of time, each of about BLOCK state elements, in order."""
        length = max(1, BLOCK // max(self.states[0].size, 1))
        return [slice(start, min(start + length, self.call.length)) for start in range(0, self.call.length, length)]

    def weights(self, block: slice) -> tuple[Array, ...]:
        """The weights of y in `block`, one array per term, each broadcast over the axes that y sums."""
        recurrence, sizes = self.call.recurrence, self.call.sizes
        w = self.w_y[block]
        shapes = [(len(w), *(sizes[axis] for axis in names)) for names in recurrence.terms]
        spread = [np.expand_dims(w, extra_axes(recurrence, names)) for names in recurrence.terms]
        return tuple(np.broadcast_to(a, shape) for a, shape in zip(spread, shapes, strict=True))

    def outputs(self, block: slice) -> tuple[Array, ...]:
        """(state_t, *terms_t) for all t of `block`, unperturbed."""
        recurrence = self.call.recurrence
        state, terms = recurrence.step(**{recurrence.state: self.states[block]}, **self.call.at(block))
        return state, *terms

    def reach(self, name: str, here: Lanes, block: slice, base: tuple[Array, ...]) -> Iterator[tuple[Array, tuple[Array, ...]]]:
        """Pairs (h, |change of `outputs(block)` when input `name` moves by h|), direction by direction; `base` is `outputs(block)`."""
        point, step = self._step(name, block)
        h = self._large_step(block, point) if name in self.call.recurrence.linear else np.full(1, COARSE_STEP)
        for _, direction in directions(here, point.shape[1:], point.dtype):
            yield h, change(step, point, direction, h, base)

    def transitions(self) -> Transitions:
        """Slopes in the state by block. Kept where one direction serves all, or where they are few; else taken anew.

        So memory stays O(T · state).
        """
        state = self.call.recurrence.state
        here, way = lanes(self.call.recurrence, state), self.way(state)
        kept: dict[int, list[tuple[tuple[int | slice, ...], Slope]]] = {}
        count = 0

        def at(block: slice) -> list[tuple[tuple[int | slice, ...], Slope]]:
            nonlocal count
            if block.start in kept:
                return kept[block.start]
            slopes = list(self.slopes(state, here, way, block))
            count += sum(value.size for _, slope in slopes for value in slope.value)
            if count <= KEPT or not here.serial:
                kept[block.start] = slopes
            return slopes

        return at

    def way(self, name: str) -> Way:
        """How slopes in input `name` are taken: complex steps if that is what the sweep is of, or the step is analytic in it."""
        if self.kind != "double":
            return "complex" if self.kind == "single" else "exact"
        if name in self.call.recurrence.linear:
            return "secant"
        point, step = self._step(name, slice(0, min(TRIED, self.blocks()[0].stop)))
        return "complex" if analytic(step, point, UNIT) else "stencil"

    def slopes(self, name: str, here: Lanes, way: Way, block: slice) -> Iterator[tuple[tuple[int | slice, ...], Slope]]:
        """Slopes of (state_t, *terms_t) in input `name` for all t of `block`, one direction at a time."""
        point, step = self._step(name, block)
        take = SLOPES[way] if way != "secant" else partial(secant, h=self._large_step(block, point), base=step(point))
        for index, direction in directions(here, point.shape[1:], point.dtype):
            yield index, take(step, point, direction)

    def _step(self, name: str, block: slice) -> tuple[Array, Function]:
        """The input `name` in `block`, and (state_t, *terms_t) as a function of it."""
        recurrence = self.call.recurrence
        given = self.call.at(block) | {recurrence.state: self.states[block]}
        point = given.pop(name)

        def step(moved: Array) -> tuple[Array, ...]:
            state, terms = recurrence.step(**given, **{name: moved})
            return state, *terms

        return point, step

    def _large_step(self, block: slice, point: Array) -> Array:
        """2^k, per step, well above all that a linear input competes with: itself and the states before and after."""
        after = slice(block.start + 1, block.stop + 1)
        sizes = [np.abs(a.reshape(a.shape[0], -1)).max(1) for a in (point, self.states[block], self.states[after])]
        largest = np.maximum(np.maximum(sizes[0], np.maximum(sizes[1], sizes[2])), 1.0)
        return np.asarray(HEADROOM * np.exp2(np.ceil(np.log2(largest))))


SLOPES: Mapping[Way, Callable[[Function, Array, Array], Slope]] = {
    "complex": complex_step,
    "stencil": stencil,
    "exact": exact_difference,
}


def magnitudes(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Absolute values, array by array."""
    return tuple(np.abs(a) for a in arrays)
