"""Run the compiler: flags, the precompiled header, a kernel's library, the runtime."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gradcheck.metal.cache import digest, folder
from gradcheck.metal.errors import CompileError, MetalError
from gradcheck.metal.toolchain import Toolchain
from gradcheck.metal.unit import PRELUDE

INCLUDE = Path(__file__).parent / "include"
RUNTIME = Path(__file__).parent / "runtime"

_MATH = {
    "safe": (),
    "relaxed": ("-funsafe-math-optimizations", "-fno-math-errno"),
    "fast": ("-ffast-math",),
}
_COMMON = (
    "-x", "c++", "-std=c++17", "-fPIC", "-nostdlibinc", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-threadsafe-statics", "-fno-strict-aliasing",
    "-fvisibility=hidden", "-fdeclspec", "-fsigned-char", "-Xclang", "-cl-single-precision-constant", "-Xclang", "-ffloat16-excess-precision=none", "-fdiagnostics-color=never", "-fno-caret-diagnostics", "-Wno-everything",
)  # fmt: skip
# Every access calls our own `__tsan_…`, every undefined operation our own `__ubsan_handle_…`: see the runtime.
_CHECKED = (
    "-O1", "-gline-tables-only", "-gdwarf-4", "-gz=none", "-fsanitize=thread", "-mllvm", "-tsan-instrument-atomics=0", "-mllvm", "-tsan-instrument-func-entry-exit=0",
    "-mllvm", "-tsan-compound-read-before-write",
    "-fsanitize=array-bounds,shift,integer-divide-by-zero,float-cast-overflow,signed-integer-overflow,return,alignment", "-fsanitize-recover=all",
    "-ftrivial-auto-var-init=pattern", "-Wuninitialized", "-Wsometimes-uninitialized",
)  # fmt: skip


# With real address spaces some of MLX's header is wrong as well; what is of interest is what the kernel's own text has wrong.
_SPACES = ("-DGCM_LINT", "-Xclang", "-fallow-pch-with-compiler-errors")


@dataclass(frozen=True, slots=True)
class Options:
    """What else the machine code depends on.

    Args:
        checked: calls the checker at every access.
        math_mode: MLX's, see `metal_kernel`.
        contract: clang's contraction of a * b + c.
        loops: it has loops over threads, which are worth vectorising. Other kernels run as fast with -O1, which compiles in half the time.
        defines: macros for the headers, see `unit`.
        spaces: address spaces are real: nothing but errors can be had of it, see `spaces`.
    """

    checked: bool = False
    math_mode: str = "safe"
    contract: str = "on"
    loops: bool = False
    defines: tuple[str, ...] = ()
    spaces: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """As clang takes them."""
        mode = tuple(flag for flag in _CHECKED if not flag.startswith("-W")) if self.checked else ("-O2" if self.loops else "-O1",)
        native = ("-mcpu=native",) if platform.machine() in {"arm64", "aarch64"} else ("-march=native",)
        headers = (*(f"-D{name}" for name in self.defines), *_SPACES * self.spaces)
        return (*_COMMON, *_target(), *native, *mode, f"-ffp-contract={self.contract}", *_MATH[self.math_mode], *headers, *_includes())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that are wanted, behind the flag that turns all off."""
        return tuple(flag for flag in _CHECKED if flag.startswith("-W")) if self.checked else ()


def _target() -> tuple[str, ...]:
    """The ABI of this process; zig's own default is another C library's."""
    return (f"--target={platform.machine()}-unknown-linux-gnu",) if sys.platform == "linux" else ()


@functools.lru_cache(maxsize=1)
def _includes() -> tuple[str, ...]:
    return ("-I", str(INCLUDE), "-I", str(mlx_include()))


def mlx_include() -> Path:
    """The folder of MLX's own headers, found without importing MLX.

    Raises:
        MetalError: there is none.
    """
    spec = find_spec("mlx")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(place) / "include").is_dir():
            return found
    raise MetalError("MLX's headers are not here, which Metal kernels of MLX include: install mlx (`pip install 'mlx[cpu]'` on Linux).")


@functools.lru_cache(maxsize=1)  # to look at each file takes 2 ms, and every new kernel would wait for it
def headers_digest() -> str:
    """Of every header that a kernel may include, ours and MLX's: of where they lie, how long they are and when they were written."""
    return digest([*_files(str(INCLUDE)), *_files(str(mlx_include() / "mlx/backend/metal/kernels"))])


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:  # ten times as fast as pathlib
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                about = entry.stat()
                yield f"{entry.path} {about.st_size} {about.st_mtime_ns}"


def compile_kernel(text: str, options: Options, toolchain: Toolchain, target: Path) -> str:
    """Compile C++ that follows the prelude into a library that is bound to the runtime beside it; what is returned are warnings.

    Raises:
        CompileError: with the compiler's own output.
    """
    precompiled, bound = prelude(options, toolchain), runtime(toolchain)
    with scratch(target.parent) as work:
        made = work / "kernel.o"
        command = [
            *toolchain.compiler,
            *options.flags,
            *options.warnings,
            "-ferror-limit=0",
            "-include-pch",
            str(precompiled),
            "-c",
            "-",
            "-o",
            str(made),
        ]
        said = _run(command, text)
        if toolchain.linker:
            link = [*toolchain.linker, "-shared", *_BESIDE, "-o", str(work / "kernel.so"), str(made), str(bound)]
        else:
            beside = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else (*_through(_BESIDE), str(bound))
            link = [*toolchain.compiler, *_target(), "-shared", "-nostdlib", "-o", str(work / "kernel.so"), str(made), *beside]
        _run(link)
        (work / "kernel.so").replace(target)
    return said


_BESIDE = ("-rpath", "$ORIGIN", "--no-as-needed")  # where a kernel finds its runtime


def _through(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments of a linker, for a compiler that links."""
    return tuple(word for argument in arguments for word in ("-Xlinker", argument))


def check_syntax(text: str, toolchain: Toolchain) -> str:
    """Everything that the compiler says, errors included, about C++ that follows the prelude and in which address spaces are real."""
    options = Options(spaces=True)
    command = [
        *toolchain.compiler,
        *options.flags,
        "-include-pch",
        str(prelude(options, toolchain)),
        "-fsyntax-only",
        "-ferror-limit=0",
        "-",
    ]
    return _start(command, text).stderr


def prelude(options: Options, toolchain: Toolchain) -> Path:
    """The precompiled header for these options, compiled if it is not in the cache.

    Raises:
        CompileError: our headers do not compile, or MLX's do not with them.
    """
    flags = options.flags
    path = folder() / f"{digest(['prelude', PRELUDE, *flags, headers_digest(), toolchain.identity])}.pch"
    if not path.is_file():
        with scratch(path.parent) as work:
            made = work / "prelude.pch"
            _run(
                [
                    *toolchain.compiler,
                    *flags,
                    "-x",
                    "c++-header",
                    "-Xclang",
                    "-fno-pch-timestamp",
                    "-fpch-instantiate-templates",
                    "-",
                    "-o",
                    str(made),
                ],
                PRELUDE,
            )
            made.replace(path)
    return path


# Zig's driver would link a C++ library that it first has to build, for minutes. This is all that the runtime needs of one.
_NEEDED = """\
#include <cstdlib>
void* operator new(size_t bytes) {
  void* made = malloc(bytes ? bytes : 1);
  if (!made) abort();
  return made;
}
void operator delete(void* made) noexcept { free(made); }
void operator delete(void* made, size_t) noexcept { free(made); }
namespace std { inline namespace __1 { [[noreturn]] void __libcpp_verbose_abort(const char*, ...) noexcept { abort(); } } }
"""
_EXPORTS = "{ global: gcm_*; _ZN3gcm*; __tsan_*; __ubsan_*; local: *; };\n"


_RUNTIME_FLAGS = (
    "-std=c++17",
    "-O2",
    "-g0",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fdeclspec",
    "-fsigned-char",
    "-I",
    str(INCLUDE),
)


@functools.lru_cache(maxsize=8)
def runtime_digest(toolchain: Toolchain) -> str:
    """Of the runtime's sources, where they lie, how long they are and when they were written, and what compiles them."""
    return digest(["runtime", *_RUNTIME_FLAGS, *_files(str(RUNTIME)), *_files(str(INCLUDE)), toolchain.identity])


def runtime(toolchain: Toolchain) -> Path:
    """The runtime's library, compiled if it is not in the cache: once on a machine, for some seconds.

    Raises:
        CompileError: it does not compile.
    """
    sources, flags = sorted(RUNTIME.glob("*.cpp")), list(_RUNTIME_FLAGS)
    zig = toolchain.kind == "zig" and bool(toolchain.linker)
    if zig:
        flags += ["-fno-sanitize=undefined", f"--target={platform.machine()}-linux-gnu"]
    path = folder() / f"{runtime_digest(toolchain)}.so"
    if not path.is_file():
        with scratch(path.parent) as work, ThreadPoolExecutor(cores()) as pool:
            if zig:
                (work / "needed.cpp").write_text(_NEEDED, encoding="ascii")
                (work / "exports").write_text(_EXPORTS, encoding="ascii")
                sources.append(work / "needed.cpp")
            objects = [str(work / f"{source.stem}.o") for source in sources]
            commands = [[*toolchain.driver, *flags, "-c", str(source), "-o", made] for source, made in zip(sources, objects, strict=True)]
            for _ in pool.map(_run, commands):
                pass
            if zig:
                exports = ("--version-script", str(work / "exports"))
                _run([*toolchain.linker, "-shared", "-soname", path.name, *exports, "-o", str(work / "runtime.so"), *objects])
            else:
                named = _through(("-soname", path.name)) if sys.platform == "linux" else ()
                _run([*toolchain.driver, "-shared", *named, "-o", str(work / "runtime.so"), *objects, "-lpthread", "-lm"])
            (work / "runtime.so").replace(path)
    return path


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def scratch(within: Path) -> Iterator[Path]:
    """A folder for half-made files, on the file system of the whole ones."""
    path = Path(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=within))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(command: Sequence[str], text: str = "") -> str:
    done = _start(command, text)
    if done.returncode != 0:
        raise CompileError(done.stderr or f"{command[0]} ended with status {done.returncode} and said nothing")
    return done.stderr


def _start(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    # The compiler's own settings (CPATH, CCC_OVERRIDE_OPTIONS, …) are not in the key of the cache, so they may not have a say.
    environment = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(("LC_", "ZIG_", "XDG_"))}
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env={**environment, "LC_ALL": "C"})


_KEPT = {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SDKROOT", "DEVELOPER_DIR", "USER", "LOCALAPPDATA"}
