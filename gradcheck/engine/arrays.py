"""Which array library a kernel wants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gradcheck import F64, UsageError

LAYOUTS = {
    "transposed": "the axes in reverse order in memory",
    "reversed": "every axis from its end, by negative strides",
    "sliced": "every other element of a longer array",
    "broadcast": "the first axis by a stride of zero; for values that are the same along it",
}
"""Ways in which an array can lie in memory other than row by row. Its values are the same."""

_HOMES = {"numpy": "gradcheck.engine.numpy_arrays", "mlx": "gradcheck.engine.mlx_arrays"}


class Arrays(Protocol):
    """What `call` needs of an array library; the modules `numpy_arrays` and `mlx_arrays` are it."""

    NAME: str
    DTYPES: Mapping[str, str]

    def make(self, value: npt.NDArray[np.generic], dtype: str, layout: str = "") -> object: ...  # noqa: D102 - see the modules
    def is_array(self, thing: object) -> bool: ...  # noqa: D102
    def dtype_of(self, array: object) -> str: ...  # noqa: D102
    def shape_of(self, array: object) -> tuple[int, ...]: ...  # noqa: D102
    def numbers(self, array: object) -> F64: ...  # noqa: D102
    def zeros_like(self, array: object) -> object: ...  # noqa: D102
    def evaluate(self, *arrays: object) -> None: ...  # noqa: D102


def is_object(kernel: object) -> bool:
    """Whether the kernel is an object with `forward` and `vjp` (and not an MLX custom function, which has `vjp` alone)."""
    return callable(getattr(kernel, "forward", None)) and callable(getattr(kernel, "vjp", None))


def arrays_of(kernel: object) -> Arrays:
    """The array library whose arrays the kernel takes.

    1. Its attribute `arrays`, `"numpy"` or `"mlx"`, if it has one.
    2. What MLX made (`mx.compile`, `mx.custom_function`, `mx.fast.*`) takes MLX arrays.
    3. Otherwise the module in which its `forward` (or the callable itself) is written decides: MLX if the module holds `mlx.core`,
       as a module or a name from it. If not: NumPy for an object with `forward` and `vjp`; for a bare callable NumPy only if its
       module holds NumPy, since only MLX can differentiate a bare callable.

    Raises:
        UsageError: `arrays` names another library.
    """
    declared = getattr(kernel, "arrays", None)
    if isinstance(declared, str):
        if declared not in _HOMES:
            raise UsageError(f"the kernel {kernel!r} says arrays = {declared!r}; known: {', '.join(_HOMES)}")
        name = declared
    else:
        name = _guess(kernel)
    return import_module(_HOMES[name])


def _guess(kernel: object) -> str:
    function = getattr(kernel, "forward", kernel)
    if _from(function, "mlx"):
        return "mlx"
    held = list(_globals(function).values())
    if any(_from(value, "mlx") for value in held):
        return "mlx"
    return "numpy" if is_object(kernel) or any(_from(value, "numpy") for value in held) else "mlx"


def _from(value: object, library: str) -> bool:
    """Whether `value` is a module of the library, an object made by it, or a name from it."""
    if isinstance(value, ModuleType):
        home = value.__name__
    elif isinstance(value, Callable) and type(value).__module__ in {"builtins", "nanobind"}:  # type: ignore[arg-type]
        home = str(getattr(value, "__module__", ""))
    else:
        home = type(value).__module__
    return home == library or home.startswith(f"{library}.")


def _globals(function: object) -> Mapping[str, object]:
    """Globals of the module in which a function, method, partial or callable object is written."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__globals__"):  # an object: its class says how it is called
        function = inspect.getattr_static(type(function), "__call__", None)
    found = getattr(function, "__globals__", {})
    return found if isinstance(found, Mapping) else {}
