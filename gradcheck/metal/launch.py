"""One launch of a compiled kernel in this process, on numpy arrays. No MLX here: the worker that does it starts the faster."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gradcheck.metal import abi
from gradcheck.metal.cache import require_own
from gradcheck.metal.errors import MetalError
from gradcheck.metal.memory import guarded

# A kernel names its runtime, and looks there first: another one in this process, of headers since changed, is not in its way.
_MODE = ctypes.RTLD_LOCAL | os.RTLD_DEEPBIND if sys.platform == "linux" else ctypes.RTLD_GLOBAL

Bytes = npt.NDArray[np.uint8]
Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One argument of a kernel.

    Args:
        name: as the kernel knows it.
        kind: `abi.INPUT`, `abi.OUTPUT` or `abi.META`.
        data: what it holds before the launch: of an output, its poison or initial value.
        element: bytes of one element.
        initialised: whether a kernel may read it before it wrote it.
    """

    name: str
    kind: int
    data: npt.NDArray[np.generic]
    element: int
    initialised: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything about one launch; it can be pickled.

    Args:
        runtime: the runtime's library.
        library: the kernel's, and the symbols in it (`loop` may be empty).
        threads: threads of the operating system.
        seconds: after which it is given up where it next waits for other threads or (checked) touches memory, as a finding; 0 is never.
    """

    runtime: Path
    library: Path
    entry: str
    loop: str
    buffers: tuple[Buffer, ...]
    grid: Grid
    threadgroup: Grid
    checked: bool
    schedule: str
    seed: int
    threads: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Raw:
    """One report as the runtime made it; addresses are counted from where the kernel's library begins, 0 is none."""

    kind: int
    buffer: int
    pc: int
    pc2: int
    offset: int
    size: int
    write: bool
    group: int
    thread: int
    group2: int
    thread2: int
    write2: bool
    line: int
    column: int
    count: int
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a launch left: bytes of each output in order, reports, whether it ran to its end, and how much it did."""

    outputs: tuple[Bytes, ...]
    reports: tuple[Raw, ...]
    finished: bool
    switches: int
    collectives: int


def launch(what: Launch) -> Outcome:
    """Run it, here and now.

    Raises:
        MetalError: a library does not load, or the runtime is of another version.
        MemoryError: the buffers do not fit.
    """
    run, entry, loop, low, high = _loaded(str(what.runtime), str(what.library), what.entry, what.loop)
    with guarded([buffer.data.nbytes for buffer in what.buffers]) as spaces:
        table = (abi.Buffer * max(len(spaces), 1))()
        for row, buffer, space in zip(table, what.buffers, spaces, strict=False):
            if space.nbytes:
                np.copyto(space.view(buffer.data.dtype).reshape(buffer.data.shape), buffer.data)
            row.data, row.bytes, row.kind = space.ctypes.data, space.nbytes, buffer.kind
            row.initialised, row.element, row.name = buffer.initialised, buffer.element, buffer.name.encode()
        call = abi.Call(
            entry=entry,
            loop=None if what.checked else loop,
            buffers=table,
            n_buffers=len(spaces),
            checked=what.checked,
            grid=what.grid,
            threadgroup=what.threadgroup,
            schedule=abi.SCHEDULES[what.schedule],
            threads=1 if what.checked else what.threads,
            seed=what.seed,
            budget=round(what.seconds * 1e9),
            library_low=low,
            library_high=high,
        )
        result = abi.Result()
        run(ctypes.byref(call), ctypes.byref(result))
        outputs = tuple(space.copy() for space, buffer in zip(spaces, what.buffers, strict=True) if buffer.kind == abi.OUTPUT)
        del spaces
    reports = tuple(_raw(result.reports[i], low) for i in range(result.n_reports))
    return Outcome(outputs, reports, result.status == 0, result.switches, result.collectives)


@functools.lru_cache(maxsize=1024)
def _loaded(runtime: str, path: str, entry: str, loop: str) -> tuple[ctypes._CFuncPtr, int, int | None, int, int]:  # type: ignore[name-defined] # ctypes has no public name for it
    """The runtime's `gcm_launch`, addresses of a kernel's symbols, and where its library lies."""
    bound = _load(runtime)
    library = _load(path)
    if sys.platform == "linux":
        bound = library  # what it calls is found through it: of two copies of a runtime in one process, the one it is bound to
    version = ctypes.c_int.in_dll(bound, "gcm_abi").value
    if version != abi.ABI:
        raise MetalError(
            f"the runtime {runtime} speaks version {version} of the interface, this gradcheck version {abi.ABI}: reinstall gradcheck"
        )
    function = bound.gcm_launch
    function.argtypes = [ctypes.POINTER(abi.Call), ctypes.POINTER(abi.Result)]
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (entry, loop) if name]
    assert found[0] is not None
    return function, found[0], found[1] if loop else None, *_range(path)


def _load(path: str) -> ctypes.CDLL:
    try:
        require_own(Path(path))
        return ctypes.CDLL(path, mode=_MODE)
    except OSError as error:
        raise MetalError(f"a compiled kernel does not load: {error}. Delete {Path(path).parent} and run again.") from error


def _range(path: str) -> tuple[int, int]:
    """Where a loaded library lies: lowest and highest address; 0, 0 where that cannot be had."""
    if sys.platform != "linux":
        return 0, 0
    real = os.path.realpath(path)
    lines = Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines()
    spans = [line.split(maxsplit=1)[0].split("-") for line in lines if line.endswith(real)]
    return int(spans[0][0], 16), int(spans[-1][1], 16)


def _raw(report: abi.Report, low: int) -> Raw:
    return Raw(
        report.kind,
        report.buffer,
        report.pc and report.pc - low,
        report.pc2 and report.pc2 - low,
        report.offset,
        report.size,
        bool(report.write),
        report.group,
        report.thread,
        report.group2,
        report.thread2,
        bool(report.write2),
        report.line,
        report.column,
        report.count,
        report.name.decode(errors="replace"),
        report.detail.decode(errors="replace"),
    )
