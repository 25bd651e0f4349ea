"""MLX arrays as a kernel takes and returns them. `numpy_arrays` has the same functions for NumPy."""

from __future__ import annotations

from typing import cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from gradcheck import F64

NAME = "mlx"
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def make(value: npt.NDArray[np.generic], dtype: str, layout: str = "") -> object:
    """A fresh array; `dtype` is one of `DTYPES`, or empty to keep the dtype of `value`; `layout` one of `LAYOUTS`, or empty."""
    if not dtype:
        return _laid_out(mx.array(value), layout)
    # By way of float32: exact for values that are already rounded to the dtype, and MLX on a GPU has no float64.
    return _laid_out(mx.array(value.astype(np.float32)).astype(getattr(mx, DTYPES[dtype])), layout)


def _laid_out(array: mx.array, layout: str) -> mx.array:
    """The same values in another place: a view, evaluated, so that what it views is not fused away."""
    match layout if array.ndim else "":
        case "transposed":
            view = mx.contiguous(array.T).T
        case "reversed":
            back = (slice(None, None, -1),) * array.ndim
            view = mx.contiguous(array[back])[back]
        case "sliced":
            view = mx.contiguous(mx.stack([array, array[(slice(None, None, -1),) * array.ndim]], axis=-1))[..., 0]
        case "broadcast":
            view = mx.broadcast_to(mx.contiguous(array[:1]), array.shape)
        case _:
            return array
    mx.eval(view)
    return view


def is_array(thing: object) -> bool:
    """Whether this is an array of this library."""
    return isinstance(thing, mx.array)


def dtype_of(array: object) -> str:
    """Name of its dtype: `float32`."""
    return str(cast("mx.array", array).dtype).removeprefix("mlx.core.")


def shape_of(array: object) -> tuple[int, ...]:
    """Its shape."""
    return tuple(cast("mx.array", array).shape)


def numbers(array: object) -> F64:
    """A copy of its values in float64."""
    given = cast("mx.array", array)
    if given.dtype == mx.bfloat16:
        given = given.astype(mx.float32)
    return np.array(given).astype(np.float64)


def zeros_like(array: object) -> object:
    """Zeros of its shape and dtype."""
    return mx.zeros_like(cast("mx.array", array))


def evaluate(*arrays: object) -> None:
    """Wait for the values: MLX builds a graph first."""
    mx.eval([array for array in arrays if is_array(array)])
