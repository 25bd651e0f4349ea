"""ggml's own forward of SSM_SCAN, called by ctypes in the libraries of the wheel `libggml-python`. It has no backward.

ggml writes shapes with the fastest axis first, so that its s[N,P,H,B], x[P,H,T,B], dt[H,T,B], A[1 or N,H] and B,C[N,G,T,B] are the
row-major arrays of this op as they are. Its result is one flat array: y, then the final states.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
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
    "ggml_graph_compute_with_ctx": (ctypes.c_int, [_POINTER, _POINTER, ctypes.c_int]),
}


class GgmlScan:
    """The kernel: a forward, and no `vjp`. NumPy arrays in float32."""

    arrays = "numpy"

    def forward(self, s: F32, x: F32, dt: F32, A: F32, B: F32, C: F32) -> tuple[F32, F32]:
        """y and the final state of the selective scan.

        Args:
            s: initial state, [B, H, P, N].
            x: [B, T, H, P].
            dt: step size before the softplus, [B, T, H].
            A: decay rate, [H] (Mamba-2) or [H, N] (Mamba-1).
            B: input projection, [B, T, G, N].
            C: output projection, [B, T, G, N].

        Raises:
            RuntimeError: the wheel's libraries cannot be used, or ggml reports that it failed. Shapes that ggml's own assertions
                refuse end the process.
        """
        rate = A if A.ndim == 2 else A[:, None]
        rows = np.arange(len(s), dtype=np.int32)  # ids: sequence b begins at state b
        inputs = (s, x, dt, rate, B, C, rows)
        with _context(sum(array.nbytes for array in inputs) + 2 * (x.nbytes + s.nbytes) + _SLACK) as (functions, context):
            tensors = [_tensor(functions, context, array) for array in inputs]
            packed = functions["ggml_ssm_scan"](context, *tensors, _SNAPSHOTS)
            graph = functions["ggml_new_graph"](context)
            functions["ggml_build_forward_expand"](graph, packed)
            status = functions["ggml_graph_compute_with_ctx"](context, graph, _THREADS)
            if status != 0:
                raise RuntimeError(f"ggml_graph_compute_with_ctx returned the status {status}, need 0")
            size = functions["ggml_nelements"](packed)
            if size != x.size + s.size:
                raise RuntimeError(f"ggml_ssm_scan returned {size} numbers, need {x.size} of y and {s.size} of the final state")
            flat = _view(functions, packed, (size,), np.dtype(np.float32)).copy()
        return flat[: x.size].reshape(x.shape), flat[x.size :].reshape(s.shape)


ssm_scan = GgmlScan()


@contextmanager
def _context(size: int) -> Iterator[tuple[dict[str, Any], int]]:
    """ggml's functions, and a context of `size` bytes in which it keeps tensors, graph and work buffer."""
    functions = _functions()
    context = functions["ggml_init"](_InitParams(size, None, False))
    if not context:
        raise RuntimeError(f"ggml_init could not take {size} bytes")
    try:
        yield functions, context
    finally:
        functions["ggml_free"](context)


def _tensor(functions: dict[str, Any], context: int, array: npt.NDArray[Any]) -> int:
    """A tensor that holds a copy of `array`."""
    shape = [*array.shape[::-1], *[1] * (4 - array.ndim)]
    tensor: int = functions["ggml_new_tensor_4d"](context, _TYPES[array.dtype], *shape)
    _view(functions, tensor, array.shape, array.dtype)[...] = array
    return tensor


def _view(functions: dict[str, Any], tensor: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The memory of a tensor, which lives as long as its context."""
    ctype = ctypes.c_int32 if dtype == np.int32 else ctypes.c_float
    return np.ctypeslib.as_array(ctypes.cast(functions["ggml_get_data"](tensor), ctypes.POINTER(ctype)), shape=shape)


@cache
def _functions() -> dict[str, Any]:
    """The functions of ggml that we call, by name."""
    folder = _folder()
    libraries = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in ("libggml-base.so", "libggml-cpu.so")]
    return {name: _function(libraries, folder, name, *signature) for name, signature in _SIGNATURES.items()}


def _function(libraries: list[ctypes.CDLL], folder: Path, name: str, result: object, arguments: list[object]) -> object:
    for library in libraries:
        function: Any = getattr(library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
            return function
    raise RuntimeError(f"the ggml in {folder} has no function {name}: pip install -U 'libggml-python>=0.20.2'")


def _folder() -> Path:
    """Where the wheel keeps its libraries."""
    spec = find_spec("libggml")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for folder in (Path(root) / "lib64", Path(root) / "lib"):
            if (folder / "libggml-base.so").is_file():
                return folder
    raise RuntimeError("no libggml-base.so in the package libggml: pip install 'libggml-python>=0.20.2'")
