"""Functions that numba compiles once and keeps on disk, wherever the checkout is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from typing import Any

Function = Callable[..., Any]


def run(function: Function, *arguments: object) -> Any:  # noqa: ANN401 - what the function returns
    """`function(*arguments)`, of a function under `njit(cache=True)`.

    numba finds what it has compiled by content, and keeps in it the module's name, which holds a hash of the suite's path: in a
    checkout that was copied with its `__pycache__`, or moved, there is no such module, and the function is compiled anew, for this process.
    """
    try:
        return function(*arguments)
    except ModuleNotFoundError:
        return _uncached(function)(*arguments)


@once
def _uncached(function: Function) -> Function:
    from numba import njit

    compiled: Function = njit(error_model="numpy")(function.py_func)  # type: ignore[attr-defined]
    return compiled
