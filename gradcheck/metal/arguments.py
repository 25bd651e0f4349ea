"""MLX arrays to the buffers of a kernel, and its outputs to MLX arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from gradcheck.metal import abi
from gradcheck.metal.launch import Buffer, Bytes
from gradcheck.metal.signature import TYPES, Signature, TemplateValue

Array = npt.NDArray[np.generic]

_NUMPY = {name: np.dtype("uint16" if name == "bfloat16" else name) for name in TYPES}
_POISON = {"bool": 1}  # other values of a bool are undefined; anything else is poisoned with ones: NaN, or -1


def dtype_name(dtype: mx.Dtype) -> str:
    """`float32` of `mlx.core.float32`.

    Raises:
        ValueError: Metal has no such type (float64).
    """
    name = str(dtype).rpartition(".")[2]
    if name not in TYPES:
        raise ValueError(f"[metal_kernel] {name} is not supported on the GPU: cast it to one of {', '.join(TYPES)}.")
    return name


def template_value(value: object) -> TemplateValue:
    """A template argument as the texts know it.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool | int):
        return value
    if isinstance(value, mx.Dtype):
        return dtype_name(value)
    raise ValueError("[metal_kernel] Invalid template argument. Must be `mlx.core.Dtype`, `int` or `bool`.")


def as_arrays(inputs: Sequence[mx.array | float]) -> list[mx.array]:
    """The inputs of a call, numbers as arrays too."""
    return [value if isinstance(value, mx.array) else mx.array(value) for value in inputs]


def buffers_of(
    signature: Signature,
    inputs: Sequence[mx.array],
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[str],
    init_value: float | None,
    *,
    contiguous: bool,
) -> tuple[Buffer, ...]:
    """A kernel's buffers, in the order of its parameters.

    Args:
        contiguous: rows are copied next to each other where they are not.
    """
    views = {name: numpy_view(array) for name, array in zip(_names(signature, "input"), inputs, strict=True)}
    if contiguous:
        views = {name: np.ascontiguousarray(view).reshape(view.shape) for name, view in views.items()}
    # MLX hands strides as they are. A negative one points before the array's data, for which a buffer has no word.
    views = {name: view if all(stride >= 0 for stride in view.strides) else np.ascontiguousarray(view) for name, view in views.items()}
    made = dict(zip(_names(signature, "output"), zip(output_shapes, output_dtypes, strict=True), strict=True))
    found = []
    for parameter in signature.parameters:
        if parameter.kind == "output":
            shape, dtype = made[parameter.of]
            data = np.full(math.prod(shape), 0, _NUMPY[dtype])
            if init_value is None:
                data.view(np.uint8).fill(_POISON.get(dtype, 0xFF))
            else:
                data[:] = numpy_view(mx.array(init_value, mx.float32).astype(getattr(mx, dtype)))
            found.append(Buffer(parameter.name, abi.OUTPUT, data, data.itemsize, init_value is not None))
            continue
        view = views[parameter.of]
        if parameter.kind == "input":
            found.append(Buffer(parameter.name, abi.INPUT, _span(view), view.itemsize))
        else:
            data = _fact(view, parameter.kind)
            found.append(Buffer(parameter.name, abi.META, data, data.itemsize))
    return tuple(found)


def arrays_of(outputs: Sequence[Bytes], shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> list[mx.array]:
    """The outputs as MLX arrays."""
    return list(_arrays(outputs, shapes, dtypes))


def numpy_view(array: mx.array) -> Array:
    """The array's own memory as numpy sees it; bfloat16 as uint16."""
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)


def _arrays(outputs: Sequence[Bytes], shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Iterator[mx.array]:
    for output, shape, dtype in zip(outputs, shapes, dtypes, strict=True):
        array = mx.array(output.view(_NUMPY[dtype]).reshape(tuple(shape)))
        yield array.view(mx.bfloat16) if dtype == "bfloat16" else array


def _names(signature: Signature, kind: str) -> list[str]:
    return [parameter.name for parameter in signature.parameters if parameter.kind == kind]


def _span(view: Array) -> Array:
    """The memory from the first to the last element, and what lies between them where rows do not touch."""
    if view.flags.c_contiguous or not view.size:
        return view
    last = sum((extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True))
    return np.lib.stride_tricks.as_strided(view, (last // view.itemsize + 1,), (view.itemsize,))


def _fact(view: Array, kind: str) -> Array:
    if kind == "shape":
        return np.array(view.shape, np.int32)
    if kind == "strides":
        return np.array([stride // view.itemsize for stride in view.strides], np.int64)
    return np.array([view.ndim], np.int32)
