"""ggml, called by ctypes in the libraries of the wheel `libggml-python`: one operation on NumPy arrays, on one thread.

ggml writes shapes with the fastest axis first, so that its [N, P, H, B] is the row-major array [B, H, P, N] as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

_TYPES = {np.dtype(np.float32): 0, np.dtype(np.int32): 26}  # enum ggml_type
_SNAPSHOTS = 1  # K: states to return; 1 is the final one alone
_THREADS = 1  # its sums are then made in one order
_SLACK = 1 << 20  # bytes for the graph, the tensors' own records and ggml's work buffer


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "ggml_init": (_POINTER, [_InitParams]),
    "ggml_free": (None, [_POINTER]),
    "ggml_new_tensor_4d": (_POINTER, [_POINTER, ctypes.c_int, _INT64, _INT64, _INT64, _INT64]),
    "ggml_get_data": (_POINTER, [_POINTER]),
    "ggml_nelements": (_INT64, [_POINTER]),
    "ggml_new_graph": (_POINTER, [_POINTER]),
    "ggml_build_forward_expand": (None, [_POINTER, _POINTER]),
    "ggml_ssm_scan": (_POINTER, [_POINTER] * 8 + [_INT64]),  # context, s, x, dt, A, B, C, ids, K
    "ggml_gated_delta_net": (_POINTER, [_POINTER] * 7 + [_INT64]),  # context, q, k, v, g, beta, state, K
    "ggml_graph_compute_with_ctx": (ctypes.c_int, [_POINTER, _POINTER, ctypes.c_int]),
}


def recur(name: str, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[tuple[int, ...]]) -> list[F32]:
    """What a recurrence of ggml returns, which is one flat array of y and then the final states, cut into these shapes.

    Args:
        name: of the function, whose arguments are a context, the inputs, and the number of states to return.
        inputs: float32 or int32, of up to 4 axes.
        outputs: shapes of y and of the final states.

    Raises:
        RuntimeError: the wheel's libraries cannot be used, or ggml reports that it failed. Shapes that ggml's own assertions
            refuse end the process.
    """
    sizes = [int(np.prod(shape)) for shape in outputs]
    with _context(sum(array.nbytes for array in inputs) + 2 * np.dtype(np.float32).itemsize * sum(sizes) + _SLACK) as context:
        packed = _call(name, context, *(_tensor(context, array) for array in inputs), _SNAPSHOTS)
        graph = _call("ggml_new_graph", context)
        _call("ggml_build_forward_expand", graph, packed)
        status = _call("ggml_graph_compute_with_ctx", context, graph, _THREADS)
        if status != 0:
            raise RuntimeError(f"ggml_graph_compute_with_ctx returned the status {status}, need 0")
        size = _call("ggml_nelements", packed)
        if size != sum(sizes):
            raise RuntimeError(f"{name} returned {size} numbers, need {sizes[0]} of y and {sizes[1]} of the final state")
        flat = _view(packed, (size,), np.dtype(np.float32)).copy()
    return [part.reshape(shape) for part, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), outputs, strict=True)]


@contextmanager
def _context(size: int) -> Iterator[int]:
    """A context of `size` bytes, in which ggml keeps tensors, graph and work buffer."""
    context = _call("ggml_init", _InitParams(size, None, False))
    if not context:
        raise RuntimeError(f"ggml_init could not take {size} bytes")
    try:
        yield context
    finally:
        _call("ggml_free", context)


def _tensor(context: int, array: npt.NDArray[Any]) -> int:
    """A tensor that holds a copy of `array`."""
    shape = [*array.shape[::-1], *[1] * (4 - array.ndim)]
    tensor: int = _call("ggml_new_tensor_4d", context, _TYPES[array.dtype], *shape)
    _view(tensor, array.shape, array.dtype)[...] = array
    return tensor


def _view(tensor: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The memory of a tensor, which lives as long as its context."""
    ctype = ctypes.c_int32 if dtype == np.int32 else ctypes.c_float
    return np.ctypeslib.as_array(ctypes.cast(_call("ggml_get_data", tensor), ctypes.POINTER(ctype)), shape=shape)


def _call(name: str, *arguments: object) -> Any:  # noqa: ANN401 - what a function of C returns
    return _function(name)(*arguments)


@cache
def _function(name: str) -> Any:  # noqa: ANN401 - a function of C
    """A function of ggml that we call."""
    result, parameters = _SIGNATURES[name]
    for library in _libraries():
        function: Any = getattr(library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, parameters
            return function
    raise RuntimeError(f"the ggml in {_folder()} has no function {name}: pip install -U 'libggml-python>=0.20.2'")


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    return tuple(ctypes.CDLL(str(_folder() / name), mode=ctypes.RTLD_GLOBAL) for name in ("libggml-base.so", "libggml-cpu.so"))


def _folder() -> Path:
    """Where the wheel keeps its libraries."""
    spec = find_spec("libggml")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for folder in (Path(root) / "lib64", Path(root) / "lib"):
            if (folder / "libggml-base.so").is_file():
                return folder
    raise RuntimeError("no libggml-base.so in the package libggml: pip install 'libggml-python>=0.20.2'")
