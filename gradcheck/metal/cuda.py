"""A Metal text on an NVIDIA GPU: the same words, read through a CUDA header, by `mx.fast.cuda_kernel` of `mlx[cuda13]`.

The kernel becomes a device function that the function of MLX's own calls, so that the text stays in one piece and its lines keep their
numbers. A warp is a simdgroup. Where the grid is no multiple of the threadgroup, the threads outside of it end at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gradcheck.metal.collectives import SPACES
from gradcheck.metal.edits import Edit, apply
from gradcheck.metal.literals import narrow, numbers, unsuffixed
from gradcheck.metal.overloads import overloads_by_space
from gradcheck.metal.signature import ATTRIBUTES, Parameter, Signature, Text
from gradcheck.metal.threadgroup import declarations
from gradcheck.metal.tokens import Token, code, tokenize

if TYPE_CHECKING:
    import mlx.core as mx

Grid = tuple[int, int, int]

HEADER = Path(__file__).parent / "include" / "gcm" / "cuda.h"
SIZE = "gcm_grid"
"""Name of the input that holds the size of the grid, where that is no multiple of the threadgroup: CUDA knows whole blocks only."""

_INDEX = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
_THREADS = "at.threads.x * at.threads.y * at.threads.z"
_DISPATCHED = "blockDim.x * blockDim.y * blockDim.z"
_VALUES = {
    "dispatch_quadgroups_per_threadgroup": f"({_DISPATCHED} + 3) / 4",
    "dispatch_simdgroups_per_threadgroup": f"({_DISPATCHED} + 31) / 32",
    "dispatch_threads_per_threadgroup": "::metal::uint3(blockDim.x, blockDim.y, blockDim.z)",
    "grid_origin": "::metal::uint3(0)",
    "grid_size": "at.grid",
    "quadgroup_index_in_threadgroup": f"({_INDEX}) / 4",
    "quadgroups_per_threadgroup": f"({_THREADS} + 3) / 4",
    "simdgroup_index_in_threadgroup": f"({_INDEX}) / 32",
    "simdgroups_per_threadgroup": f"({_THREADS} + 31) / 32",
    "thread_execution_width": "32u",
    "thread_index_in_quadgroup": f"({_INDEX}) % 4",
    "thread_index_in_simdgroup": f"({_INDEX}) % 32",
    "thread_index_in_threadgroup": _INDEX,
    "thread_position_in_grid": "at.position",
    "thread_position_in_threadgroup": "::metal::uint3(threadIdx.x, threadIdx.y, threadIdx.z)",
    "threadgroup_position_in_grid": "::metal::uint3(blockIdx.x, blockIdx.y, blockIdx.z)",
    "threadgroups_per_grid": "::metal::uint3(gridDim.x, gridDim.y, gridDim.z)",
    "threads_per_grid": "at.grid",
    "threads_per_simdgroup": "32u",
    "threads_per_threadgroup": "at.threads",
}
assert _VALUES.keys() == ATTRIBUTES.keys()

_WHERE = """\
const ::metal::uint3 gcm_begin(blockIdx.x * blockDim.x, blockIdx.y * blockDim.y, blockIdx.z * blockDim.z);
struct {{ ::metal::uint3 grid, position, threads; }} at;
at.grid = ::metal::uint3({grid});
at.position = gcm_begin + ::metal::uint3(threadIdx.x, threadIdx.y, threadIdx.z);
if (at.position.x >= at.grid.x || at.position.y >= at.grid.y || at.position.z >= at.grid.z) return;
at.threads = ::metal::uint3(::metal::min(blockDim.x, at.grid.x - gcm_begin.x), ::metal::min(blockDim.y, at.grid.y - gcm_begin.y),
                            ::metal::min(blockDim.z, at.grid.z - gcm_begin.z));
"""
_WHOLE = "gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z"
_PART = f"{SIZE}[0], {SIZE}[1], {SIZE}[2]"

_ADDED = re.compile(r"[ \t]*#[ \t]*(include|import)\b")
_CONST = {"const", "constexpr"}


@dataclass(frozen=True, slots=True)
class CudaText:
    """What `mx.fast.cuda_kernel` is made of.

    Args:
        header: what stands before MLX's function: the Metal library, and the kernel as a device function.
        source: the body of that function: the call.
        input_names: of the kernel, and `SIZE` where the grid is ragged.
        output_names: of the kernel.
        signature: for which arguments it is.
    """

    header: str
    source: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    signature: Signature


@functools.lru_cache(maxsize=1024)
def translate(text: Text, signature: Signature, *, ragged: bool = False) -> CudaText:
    """The CUDA text of a kernel called with arguments of given types.

    Args:
        text: the kernel.
        signature: for the arguments, see `sign`.
        ragged: the grid is no multiple of the threadgroup.
    """
    template = f"{signature.template}\n" if signature.template else ""
    parameters = [f"{_cuda(parameter)} {parameter.name}" for parameter in signature.parameters]
    parameters += [f"{ATTRIBUTES[name]} {name}" for name in signature.attributes]
    header = (
        f"{HEADER.read_text('utf-8')}\nnamespace metal {{ namespace {signature.function} {{\n"
        f'#line 1 "{text.name}.header.metal"\n{rewrite(text.header, program=True)}\n'
        f'#line 1 "{text.name} (generated)"\n{template}inline void kernel({", ".join(parameters)}) {{\n'
        f'#line 1 "{text.name}.metal"\n{rewrite(text.source)}\n}}\n}} }}\n#line 1 "{text.name} (entry)"\n'
    )
    arguments = [_argument(parameter) for parameter in signature.parameters] + [_VALUES[name] for name in signature.attributes]
    call = f"::metal::{signature.function}::kernel{signature.arguments}({', '.join(arguments)});\n"
    names = (*text.input_names, SIZE) if ragged else text.input_names
    return CudaText(header, _WHERE.format(grid=_PART if ragged else _WHOLE) + _qualified(call), names, text.output_names, signature)


def rewrite(text: str, *, program: bool = False) -> str:
    """A kernel's body or header in words that CUDA has; lines stay lines.

    Args:
        text: the Metal text.
        program: it stands outside of functions.
    """
    tokens = code(text)
    doubled = list(overloads_by_space(tokens))
    gone = [range(edit.start, edit.end) for edit in doubled]
    edits = [*_spaces(tokens, program=program), *_literals(text), *_includes(text)]
    return apply(text, [*doubled, *(edit for edit in edits if not any(edit.start in span for span in gone))]).text


def _spaces(tokens: Sequence[Token], *, program: bool) -> Iterator[Edit]:
    """`threadgroup float a[4]` is `__shared__`; other words for where a value lies say nothing, but that `constant` is const."""
    shared = set() if program else {tokens[one.word].start for one in declarations(tokens)}
    for i, token in enumerate(tokens):
        if token.kind != "word" or token.text not in SPACES:
            continue
        if token.start in shared:
            yield Edit(token.start, token.end, "__shared__ alignas(16)")
        else:
            around = {tokens[i - 1].text if i else "", tokens[i + 1].text if i + 1 < len(tokens) else ""}
            yield Edit(token.start, token.end, "const" if token.text == "constant" and not around & _CONST else "")


def _literals(text: str) -> Iterator[Edit]:
    """`1.0h` is a half, and `1.0` a float, as Metal knows no double."""
    for token in numbers(text):
        if parts := narrow(token):
            digits, suffix = parts
            kind = "half" if suffix in "hH" else "bfloat"
            yield Edit(token.start, token.end, f"{kind}({digits}{'' if '.' in digits or 'e' in digits.lower() else '.'}f)")
        elif unsuffixed(token):
            yield Edit(token.end, token.end, "f")


def _includes(text: str) -> Iterator[Edit]:
    """`#include <metal_stdlib>` goes: what there is of it is there already."""
    for token in tokenize(text):
        if token.kind == "directive" and _ADDED.match(token.text):
            yield Edit(token.start, token.end, "")


def _cuda(parameter: Parameter) -> str:
    """The declaration of a parameter without address spaces."""
    return " ".join(word for word in parameter.declared.split() if word not in SPACES)


def _argument(parameter: Parameter) -> str:
    """A parameter of MLX's function, as what the kernel takes it for."""
    if parameter.kind in {"shape", "strides"}:
        return f"{parameter.name}.data()"
    if parameter.kind == "ndim":
        return parameter.name
    declared = _cuda(parameter)
    plain = declared.rstrip("*&")
    return f"{'*' if declared.endswith('&') else ''}reinterpret_cast<{plain}*>({parameter.name})"


_OWN = re.compile(r"(?<![\w:])(half|bfloat|float16_t|bfloat16_t|atomic)\b(?!\s*\()")


def _qualified(call: str) -> str:
    """Our own types by their full names: beside MLX's function there are CUDA's of the same name."""
    return _OWN.sub(r"::metal::\1", call)


def fitted(grid: Grid, threadgroup: Grid) -> tuple[Grid, bool]:
    """The threadgroup as Metal makes it of these sizes, and whether the last ones are smaller.

    Raises:
        ValueError: they are smaller in a direction behind which there is another: CUDA would number their threads otherwise than Metal.
    """
    size = cast("Grid", tuple(min(pair) for pair in zip(threadgroup, grid, strict=True)))
    ragged = [i for i in range(3) if size[i] and grid[i] % size[i]]
    if any(extent > 1 for i in ragged for extent in size[i + 1 :]):
        raise ValueError(
            f"grid {grid} is no multiple of the threadgroup {size} in a direction before its last one: on metal-cuda the lanes of its "
            "smaller threadgroups would not be Metal's. Choose sizes that divide, or run it on the CPU."
        )
    return size, bool(ragged)


@functools.lru_cache(maxsize=1024)
def cuda_kernel(text: CudaText, name: str, contiguous: bool) -> Callable[..., list[mx.array]]:  # noqa: FBT001 - a part of the key
    """MLX's kernel of a text. It is compiled at its first call."""
    import mlx.core as mx

    made = mx.fast.cuda_kernel(
        name=name,
        input_names=list(text.input_names),
        output_names=list(text.output_names),
        source=text.source,
        header=text.header,
        ensure_row_contiguous=contiguous,
    )
    return cast("Callable[..., list[mx.array]]", made)
