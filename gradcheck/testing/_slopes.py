"""Black-box gradients: every element of an input moved on its own, by six-point differences, with a bound on each.

    dL/dx_i ~ D(h) along e_i,     L = sum over all outputs of w . f

Nothing is assumed of f but that it is smooth within reach of a step. Two things keep D from the slope: truncation, which the stencil
itself bounds, and the rounding of f, which is measured here: at a small step the truncation is nil, and what is left of the gap
between two four-point differences is rounding, over h. A larger step has less of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradcheck._truth import F64
from gradcheck.numerics.differences import SAFETY, SPACING, stencil

Loss = Callable[[F64], F64]
"""The terms of L at a value of the input, less those at the value given: in that order no digits are cancelled by a sum."""

FINE = 1.0
"""The first step, in units of the stencil's own: right where f is computed in float64."""

COARSER, FINER = (2.0**12, 2.0**10, 2.0**8, 2.0**6, 2.0**4, 2.0**2), (2.0**-4, 2.0**-6)
"""Steps for elements that the first does not settle: for an f that rounds to float32, and for an f that bends nearby."""

SETTLED = 2.0**-24
"""A bound below this share of the slope, one rounding of float32, needs no better."""

AMPLIFICATION = 2 * sum(abs(weight) for weight in (4 / 3, 1 / 6)) * 16 / 15 / SPACING
"""How much an error of L is amplified in a slope at the step FINE, at most."""

PROBES = 8
"""Directions in which the grain of f is looked for, each with a step half as large as the one before."""

LONG_PROBE, SHORT_PROBE = 2.0**-19, 2.0**-5
"""A step that is large for the grain, and small for what bends: in float64 and in float32."""

LEAST_SCALE = 2.0**-7
"""An element is moved by a share of its own size, or of this share of the largest in its input if that is more."""

NOISE = 6.0
"""Bound on rounding over its standard deviation: 1 in 10^9 of normal noise is beyond it."""

LOUD, NORMAL_LOUD = 0.9, 1.645
"""The noise of an input is taken from its louder elements: this quantile of them, and the same of |x| of a standard normal variable."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """The gradient of one input: elementwise values, bounds, and the part of the bound that is truncation."""

    value: F64
    error: F64
    truncation: F64


def slopes(loss: Loss, point: F64, *, long: bool, quantum: float) -> Slopes:
    """dL/dx for every element of x at `point`. A bound is infinite where no step gives a number.

    Args:
        loss: the terms of L, less those at `point`.
        point: x.
        long: f takes float64; what it does with it is found out.
        quantum: the rounding of the largest term of L, at least.
    """
    quantum = max(quantum, _grain(loss, point, long=long))
    scales = _scales(point)
    steps = {step: _pass(loss, point, scales, step, range(point.size)) for step in (FINE, FINER[0])}
    noise = np.maximum(_noise(steps[FINER[0]][1] * FINER[0] * scales), quantum * AMPLIFICATION) / scales
    settled = _bounded(*steps[FINE], noise)
    unsettled = np.flatnonzero(~(settled[1] <= SETTLED * np.maximum(np.abs(settled[0]), np.sqrt(np.mean(settled[0] ** 2)))))
    if not unsettled.size:
        return Slopes(*(a.reshape(point.shape) for a in settled))
    steps |= {step: _pass(loss, point, scales, step, unsettled) for step in (*COARSER, *FINER[1:])}
    own = NOISE * 15 * np.min([steps[step][1] * step for step in FINER], axis=0)  # an element may be noisier than most
    best = _best(steps, np.fmax(noise, own))
    flat = np.all([value == 0 for value, _ in steps.values()], axis=0)  # no step moves it, large or small
    best[1][flat] = 0.0
    return Slopes(
        *(np.where(np.isin(np.arange(point.size), unsettled), a, b).reshape(point.shape) for a, b in zip(best, settled, strict=True))
    )


def _best(steps: Mapping[float, tuple[F64, F64]], noise: F64) -> tuple[F64, F64, F64]:
    """(slope, bound, truncation) of each element at the step that has the least bound."""
    order = sorted(steps)
    found = []
    for fine, coarse in pairwise(order):  # the largest step has no next one, and only guards
        (value, gap), (_, next_gap) = steps[fine], steps[coarse]
        # A gap is of fourth order. One that is smaller than the next step's makes it is so by chance: then that is the bound.
        found.append(_bounded(value, np.fmax(gap, next_gap * (fine / coarse) ** 4), noise / fine))
    values, errors, truncations = (np.stack(parts) for parts in zip(*found, strict=True))
    for i in range(1, len(found)):  # a step that contradicts a smaller one has jumped over something: its bound is no bound
        with np.errstate(invalid="ignore"):  # no number contradicts nothing
            apart = np.abs(values[:i] - values[i]) - errors[:i] - errors[i]
        errors[i] = np.where((apart > 0).any(axis=0), np.inf, errors[i])
    best = np.argmin(errors, axis=0), np.arange(noise.size)
    return values[best], errors[best], truncations[best]


def _grain(loss: Loss, point: F64, *, long: bool) -> float:
    """How far a term of L is from where it should be, after steps so small that it is a straight line: twice the most that was seen.

    An f that rounds to float32 somewhere moves in stairs, and a difference within one stair is nought, however precise it looks.
    """
    rng = np.random.default_rng(PROBES)
    base, far = (LONG_PROBE, 5) if long else (SHORT_PROBE, 9)
    scales, seen = _scales(point).reshape(point.shape), 0.0
    for probe in range(PROBES):
        direction = base * scales * rng.choice([-1.0, 1.0], point.shape)
        share = 2.0 ** -(far + probe)
        line = (loss(point + direction) - loss(point - direction)) * share
        moved = loss(point + share * direction) - loss(point - share * direction)
        seen = max(seen, float(np.abs(moved - line).max(initial=0.0)))
    return 2 * seen


def kink(loss: Loss, point: F64, index: tuple[int, ...], step: float) -> tuple[float, float] | None:
    """(slope from the left, slope from the right) of one element where they differ as at a kink, else None.

    Where f is smooth the two grow alike as the step shrinks: their difference halves with it.
    """
    scale = step * float(_scales(point)[np.ravel_multi_index(index, point.shape)])

    def sided(h: float) -> tuple[float, float]:
        move = np.zeros_like(point)
        move[index] = h
        return -float(loss(point - move).sum()) / h, float(loss(point + move).sum()) / h

    (left, right), (nearer_left, nearer_right) = sided(scale), sided(scale / 2)
    jump, nearer = abs(right - left), abs(nearer_right - nearer_left)
    return (nearer_left, nearer_right) if nearer > 0.75 * jump > 0.05 * max(abs(left), abs(right)) else None


def _pass(loss: Loss, point: F64, scales: F64, step: float, chosen: Iterable[int]) -> tuple[F64, F64]:
    """(slope, |gap| / 15) of each chosen element at one step; NaN for the others."""
    value, gap = np.full(point.size, np.nan), np.full(point.size, np.nan)
    with np.errstate(all="ignore"):  # a function may be undefined within reach of a large step
        for i in chosen:
            move = np.zeros(point.size)
            move[i] = step * scales[i]
            found = stencil(lambda moved: (loss(moved).sum(keepdims=True),), point, move.reshape(point.shape))
            assert found.truncation is not None
            value[i] = float(found.value[0][0]) / move[i]
            gap[i] = float(found.truncation[0][0]) / SAFETY / move[i]
    return value, gap


def _bounded(value: F64, gap: F64, noise: F64) -> tuple[F64, F64, F64]:
    """(slope, bound, truncation)."""
    error = SAFETY * gap + noise
    error = np.where(np.isfinite(value) & np.isfinite(error), error, np.inf)
    return value, error, SAFETY * np.where(np.isfinite(gap), gap, np.inf)


def _noise(gap: F64) -> float:
    """Bound on the rounding of h D(h), from h times the gaps at a small step: that of D(h) is as large as that of 15 gaps."""
    seen = gap[np.isfinite(gap) & (gap > 0)]
    return NOISE * 15 * float(np.quantile(seen, LOUD)) / NORMAL_LOUD if seen.size else 0.0


def _scales(point: F64) -> F64:
    """A power of two for each element, so that what it is moved by is exact."""
    size = np.abs(point).ravel()
    largest = float(size.max(initial=0.0)) or 1.0
    return np.asarray(2.0 ** np.floor(np.log2(np.clip(size, LEAST_SCALE * largest, largest))), np.float64)


FINE_STEP, COARSE_STEP = SPACING, SPACING * 2.0**8
"""Steps at which a kink is looked for, as shares of an element's scale: in float64 and in float32."""
