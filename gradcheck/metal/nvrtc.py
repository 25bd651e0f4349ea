"""CUDA texts looked at by NVIDIA's run-time compiler, which needs no GPU: that a kernel compiles says nothing about what it computes."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from gradcheck.metal.cuda import SIZE, CudaText
from gradcheck.metal.errors import CompileError, NoCompilerError

ARCHITECTURE = "sm_80"
"""The oldest that bfloat16 is native on."""

_NARROW = {"float16_t": "__half", "bfloat16_t": "__nv_bfloat16"}
"""CUDA's name, in the functions of MLX, of those of Metal's types that have another there."""

_PRELUDE = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/cstdint>
namespace mlx::core::cu {
template <class T>
struct Facts {
  T values[10];
  const T* data() const { return values; }
};
using Shape = Facts<int32_t>;
using Strides = Facts<int64_t>;
}
"""
"""What MLX's own headers give a kernel. They have `cuda::std::array` for `Facts`, which takes 2 s to compile."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """NVRTC, and where the headers of CUDA lie."""

    library: Path
    includes: tuple[Path, ...]


@functools.cache
def find() -> Compiler:
    """The compiler of the `nvidia-cuda-*` wheels.

    Raises:
        NoCompilerError: it is not installed.
    """
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    libraries = sorted(path for root in roots for path in root.glob("*/lib/libnvrtc.so*"))
    includes = tuple(sorted(path for root in roots for path in (*root.glob("*/include"), *root.glob("*/include/cccl"))))
    headers = {name for path in includes for name in ("cuda_bf16.h", "cuda/std/cstdint") if (path / name).is_file()}
    if not libraries or len(headers) < 2:
        raise NoCompilerError(
            "no NVRTC with CUDA's headers: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt "
            "(a GPU is not needed)"
        )
    return Compiler(libraries[-1], includes)


def unit(text: CudaText) -> str:
    """The translation unit as MLX makes it of a kernel, but for its own headers."""
    declared = []
    for parameter in text.signature.parameters:
        if parameter.kind in {"shape", "strides"}:
            declared.append(f"const __grid_constant__ {parameter.kind.capitalize()} {parameter.name}")
        elif parameter.kind == "ndim":
            declared.append(f"const __grid_constant__ int {parameter.name}")
        else:
            element = re.sub(r"atomic<(.*)>", r"\1", parameter.declared.split()[-1].rstrip("*&"))
            declared.append(f"{'const ' if parameter.kind == 'input' else ''}{_NARROW.get(element, element)}* {parameter.name}")
    declared += [f"const uint32_t* {SIZE}"] if SIZE in text.input_names else []
    return f"{_PRELUDE}{text.header}\nnamespace mlx::core::cu {{\n__global__ void {text.signature.function}({', '.join(declared)}) {{\n{text.source}}}\n}}\n"


def check(source: str, name: str) -> str:
    """Compile a unit and throw the result away; the compiler's warnings.

    Raises:
        CompileError: it does not compile; the places are lines of the Metal text.
        NoCompilerError: there is no compiler.
    """
    compiler = find()
    library = ctypes.CDLL(str(compiler.library))
    program = ctypes.c_void_p()
    _succeed(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None), library)
    options = ["--std=c++20", "--device-as-default-execution-space", f"--gpu-architecture={ARCHITECTURE}"]
    options += [f"--include-path={path}" for path in compiler.includes]
    table = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    try:
        status = library.nvrtcCompileProgram(program, len(options), table)
        size = ctypes.c_size_t()
        _succeed(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)), library)
        log = ctypes.create_string_buffer(max(size.value, 1))
        _succeed(library.nvrtcGetProgramLog(program, log), library)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    said = log.value.decode(errors="replace")
    if status:
        raise CompileError(f"the Metal kernel {name!r} does not compile as CUDA:\n{said}")
    return said


def _succeed(status: int, library: ctypes.CDLL) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NoCompilerError(f"NVRTC does not work here: {library.nvrtcGetErrorString(status).decode()}")
