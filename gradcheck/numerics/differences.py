"""Slopes of a function along one direction, by differences: no derivative is ever written down.

Weights of a central difference with 2n points: sum_j w_j (f(jk) - f(-jk)) / k, exact for polynomials of degree 2n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from gradcheck.numerics.recurrence import Array

Arrays = tuple[Array, ...]
Function = Callable[[Array], Arrays]

SPACING = 2.0**-11
"""Spacing k of the six-point difference for inputs that enter nonlinearly.

A power of two, so that base + jk is exact for inputs that are float32 numbers. Its rounding is about 3u / k = 7e-13. Its truncation is
k^6 f^(7) / 5040, and the bound on it, of fourth order, k^4 f^(5) / 480: an exponent of 100 (dt = 100 times A) makes that 1e-8, still
below a rounding of float32.
"""

COMPLEX_STEP = {np.dtype(np.float32): 2.0**-20, np.dtype(np.float64): 2.0**-60}
"""Its square is what a complex step truncates: in single precision 1e-12, far below u = 6e-8 even times 25^2, where slopes of 1e-30 do
not underflow; in double 1e-36."""

HEADROOM = 2.0**20
"""How far a linear input is moved beyond the size of what it competes with: no truncation at any step, and rounding falls as 1/h."""

COARSE_STEP = 2.0**-12
"""For a scale: three digits where the slope varies over a unit."""

EXACT_STEP = 2.0**-33
"""For numbers of 50 digits: its fourth power, 1e-40, is the truncation. A power of two, so that dividing by it is exact."""

SAFETY = 1.1
"""On the truncation estimate: asymptotically exact, it would land a hair below half of the errors that it bounds."""


@dataclass(frozen=True, slots=True)
class Slope:
    """df/dp for each array that f returns, a bound on its truncation, and how much f's rounding is amplified.

    Args:
        value: the slopes.
        truncation: elementwise bounds, or None where there is no truncation.
        amplification: rounding of one unit in f is at most this many units in the slope (an array over time, or a number).
    """

    value: Arrays
    truncation: Arrays | None
    amplification: Array | float


@cache
def central(pairs: int) -> tuple[float, ...]:
    """Weights w_1 … w_n of the central difference with n = `pairs` pairs of points, solved in rationals.

    >>> central(3)
    (0.75, -0.15, 0.016666666666666666)
    """
    weights = []
    for j in range(1, pairs + 1):
        w = Fraction(1, 2 * j)
        for i in range(1, pairs + 1):
            if i != j:
                w *= Fraction(i * i, i * i - j * j)
        weights.append(float(w))
    return tuple(weights)


def secant(f: Function, point: Array, direction: Array, h: Array, base: Arrays) -> Slope:
    """(f(p + h) - f(p)) / h with a large step and `base` = f(p), for inputs in which f is affine. `h` is one number per time step."""
    inverse = 1 / h
    moved = f(point + _over(h, point) * direction)
    return Slope(tuple((a - b) * _over(inverse, a) for a, b in zip(moved, base, strict=True)), None, 2 * inverse)


def stencil(f: Function, point: Array, direction: Array) -> Slope:
    """Six-point central difference at +-k/2, +-k, +-2k, as the extrapolation of two four-point ones that share +-k.

        D = D4(k/2) + (D4(k/2) - D4(k)) / 15

    The bound 1.1 |D4(k/2) - D4(k)| / 15 is that of D4(k/2), which is two orders worse than D: it costs no further evaluation, and
    at this spacing even it is near the rounding.
    """
    odd = []  # f(+j) - f(-j) for j = k/2, k, 2k
    for j in (SPACING / 2, SPACING, 2 * SPACING):
        move = j * direction
        odd.append(tuple(a - b for a, b in zip(f(point + move), f(point - move), strict=True)))
    near, far = (w / SPACING for w in central(2))
    fine, coarse = (2 * near, 2 * far, 0.0), (0.0, near, far)  # weights of D4(k/2) and D4(k) on the three differences
    gap = tuple((a - b) / 15 for a, b in zip(fine, coarse, strict=True))
    value = tuple(a + b for a, b in zip(fine, gap, strict=True))
    parts = list(zip(*odd, strict=True))
    bound = tuple(SAFETY * weight for weight in gap)
    truncation = tuple(_size(_weighted(bound, part)) for part in parts)
    return Slope(tuple(_weighted(value, part) for part in parts), truncation, 2 * sum(map(abs, value)))


def complex_step(f: Function, point: Array, direction: Array) -> Slope:
    """Im f(p + ih) / h in the precision of the point: nothing is subtracted, so the only noise is that of evaluating f.

    It is true of an analytic f only: of |p| it says that the slope is 0 (see `analytic`).
    """
    h = point.dtype.type(COMPLEX_STEP[point.dtype])
    moved = np.empty(np.broadcast_shapes(point.shape, direction.shape), np.result_type(point, np.complex64))
    moved.real, moved.imag = point, h * direction
    return Slope(tuple(np.imag(a) / h for a in f(moved)), None, 1.0)


def analytic(f: Function, point: Array, unit: float) -> bool:
    """Whether complex steps may be believed of f: there, all elements moved at once, one lies within the bounds of `stencil`.

    `unit` is the rounding of f, relative to the largest element that it returns.
    """
    everywhere = np.ones_like(point)
    try:
        got = complex_step(f, point, everywhere)
    except TypeError:  # a function that complex numbers have not
        return False
    want, base = stencil(f, point, everywhere), f(point)
    assert want.truncation is not None
    triples = zip(got.value, want.value, want.truncation, base, strict=True)
    return all(
        bool((np.abs(a - b) <= off + unit * want.amplification * np.abs(size).max(initial=0.0)).all()) for a, b, off, size in triples
    )


def change(f: Function, point: Array, direction: Array, h: Array, base: Arrays) -> Arrays:
    """|f(p + h) - f(p)| with `base` = f(p): one evaluation; over h, three digits of the size of the slope."""
    moved = f(point + _over(h, point) * direction)
    return tuple(_size(a - b) for a, b in zip(moved, base, strict=True))


def exact_difference(f: Function, point: Array, direction: Array) -> Slope:
    """Four-point central difference on numbers of 50 digits: truncation 1e-40, rounding 1e-40."""
    one, two = (
        tuple(a - b for a, b in zip(f(point + j * EXACT_STEP * direction), f(point - j * EXACT_STEP * direction), strict=True))
        for j in (1, 2)
    )
    # central(2) is 2/3 and -1/12, which floats are not: the weights are applied as quotients of integers.
    return Slope(tuple((8 * a - b) / 12 / EXACT_STEP for a, b in zip(one, two, strict=True)), None, 1.0)


def _weighted(weights: tuple[float, ...], parts: Arrays) -> Array:
    total = parts[0] * weights[0]
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        total += part * weight
    return total


def _size(values: Array) -> Array:
    """|`values`|, which nobody else holds."""
    return np.abs(values, out=values)


def _over(h: Array, like: Array) -> Array:
    """`h`, one number per time step, shaped to broadcast over an array whose first axis is time (or has none)."""
    return h.reshape(h.shape + (1,) * max(like.ndim - 1, 0)) if like.ndim else h
