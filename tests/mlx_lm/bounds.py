"""What may lie between a kernel's result and the float64 reference, from the roundings that the kernel's text makes: a priori, no measurement.

A chain of n roundings in float32 has moved a sum of terms by at most γ_n Σ|terms|, with γ_n = n u / (1 − n u) and u = 2⁻²⁴; a result that
is rounded once more to its own dtype moves by that dtype's u. `magnitude` is Σ|terms|: the reference itself on absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

UNIT = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
"""Unit roundoff by dtype."""

LEAST = {mx.float32: 2.0**-126, mx.float16: 2.0**-24, mx.bfloat16: 2.0**-126}
"""Below it a result may be lost altogether: the least subnormal of float16; the others may be flushed."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A result beside the reference; `bound` is for each element."""

    name: str
    got: mx.array
    want: Array
    bound: Array

    @property
    def error(self) -> float:
        """The worst error, over the largest element of the reference."""
        return float(np.max(np.abs(exact(self.got) - self.want)) / np.max(np.abs(self.want)))

    @property
    def ratio(self) -> float:
        """The worst error over its bound: at most 1, or the kernel is wrong. NaN where the result is."""
        return float(np.max(np.abs(exact(self.got) - self.want) / self.bound))


def gamma(roundings: float) -> float:
    """γ_n of float32."""
    return roundings * UNIT[mx.float32] / (1 - roundings * UNIT[mx.float32])


def compared(name: str, got: mx.array, want: Array, error: Array | float) -> Compared:
    """A result that is off by at most `error` before it is rounded to the dtype it has."""
    unit = UNIT[got.dtype]
    return Compared(name, got, want, np.broadcast_to(unit * np.abs(want) + (1 + unit) * error + LEAST[got.dtype], want.shape))


def exact(array: mx.array) -> Array:
    """The values in float64."""
    return np.array(array.astype(mx.float32)).astype(np.float64)


def drawn(rng: np.random.Generator, dtype: mx.Dtype, *shape: int, low: float | None = None, high: float = 1.0) -> mx.array:
    """Normal numbers, or uniform ones from `low` to `high`, as the kernel gets them."""
    values = rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)
    return mx.array(values.astype(np.float32)).astype(dtype)


def unit_rows(array: mx.array) -> mx.array:
    """Rows of length one, in the array's dtype."""
    whole = array.astype(mx.float32)
    return (whole / mx.linalg.norm(whole, axis=-1, keepdims=True)).astype(array.dtype)
