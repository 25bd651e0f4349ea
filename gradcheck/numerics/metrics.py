"""How far an array is from the truth: five metrics, each as a plain number and as a multiple of the case's rounding unit.

The rounding unit of element i is `r_i = u * majorant_i + floor`: what one rounding of each term costs (u the unit roundoff of the
dtype), and the floor what underflow costs. With e_i = max(|got_i - want_i| - error_i, 0), the oracle's own error taken off:

    metric   number                             multiple of the rounding unit
    z        max e_i / r_i                      the same
    l2       |e| / |want|                       |e| / |r|
    max      max e_i / max |want_i|             max e_i / max r_i
    slice    worst rms(e) of a slice / rms(want)    worst rms(e) / rms(r) of a slice
    maa      mean |got - want| / (|got| + |want|), 0/0 = 0    over mean min(1, r_i / (2 |want_i|))

A slice fixes one index of one axis: a step, a sequence, a head, …. Measured in r, shape and regime cancel, so one tolerance serves
all cases. A non-finite value makes every metric None, which no tolerance admits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck.numerics.dtypes import DType
from gradcheck.numerics.recurrence import Axes

F64 = npt.NDArray[np.float64]
METRICS = ("z", "l2", "max", "slice", "maa")

UNDERFLOW = 2.0**-126
"""Smallest normal float32: kernels of every dtype accumulate in float32, and a product below this may be flushed to 0."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The metrics of one array.

    Args:
        errors, ratios: by metric, as in the table above; None is not finite.
        slices: per axis, the slice ratio of each index.
        worst: index of the worst element: the first that is not finite, else the largest e_i / r_i.
    """

    errors: dict[str, float | None]
    ratios: dict[str, float | None]
    slices: dict[str, F64]
    worst: tuple[int, ...]


def rounding_unit(majorant: F64, dtype: DType) -> F64:
    """r = u * majorant + floor, elementwise and above 0."""
    largest = max(float(majorant.max(initial=0.0)), 1.0)
    return dtype.u * majorant + dtype.smallest + UNDERFLOW * largest


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a kernel's array is measured against, with the sums that do not depend on the kernel: made once, used for every mutant.

    Args:
        want, error, unit: the truth, its own error and the rounding unit.
        axes: names of their axes.
        size: |want|.
        units: per axis, the mean square of the unit in each slice.
        norm, rms, largest: of the truth.
        unit_square, unit_largest: sum of squares and maximum of the unit.
        asymmetry: the asymmetry that rounding explains.
    """

    want: F64
    error: F64
    unit: F64
    axes: Axes
    size: F64
    units: tuple[F64, ...]
    norm: float
    rms: float
    largest: float
    unit_square: float
    unit_largest: float
    asymmetry: float


def yardstick(want: F64, error: F64, unit: F64, axes: Axes) -> Yardstick:
    """The yardstick of `want ± error`; `unit` from `rounding_unit`; `axes` names the axes of all three."""
    size = np.abs(want)
    square = unit**2
    return Yardstick(
        want,
        error,
        unit,
        axes,
        size,
        tuple(_mean_but(square, i) for i in range(want.ndim)),
        float(np.sqrt((want**2).sum())),
        float(np.sqrt((want**2).mean())),
        float(size.max()),
        float(square.sum()),
        float(unit.max()),
        float(np.minimum(1.0, _quotient(unit, 2 * size)).mean()),
    )


def compare(got: F64, want: F64, error: F64, unit: F64, axes: Axes) -> Comparison:
    """All metrics of `got` against `want ± error`; see `yardstick`."""
    return against(yardstick(want, error, unit, axes), got)


def against(stick: Yardstick, got: F64) -> Comparison:
    """All metrics of `got`."""
    if not np.isfinite(got).all():
        worst = np.unravel_index(int(np.argmax(~np.isfinite(got))), got.shape)
        nothing: dict[str, float | None] = dict.fromkeys(METRICS)
        return Comparison(nothing, dict(nothing), {axis: _finite_slices(got, i) for i, axis in enumerate(stick.axes)}, _index(worst))
    off = np.abs(got - stick.want)
    e = np.maximum(off - stick.error, 0.0)
    z = e / stick.unit
    square = e**2
    means = [_mean_but(square, i) for i in range(got.ndim)]
    slices = {axis: np.sqrt(mean / unit) for axis, mean, unit in zip(stick.axes, means, stick.units, strict=True)}
    worst_rms = max((float(np.sqrt(mean.max())) for mean in means), default=float(e.max()))
    asymmetry = float(_quotient(off, np.abs(got) + stick.size).mean())
    errors = {
        "z": float(z.max()),
        "l2": _number(float(np.sqrt((off**2).sum())), stick.norm),
        "max": _number(float(off.max()), stick.largest),
        "slice": _number(worst_rms, stick.rms),
        "maa": asymmetry,
    }
    ratios = {
        "z": float(z.max()),
        "l2": float(np.sqrt(square.sum() / stick.unit_square)),
        "max": float(e.max() / stick.unit_largest),
        "slice": max((float(ratio.max()) for ratio in slices.values()), default=float(z.max())),
        "maa": asymmetry / stick.asymmetry,
    }
    worst = np.unravel_index(int(np.argmax(z)), got.shape)
    return Comparison(dict(errors), dict(ratios), slices, _index(worst))


def signed_asymmetry(got: F64, want: F64) -> float | None:
    """ggml's measure: mean |(got - want) / (got + want)|, with a signed sum below. None where that is not finite.

    Two departures from ggml. An element where both are 0 counts 0: there it is 0/0, the mean NaN, and NaN exceeds no tolerance, so
    that the whole tensor passes unseen. And what is not finite must be judged a failure.
    """
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        return None
    mean = float(_quotient(np.abs(got - want), np.abs(got + want)).mean())
    return mean if np.isfinite(mean) else None


def _mean_but(values: F64, axis: int) -> F64:
    """Mean over all axes but one."""
    other = tuple(i for i in range(values.ndim) if i != axis)
    return np.asarray(values.mean(other))


def _finite_slices(values: F64, axis: int) -> F64:
    """0 for a slice that is finite, inf for one that is not."""
    other = tuple(i for i in range(values.ndim) if i != axis)
    return np.where(np.isfinite(values).all(other), 0.0, np.inf)


def _quotient(top: F64, bottom: F64) -> F64:
    """top / bottom with 0/0 = 0 and x/0 = inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(top == 0, 0.0, top / bottom)


def _number(top: float, bottom: float) -> float | None:
    """top / bottom with 0/0 = 0; None where only the bottom is 0."""
    if top == 0:
        return 0.0
    return top / bottom if bottom > 0 else None


def _index(at: tuple[np.intp, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in at)
