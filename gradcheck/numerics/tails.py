"""The recursions over time: the tail functional backwards, and the majorant of the state forwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from gradcheck.numerics.dtypes import round_to
from gradcheck.numerics.forward import extra_axes
from gradcheck.numerics.lanes import Lanes, gather, lanes
from gradcheck.numerics.recurrence import Array
from gradcheck.numerics.sweep import Sweep, Transitions, magnitudes


@dataclass(frozen=True, slots=True)
class Tails:
    """The slope P_t of the loss in the state after step t, for t = 0 … T.

    Args:
        value: P, (T + 1, B, …).
        majorant: the same recursion on absolute slopes.
        error: bound on the truncation in P, or None where the state enters linearly.
    """

    value: Array
    majorant: Array
    error: Array | None


def tails(sweep: Sweep, transitions: Transitions) -> Tails:
    """P_{t-1} = (d state_t / d state_{t-1})^T P_t + (d terms_t / d state_{t-1})^T w_t, from P_T = w_s."""
    recurrence, sizes = sweep.call.recurrence, sweep.call.sizes
    here = lanes(recurrence, recurrence.state)
    back = _Transpose.of(here, sweep.w_s.shape)
    value = np.empty_like(sweep.states)
    value[-1] = sweep.w_s
    bounded = sweep.kind == "double"
    majorant = np.empty_like(value) if bounded else value
    error = np.zeros_like(value) if sweep.way(recurrence.state) == "stencil" else None
    if bounded:
        majorant[-1] = np.abs(sweep.w_s)
    for block in reversed(sweep.blocks()):
        slopes = [slope for _, slope in transitions(block)]
        w = sweep.weights(block)
        steps = list(enumerate(range(block.start, block.stop)))[::-1]
        transit = np.stack([slope.value[0] for slope in slopes])
        read = np.stack([gather(here, here.readout[1:], slope.value[1:], w, sizes) for slope in slopes])
        for i, t in steps:
            tail = back(back.lanes(transit[:, i], value[t + 1]) + read[:, i])
            value[t] = round_to(tail, sweep.carry) if sweep.carry else tail
        if not bounded:
            continue
        w, transit = magnitudes(w), np.abs(transit)
        read = np.stack([gather(here, here.readout[1:], magnitudes(slope.value[1:]), w, sizes) for slope in slopes])
        for i, t in steps:
            majorant[t] = back(back.lanes(transit[:, i], majorant[t + 1]) + read[:, i])
        if error is not None:
            bounds = [cast("tuple[Array, ...]", slope.truncation) for slope in slopes]
            off = np.stack([bound[0] for bound in bounds])
            read = np.stack([gather(here, here.readout[1:], bound[1:], w, sizes) for bound in bounds])
            for i, t in steps:
                error[t] = back(back.lanes(transit[:, i], error[t + 1]) + back.lanes(off[:, i], majorant[t + 1]) + read[:, i])
    return Tails(value, majorant, error)


def majorants(sweep: Sweep, transitions: Transitions) -> tuple[Array, Array]:
    """Majorants of y (time first) and of the states (T + 1, B, …): absolute slopes in the state, plus what a step adds by itself."""
    recurrence = sweep.call.recurrence
    here = lanes(recurrence, recurrence.state)
    states = np.empty_like(sweep.states)
    states[0] = np.abs(sweep.states[0])
    outputs = []
    for block in sweep.blocks():
        before, after = sweep.states[block], sweep.states[block.start + 1 : block.stop + 1]
        slopes = transitions(block)
        moves = [magnitudes(slope.value) for _, slope in slopes]
        own = []
        for k, full in enumerate((after, *sweep.outputs(block)[1:])):
            carried = [slope.value[k] * _fit(here, k, _spread(here, index, before)) for index, slope in slopes]
            own.append(np.abs(full - sum(carried[1:], start=carried[0])))
        for i, t in enumerate(range(block.start, block.stop)):
            states[t + 1] = own[0][i]
            for (index, _), move in zip(slopes, moves, strict=True):
                states[t + 1] += move[0][i] * _spread(here, index, states[t : t + 1])[0]
        for k, names in enumerate(recurrence.terms, start=1):
            for (index, _), move in zip(slopes, moves, strict=True):
                own[k] = own[k] + move[k] * _fit(here, k, _spread(here, index, states[block]))
            own[k] = own[k].sum(extra_axes(recurrence, names))
        outputs.append(sum(own[2:], start=own[1]))
    return np.concatenate(outputs), states


def _spread(here: Lanes, index: tuple[int | slice, ...], states: Array) -> Array:
    """states[:, index] with the coupled axes put back at size 1."""
    picked = states[(slice(None), *index)]
    return np.expand_dims(picked, tuple(1 + here.own.index(axis) for axis in here.serial))


def _fit(here: Lanes, k: int, states: Array) -> Array:
    """`states`, over the axes of the state, laid out to broadcast over the k-th array that a step returns.

    An axis of the state that this array lacks is a coupled one of size 1, or one along which its slope is 0: any index serves.
    """
    names = here.readout[k]
    kept = [axis for axis in here.own if axis in names]
    fitted = states[(slice(None), *(slice(None) if axis in names else 0 for axis in here.own))]
    order = [axis for axis in names if axis in kept]
    fitted = fitted.transpose(0, *(1 + kept.index(axis) for axis in order))
    return np.expand_dims(fitted, tuple(1 + i for i, axis in enumerate(names) if axis not in kept))


@dataclass(frozen=True, slots=True)
class _Transpose:
    """Applies the transpose of a step's Jacobian that is stored one direction at a time along the coupled axes of the state."""

    coupled: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, here: Lanes, shape: tuple[int, ...]) -> _Transpose:
        positions = tuple(here.own.index(axis) for axis in here.serial)
        return cls(positions, tuple(shape[p] for p in positions))

    def lanes(self, transit: Array, tail: Array) -> Array:
        """For each direction j the sum over the coupled axes of transit[j] * tail: (directions, *parallel axes)."""
        return (transit * tail).sum(tuple(p + 1 for p in self.coupled)) if self.coupled else transit * tail

    def __call__(self, by_direction: Array) -> Array:
        """(directions, *parallel axes) put in the order of the state's axes."""
        if not self.coupled:
            return np.asarray(by_direction[0])
        grid = by_direction.reshape(*self.sizes, *by_direction.shape[1:])
        return np.moveaxis(grid, range(len(self.coupled)), self.coupled)
