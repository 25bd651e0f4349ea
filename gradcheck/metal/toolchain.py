"""The compiler that turns a kernel into machine code: clang 16 or newer, or the one inside the `ziglang` wheel.

Zig's own driver is used for the runtime only: for a kernel it would link a sanitizer runtime that is not wanted, at five times the cost.
`zig clang` and `zig ld.lld` are the bare tools.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gradcheck._files import write_whole
from gradcheck.metal.cache import digest, folder
from gradcheck.metal.errors import NoCompilerError

OLDEST = 16
"""The first clang with `-ffloat16-excess-precision`, without which half arithmetic is done in float."""

_NEWEST = 30
_LIMIT = 60.0  # seconds that a compiler may take to say its version


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler that works.

    Args:
        kind: `clang` or `zig`.
        compiler: command that compiles C++ to an object file.
        linker: command that links a kernel, as `ld.lld` takes arguments; or nothing, and then the compiler links.
        driver: command that compiles and links the runtime, with the C library.
        version: what the compiler says of itself.
        processor: name and features of this CPU, for which it compiles.
    """

    kind: str
    compiler: tuple[str, ...]
    linker: tuple[str, ...]
    driver: tuple[str, ...]
    version: str
    processor: str

    @property
    def identity(self) -> str:
        """All of it that the machine code depends on."""
        return f"{self.kind} {self.version} {self.processor}"

    def __str__(self) -> str:
        return f"{self.version}, {shlex.join(self.compiler)}"


def find() -> Toolchain:
    """The compiler of this machine.

    `$GRADCHECK_METAL_CXX` names one; else the newest clang on PATH; else the wheel.

    Raises:
        NoCompilerError: there is none, or the one that was named is not clang or too old.
    """
    return _find(os.environ.get("GRADCHECK_METAL_CXX", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(named: str, path: str) -> Toolchain:
    tried = []
    for kind, command in [(_kind(named), shlex.split(named))] if named else _candidates(path):
        version = _version(command)
        number = _number(version)
        if number is not None and number >= OLDEST:
            return _toolchain(kind, tuple(command), version)
        tried.append(f"{shlex.join(command)}: {version.splitlines()[0] if version else 'does not run'}")
    raise NoCompilerError(missing(tried))


def missing(tried: list[str]) -> str:
    """What to say where no compiler was found."""
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else ["uv", "pip"]
    system = "xcode-select --install" if sys.platform == "darwin" else "apt-get install clang lld"
    found = f" Tried and not fit: {'; '.join(tried)}." if tried else ""
    return (
        f"Metal kernels need a compiler on this machine: clang {OLDEST} or newer on PATH (`{system}`), "
        f"or the ziglang wheel (`{shlex.join([*pip, 'install', 'ziglang>=0.14'])}`, which the extra gradcheck[cpu] has).{found}"
    )


def _candidates(path: str) -> Iterator[tuple[str, list[str]]]:
    names = [*(f"clang++-{number}" for number in range(_NEWEST, OLDEST - 1, -1)), "clang++"]
    plain = shutil.which("clang++", path=path)
    versions = [found for name in names[:-1] if (found := shutil.which(name, path=path))]
    yield from (("clang", [found]) for found in [*([plain] if plain else []), *versions])
    if zig := _zig():
        yield "zig", [zig, "clang"]


def _zig() -> str | None:
    spec = find_spec("ziglang")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(place) / "zig").is_file():
            return str(found)
    return None


def _kind(command: str) -> str:
    return "zig" if command.endswith(" clang") else "clang"


def _version(command: list[str]) -> str:
    """What a compiler says of itself. Remembered, since to ask costs 50 ms in every process, for as long as its file is the same."""
    try:
        about = Path(command[0]).resolve().stat()
    except OSError:
        return ""
    memo = folder() / f"{digest(['version', *command, str(about.st_size), str(about.st_mtime_ns)])}.txt"
    with suppress(OSError):
        return memo.read_text("utf-8")
    said = _ask(command)
    with suppress(OSError):
        write_whole(memo, said.encode())
    return said


def _ask(command: list[str]) -> str:
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout if said.returncode == 0 else ""


def _number(version: str) -> int | None:
    """The release of LLVM that a clang is of; Apple's 15 is LLVM's 16."""
    match = re.search(r"(Apple )?clang version (\d+)", version)
    return None if match is None else int(match[2]) + (1 if match[1] else 0)


def _toolchain(kind: str, command: tuple[str, ...], version: str) -> Toolchain:
    first = version.splitlines()[0]
    zig = kind == "zig"
    linker = (command[0], "ld.lld") if zig else _lld(command[0], _number(version) or 0)
    return Toolchain(kind, command, linker if sys.platform == "linux" else (), (command[0], "c++") if zig else command, first, _processor())


def _lld(clang: str, number: int) -> tuple[str, ...]:
    """The linker that belongs to a clang, or any lld: it takes 15 ms where GNU ld takes 60."""
    beside = Path(clang).resolve().parent / "ld.lld"
    found = str(beside) if beside.is_file() else shutil.which(f"ld.lld-{number}") or shutil.which("ld.lld")
    return (found,) if found else ()


def _processor() -> str:
    """Name and features of the CPU: code for one is not run on another that lacks a feature."""
    if sys.platform == "linux":
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        lines = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text.split("\n\n")[0].splitlines()}
        return " ".join([platform.machine(), lines.get("model name", ""), lines.get("flags", lines.get("Features", ""))])
    return f"{platform.machine()} {platform.processor()}"
