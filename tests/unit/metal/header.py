"""Compiles text against our metal_stdlib headers, with the flags that kernels get, and loads it; or tells why the compiler rejects it."""

from __future__ import annotations

import ctypes as c
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradcheck.metal.compile import INCLUDE, Options
from gradcheck.metal.toolchain import find

# No libc: what a runtime would give the few functions that wait for other threads.
STUB = '#include "gcm/array.h"\n#include "gcm/integer.h"\n#include "gcm/limits.h"\n#include "gcm/math.h"\n#include "gcm/matrix.h"\n#include "gcm/packed.h"\nusing namespace metal;\n'


def build(text: str, folder: Path, defects: Sequence[tuple[str, str, str]] = ()) -> c.CDLL:
    """A library of the text; with `defects`, each a header's name, a text in it and another in its place, of a copy of our headers."""
    include = INCLUDE
    if defects:
        include = folder / "include"
        shutil.copytree(INCLUDE, include)
        for name, before, after in defects:
            path = include / "gcm" / name
            whole = path.read_text("utf-8")
            assert whole.count(before) == 1, f"{before!r} is {whole.count(before)} times in {name}"
            path.write_text(whole.replace(before, after), "utf-8")
    toolchain = find()
    flags = [str(include) if flag == str(INCLUDE) else flag for flag in Options().flags]
    made, library = folder / "text.o", folder / "text.so"
    said = _run([*toolchain.compiler, *flags, "-c", "-", "-o", str(made)], STUB + text)
    assert not said, said
    link = [*toolchain.linker, "-shared"] if toolchain.linker else [*toolchain.compiler, "-shared", "-nostdlib"]
    assert not _run([*link, "-o", str(library), str(made)], "")
    return c.CDLL(str(library))


def complaints(text: str) -> str:
    """What the compiler has against a text that may include <metal_stdlib> and MLX's headers; nothing if it takes it."""
    return _run([*find().compiler, *Options().flags, "-fsyntax-only", "-ferror-limit=0", "-"], text)


def _run(command: Sequence[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if "error" in line or "note" in line) or (
        done.stderr if done.returncode else ""
    )


def call(library: c.CDLL, name: str, *arrays: NDArray[np.generic]) -> None:
    """`void name(const T*…, R*, int)` of arrays of one length, the last of which is written."""
    getattr(library, name)(*(array.ctypes.data_as(c.c_void_p) for array in arrays), c.c_int(arrays[0].size))


def to_bfloat(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of float32 rounded to nearest even, without any code of ours: by the distance to both neighbours in float64."""
    low = x.view(np.uint32) & np.uint32(0xFFFF0000)
    high = (low.astype(np.uint64) + 0x10000).astype(np.uint32)
    with np.errstate(invalid="ignore", over="ignore"):
        below, above = (bits.view(np.float32).astype(np.float64) for bits in (low, high))
        above = np.where(np.isinf(above), np.copysign(2.0**128, above), above)
        near, far = np.abs(x.astype(np.float64) - below), np.abs(above - x.astype(np.float64))
    even = (low >> 16) % 2 == 0
    up = (far < near) | ((far == near) & ~even)
    bits = np.where(up & np.isfinite(x), high, low) >> np.uint32(16)
    return bits.astype(np.uint16)


def from_bfloat(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat's bits as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


EVERY_16_BITS: NDArray[np.uint16] = np.arange(1 << 16, dtype=np.uint16)
