"""Which elements may be perturbed together, and where their effect is read.

Elements of an input that differ only along *parallel* axes reach disjoint parts of what a step returns, so one perturbation serves
them all; along *serial* axes they are perturbed one at a time. A parallel axis is read on the axis of the same name, or, for a
coarse axis (G), on the fine axis that it groups (H), folded afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck.numerics.recurrence import BATCH, TIME, Array, Axes, Recurrence


@dataclass(frozen=True, slots=True)
class Lanes:
    """How one input is perturbed and read.

    Args:
        own: the input's axes as the step sees them: without time, with the batch axis.
        serial: those along which elements are perturbed one at a time.
        readout: axes of each array that the step returns (the state, then the terms).
        parallel: the others, each with the axis it is read on (itself, or the fine axis that it groups).
        static: the input has no time axis, so that all steps add up.
        batched: the input has a batch axis of its own; else the sequences add up.
    """

    own: Axes
    serial: Axes
    readout: tuple[Axes, ...]
    parallel: Mapping[str, str]
    static: bool
    batched: bool


def lanes(recurrence: Recurrence, name: str) -> Lanes:
    """The lanes of input `name`, from what the recurrence declares."""
    declared = recurrence.inputs[name]
    own = tuple(axis for axis in declared if axis != TIME)
    batched = BATCH in own
    own = own if batched else (BATCH, *own)
    state = recurrence.inputs[recurrence.state]
    readout = (state, *recurrence.terms)
    separate = recurrence.separate.get(name, frozenset())
    fine = {axis: _fine(recurrence, axis) for axis in own}
    serial = tuple(
        axis for axis in own if (axis in recurrence.coupled and axis not in separate) or not any(fine[axis] in names for names in readout)
    )
    parallel = {axis: fine[axis] for axis in own if axis not in serial and (batched or axis != BATCH)}
    return Lanes(own, serial, readout, parallel, TIME not in declared and name != recurrence.state, batched)


def directions(here: Lanes, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Iterator[tuple[tuple[int | slice, ...], Array]]:
    """Pairs (index, direction): perturb by `direction`, of shape (1, *shape), and the slope belongs to `[index]` of the input."""
    positions = [here.own.index(axis) for axis in here.serial]
    for at in itertools.product(*(range(shape[p]) for p in positions)):
        index: list[int | slice] = [slice(None)] * len(shape)
        for p, i in zip(positions, at, strict=True):
            index[p] = i
        direction = np.zeros(shape, dtype)
        direction[tuple(index)] = 1
        yield tuple(index), direction[None]


def gather(here: Lanes, readout: tuple[Axes, ...], parts: tuple[Array, ...], weights: tuple[Array, ...], sizes: Mapping[str, int]) -> Array:
    """Sum of parts times weights over everything that is not a parallel axis: shape (t, *parallel axes of the input).

    Parts and weights are arrays over (t, *axes), one pair for each entry of `readout`.
    """
    pairs = [_contract(here, names, part, weight, sizes) for names, part, weight in zip(readout, parts, weights, strict=True)]
    return sum(pairs[1:], start=pairs[0])


def _contract(here: Lanes, names: Axes, part: Array, weight: Array, sizes: Mapping[str, int]) -> Array:
    """One pair of `gather`: an einsum that keeps the fine axes, then the fold of each onto its coarse axis."""
    symbol = {axis: chr(ord("a") + i) for i, axis in enumerate(names)}
    kept = [fine for fine in here.parallel.values() if fine in symbol]
    source = "Z" + "".join(symbol[axis] for axis in names)
    out: Array = np.einsum(f"{source},{source}->Z{''.join(symbol[axis] for axis in kept)}", part, weight)
    for position, (axis, fine) in enumerate(here.parallel.items(), start=1):
        if fine not in symbol:  # this array does not vary along the axis: none of the effect is in it
            out = np.expand_dims(out, position)
        elif fine != axis:
            coarse = sizes[axis]
            out = out.reshape(*out.shape[:position], coarse, out.shape[position] // coarse, *out.shape[position + 1 :]).sum(position + 1)
    return out


def _fine(recurrence: Recurrence, axis: str) -> str:
    return recurrence.groups.get(axis, axis)
