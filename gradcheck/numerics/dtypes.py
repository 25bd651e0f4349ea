"""The dtypes of kernels under test: unit roundoff, underflow, and rounding of float64 arrays to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DType:
    """A floating-point format.

    Args:
        name: `f32`, `f16` or `bf16`.
        long: its name in numpy and MLX.
        u: unit roundoff, half the spacing above 1.
        smallest: smallest positive subnormal.
    """

    name: str
    long: str
    u: float
    smallest: float


DTYPES = {
    "f32": DType("f32", "float32", 2.0**-24, 2.0**-149),
    "f16": DType("f16", "float16", 2.0**-11, 2.0**-24),
    "bf16": DType("bf16", "bfloat16", 2.0**-8, 2.0**-133),
}


def round_to(values: npt.NDArray[np.floating], dtype: str) -> F64:
    """The nearest numbers of `dtype` (ties to even), as float64."""
    if dtype == "bf16":
        return _round_bf16(values)
    with np.errstate(over="ignore"):  # too large for the format is inf, as in the format itself
        return np.asarray(values).astype(DTYPES[dtype].long).astype(np.float64)


def _round_bf16(values: npt.NDArray[np.floating]) -> F64:
    """numpy has no bfloat16. A way through float32 would round twice, so count in spacings of bfloat16 (`rint` takes ties to even)."""
    values = np.asarray(values, np.float64)
    _, exponent = np.frexp(values)  # |x| < 2^exponent; subnormal numbers have the spacing of the smallest normal one
    spacing = np.ldexp(1.0, np.maximum(exponent, -125) - 8)
    rounded = np.rint(values / spacing) * spacing
    return np.asarray(np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, values), rounded), np.float64)
