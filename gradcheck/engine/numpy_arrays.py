"""NumPy arrays as a kernel takes and returns them. `mlx_arrays` has the same functions for MLX."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gradcheck import F64

NAME = "numpy"
DTYPES = {"f32": "float32", "f16": "float16"}


def make(value: npt.NDArray[np.generic], dtype: str, layout: str = "") -> object:
    """A fresh array; `dtype` is one of `DTYPES`, or empty to keep the dtype of `value`; `layout` one of `LAYOUTS`, or empty."""
    array = np.array(value, dtype=DTYPES[dtype] if dtype else value.dtype, order="C")
    match layout if array.ndim else "":
        case "transposed":
            return np.ascontiguousarray(array.T).T
        case "reversed":
            return np.flip(np.ascontiguousarray(np.flip(array)))
        case "sliced":
            return np.stack([array, np.flip(array)], axis=-1)[..., 0]
        case "broadcast":
            return np.broadcast_to(array[:1].copy(), array.shape)
    return array


def is_array(thing: object) -> bool:
    """Whether this is an array of this library."""
    return isinstance(thing, (np.ndarray, np.generic)) and not isinstance(thing, np.ma.MaskedArray)  # a mask would be dropped


def dtype_of(array: object) -> str:
    """Name of its dtype: `float32`."""
    return str(array.dtype)  # type: ignore[attr-defined]


def shape_of(array: object) -> tuple[int, ...]:
    """Its shape."""
    return tuple(array.shape)  # type: ignore[attr-defined]


def numbers(array: object) -> F64:
    """A copy of its values in float64."""
    return np.array(array, dtype=np.float64)


def zeros_like(array: object) -> object:
    """Zeros of its shape and dtype."""
    return np.zeros_like(array)


def evaluate(*arrays: object) -> None:
    """Wait for the values. NumPy has them already."""
