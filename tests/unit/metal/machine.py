"""Compiles the runtime and hand-written kernels with clang and calls gcm_launch as launch.py does. The tests' own copy of the contract in abi.h."""

from __future__ import annotations

import ctypes as c
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

import gradcheck
from gradcheck.metal import compile as compile_
from gradcheck.metal.errors import NoCompilerError
from gradcheck.metal.toolchain import Toolchain, find

METAL = Path(str(gradcheck.__file__)).parent / "metal"  # of the checkout, or what the wheel carries
COMPILER = next(
    (path for name in ("clang++-19", "clang++-18", "clang++", "clang++-17", "clang++-16") if (path := shutil.which(name))), None
)


def _zig() -> Toolchain | None:
    """Where there is no clang, as in CI: the compiler of the wheel."""
    try:
        found = find() if COMPILER is None and sys.platform == "linux" else None
    except NoCompilerError:
        return None
    return found if found is not None and found.kind == "zig" else None


ZIG = _zig()
KERNEL_FLAGS = [
    "-std=c++17",
    "-fPIC",
    "-fdeclspec",
    "-fsigned-char",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-ffp-contract=on",
    "-fno-threadsafe-statics",
    "-Xclang",
    "-cl-single-precision-constant",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Wno-reserved-user-defined-literal",
    "-w",
]
CHECKED_FLAGS = [
    "-O1",
    "-gline-tables-only",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-atomics=0",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-compound-read-before-write",
    "-fsanitize=array-bounds,shift,integer-divide-by-zero,float-cast-overflow,signed-integer-overflow,return,alignment",
    "-fsanitize-recover=all",
    "-ftrivial-auto-var-init=pattern",
]
INPUT, OUTPUT, META = 0, 1, 2
IN_ORDER, LOCK_STEP, REVERSE, RANDOM = SCHEDULES = (0, 1, 2, 3)


class Kind(IntEnum):
    OUT_OF_BOUNDS = 1
    RACE = 2
    RACE_SAME_VALUE = 3
    UNINITIALISED_READ = 4
    WRITE_TO_INPUT = 5
    BARRIER_DIVERGENCE = 6
    SIMD_DIVERGENCE = 7
    FAULT = 8
    UNDEFINED = 9
    DEADLOCK = 10
    THREADGROUP_MEMORY = 11
    UNWRITTEN_OUTPUT = 12
    MISALIGNED = 13
    TIMEOUT = 14
    WEAK_BARRIER = 15
    STACK_OVERFLOW = 16


class Buffer(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("bytes", c.c_uint64),
        ("kind", c.c_uint),
        ("initialised", c.c_uint),
        ("element", c.c_uint64),
        ("name", c.c_char_p),
    ]


class Report(c.Structure):
    _fields_ = [
        *[(name, c.c_uint) for name in ("kind", "buffer")],
        *[(name, c.c_uint64) for name in ("pc", "pc2")],
        ("offset", c.c_int64),
        *[(name, c.c_uint) for name in ("size", "write", "group", "thread", "group2", "thread2", "write2", "line", "column", "count")],
        ("name", c.c_char * 64),
        ("detail", c.c_char * 192),
    ]

    def __repr__(self) -> str:
        return f"{Kind(self.kind).name} {self.name.decode()}{self.offset:+} thread {self.thread} / {self.thread2}, line {self.line}: {self.detail.decode()} (×{self.count})"


class Call(c.Structure):
    _fields_ = [
        *[(name, c.c_void_p) for name in ("entry", "loop")],
        ("buffers", c.POINTER(Buffer)),
        *[(name, c.c_uint) for name in ("n_buffers", "checked")],
        *[(name, c.c_uint * 3) for name in ("grid", "threadgroup")],
        *[(name, c.c_uint) for name in ("schedule", "threads")],
        *[(name, c.c_uint64) for name in ("seed", "budget")],
        *[(name, c.c_void_p) for name in ("library_low", "library_high")],
    ]


class Result(c.Structure):
    _fields_ = [
        *[(name, c.c_uint) for name in ("n_reports", "status")],
        *[(name, c.c_uint64) for name in ("switches", "collectives")],
        ("reports", Report * 64),
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """What a launch gave."""

    code: int
    result: Result

    @property
    def reports(self) -> list[Report]:
        return list(self.result.reports[: self.result.n_reports])

    @property
    def kinds(self) -> set[Kind]:
        return {Kind(report.kind) for report in self.reports}

    def only(self, kind: Kind) -> list[Report]:
        return [report for report in self.reports if report.kind == kind]


class Machine:
    """A built runtime, with one library of kernels in plain and one in checked mode."""

    def __init__(self, source: Path) -> None:
        folder = _built(source)
        deep = c.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0) | os.RTLD_NOW
        c.CDLL(str(folder / "runtime.so"))  # what zig makes is found by its name, once it is loaded
        self.libraries = {checked: c.CDLL(str(folder / name), mode=deep) for checked, name in ((False, "plain.so"), (True, "checked.so"))}
        # The one that they are bound to: where another of that name was loaded before, as by a kernel in plain mode, it is that one.
        self.runtime = self.libraries[False]
        self.range = _mapped(str(folder / "checked.so"))

    def launch(
        self,
        kernel: str,
        arrays: Sequence[np.ndarray[Any, Any]],
        *,
        grid: Sequence[int] = (256, 1, 1),
        threadgroup: Sequence[int] = (128, 1, 1),
        kinds: Sequence[int] = (INPUT, OUTPUT),
        checked: bool = False,
        schedule: int = IN_ORDER,
        seed: int = 1,
        threads: int = 1,
        budget: int = 0,
        initialised: bool = False,
        loop: str | None = None,
    ) -> Run:
        library = self.libraries[checked]
        names = ("input", "output", "third")
        buffers = (Buffer * len(arrays))(
            *(
                Buffer(array.ctypes.data, array.nbytes, kind, int(initialised), array.itemsize, name.encode())
                for array, kind, name in zip(arrays, kinds, names[: len(arrays)], strict=True)
            )
        )
        call = Call(
            c.cast(getattr(library, kernel), c.c_void_p),
            c.cast(getattr(library, loop), c.c_void_p) if loop else None,
            buffers,
            len(arrays),
            int(checked),
            (c.c_uint * 3)(*grid),
            (c.c_uint * 3)(*threadgroup),
            schedule,
            threads,
            seed,
            budget,
            *self.range,
        )
        result = Result()
        return Run(self.runtime.gcm_launch(c.byref(call), c.byref(result)), result)


def guarded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that ends where a page ends that must not be touched, and begins with one if it fills its pages."""
    libc = c.CDLL(None)
    libc.mmap.restype = c.c_void_p
    libc.mmap.argtypes = [c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_int, c.c_long]
    libc.mprotect.argtypes = [c.c_void_p, c.c_size_t, c.c_int]
    page = 4096
    pages = -(-array.nbytes // page) * page
    memory = libc.mmap(None, pages + 2 * page, 3, 0x22, -1, 0)
    libc.mprotect(memory, page, 0)
    libc.mprotect(memory + page + pages, page, 0)
    start = memory + page + pages - array.nbytes
    copy: np.ndarray[Any, Any] = np.frombuffer((c.c_uint8 * array.nbytes).from_address(start), array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _built(source: Path) -> Path:
    """The folder of the three libraries, which every test process of this tree shares: compiling them takes seconds."""
    parts = [
        path for root in (METAL / "include", METAL / "runtime", Path(__file__).parent) for path in sorted(root.rglob("*")) if path.is_file()
    ]
    text = (
        b"".join(path.read_bytes() for path in parts if path.suffix != ".pyc")
        + " ".join([*KERNEL_FLAGS, *CHECKED_FLAGS, str(COMPILER or ZIG)]).encode()
    )
    folder = Path(tempfile.gettempdir()) / f"gradcheck-machine-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    work = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    include = ["-I", str(METAL / "include")]
    runtime = sorted(str(path) for path in (METAL / "runtime").glob("*.cpp"))
    march = ["-march=x86-64-v3"] if platform.machine() == "x86_64" else []
    for command in _with_clang(source, include, runtime, march) if ZIG is None else _with_zig(source, include, march, work):
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    try:
        work.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(work)
    return folder


def _with_clang(source: Path, include: list[str], runtime: list[str], march: list[str]) -> list[list[str]]:
    """What compiles the runtime, with every warning an error, and the two libraries of kernels beside it."""
    beside = ["runtime.so", "-Wl,-rpath,$ORIGIN"]
    commands = [
        [
            "-O2",
            "-std=c++17",
            "-fvisibility=hidden",
            "-fdeclspec",
            "-fsigned-char",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            *include,
            *runtime,
            "-o",
            "runtime.so",
            "-lpthread",
        ],
        ["-O2", *march, *KERNEL_FLAGS, "-shared", *include, str(source), *beside, "-o", "plain.so"],
        [*march, *KERNEL_FLAGS, *CHECKED_FLAGS, *include, "-c", str(source), "-o", "checked.o"],
        ["-shared", "checked.o", *beside, "-o", "checked.so"],  # linked apart, so that no sanitizer's runtime comes with it
    ]
    return [[str(COMPILER), *command] for command in commands]


def _with_zig(source: Path, include: list[str], march: list[str], work: Path) -> list[list[str]]:
    """As `_with_clang`, of the runtime that zig makes for users: its driver needs more to make a library of it than a line of flags."""
    assert ZIG is not None
    shutil.copy(compile_.runtime(ZIG), work / "runtime.so")
    link = [*ZIG.linker, "-shared", "-rpath", "$ORIGIN", "--no-as-needed"]
    commands = []
    for name, flags in {"plain": ["-O2", *KERNEL_FLAGS], "checked": [*KERNEL_FLAGS, *CHECKED_FLAGS]}.items():
        commands += [
            [*ZIG.compiler, *march, *flags, *include, "-c", str(source), "-o", f"{name}.o"],
            [*link, f"{name}.o", "runtime.so", "-o", f"{name}.so"],
        ]
    return commands


def _mapped(library: str) -> tuple[int, int]:
    spans = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(library)]
    return int(spans[0][0], 16), int(spans[-1][1], 16)
