"""Memory with pages behind and before it that nobody may touch: a plain run that leaves a buffer dies there, and harms nothing else."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes: what the widest vector load of a kernel may take for granted. So a buffer ends at most 63 bytes before the page that guards it."""

_PAGE = mmap.PAGESIZE
_GUARD = 1 << 20  # bytes on either side; they cost addresses only
_READ_WRITE = 1 | 2
_PRIVATE_ANONYMOUS = 0x02 | (0x20 if sys.platform == "linux" else 0x1000)
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextmanager
def guarded(sizes: list[int]) -> Iterator[list[npt.NDArray[np.uint8]]]:
    """Arrays of bytes of these sizes, each between guard pages, until the block is over: keep no view of them.

    Raises:
        MemoryError: there is not enough.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_one(size)) for size in sizes]


@contextmanager
def _one(size: int) -> Iterator[npt.NDArray[np.uint8]]:
    room = -(-size // _PAGE) * _PAGE
    whole = room + 2 * _GUARD
    start = _libc.mmap(None, whole, 0, _PRIVATE_ANONYMOUS, -1, 0)
    if start == _FAILED or (room and _libc.mprotect(start + _GUARD, room, _READ_WRITE)):
        raise MemoryError(f"no {size} bytes for a buffer of a Metal kernel")
    try:
        data = start + _GUARD + (room - size) // ALIGNMENT * ALIGNMENT
        yield np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(data))
    finally:
        _libc.munmap(start, whole)
