"""The C++ translation unit of one kernel or of many, and the way from its lines back to the kernel's own."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gradcheck.metal.collectives import collective_names, waits
from gradcheck.metal.edits import Edited
from gradcheck.metal.rewrite import rewrite
from gradcheck.metal.signature import Signature, Text

PRELUDE = """\
#pragma clang attribute push(__attribute__((nodebug)), apply_to = hasType(functionType))
#include "gcm/execution.h"
#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#pragma clang attribute pop
"""
"""What precedes every kernel, and is precompiled. Without debug information, so that a load inside `float4` has the line of the kernel."""

HEADER_LINES, BODY_LINES = 1 << 20, 2 << 20
"""What is added to the lines of the two texts, since the runtime knows the line of a collective and not its file."""

_LOOP = """\
extern "C" __attribute__((visibility("default"))) void gcm_loop{tag}(void* const* buffers, const gcm_thread* shape, gcm_u32 first, gcm_u32 last) {{
  gcm_thread at = *shape;
  gcm_thread* self = &at;
  const gcm_u3 most = shape->dispatched_threadgroup;
  for (gcm_u32 group = first; group < last; group++) {{
    at.threadgroup_position = {{group % shape->threadgroups.x, group / shape->threadgroups.x % shape->threadgroups.y,
                               group / shape->threadgroups.x / shape->threadgroups.y}};
    const gcm_u3 from = {{at.threadgroup_position.x * most.x, at.threadgroup_position.y * most.y, at.threadgroup_position.z * most.z}};
    const gcm_u3 size = {{shape->grid.x - from.x < most.x ? shape->grid.x - from.x : most.x,
                         shape->grid.y - from.y < most.y ? shape->grid.y - from.y : most.y,
                         shape->grid.z - from.z < most.z ? shape->grid.z - from.z : most.z}};
    at.threadgroup_size = size;
    at.simdgroups = (size.x * size.y * size.z + 31) / 32;
    for (gcm_u32 z = 0; z < size.z; z++)
      for (gcm_u32 y = 0; y < size.y; y++)
        for (gcm_u32 x = 0; x < size.x; x++) {{
          at.position_in_threadgroup = {{x, y, z}};
          at.position_in_grid = {{from.x + x, from.y + y, from.z + z}};
          at.index_in_threadgroup = x + size.x * (y + size.y * z);
          at.lane = at.index_in_threadgroup % 32;
          at.simdgroup = at.index_in_threadgroup / 32;
          {call};
        }}
  }}
}}
"""

_FIELDS = ("device", "constant", "threadgroup", "thread")  # words that are macros, and some of them names in gcm_thread
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|import)\b[^\n]*$", re.MULTILINE)
_DEFINES = {
    # Three or four components with a repeat, `v.xxy`. May stand in a macro, so no dot is asked for.
    "GCM_ALL_SWIZZLES": re.compile(r"\b(?=[xyzw]{3,4}\b)[xyzw]*([xyzw])[xyzw]*\1"),
    # A union has no copy constructor if a member's copy is not trivial.
    "GCM_PLAIN_VECTORS": re.compile(r"\bunion\b"),
}
"""Macros that only some texts need, and what makes one need them."""

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile, for one set of argument types."""

    text: Text
    signature: Signature


@dataclass(frozen=True, slots=True)
class Source:
    """A file that diagnostics and line tables name.

    Args:
        name: as it is shown: `scan.metal` is a kernel's body, `scan.header.metal` its header.
        edited: its text, original and rewritten.
    """

    name: str
    edited: Edited


@dataclass(frozen=True, slots=True)
class Unit:
    """C++ for one or more kernels; the k-th one's symbols end in `_k` unless there is one only.

    Args:
        text: the C++, which follows `PRELUDE`.
        sources: by the file name that stands in its `#line` directives.
        loops: for each kernel, whether it has a `gcm_loop` as well.
        defines: macros that the headers must see for it.
    """

    text: str
    sources: dict[str, Source] = field(hash=False)
    loops: tuple[bool, ...] = ()
    defines: tuple[str, ...] = ()


@functools.lru_cache(maxsize=256)
def make_unit(jobs: tuple[Job, ...], *, loops: bool = True, spaces: bool = False) -> Unit:
    """The unit of these kernels, each in a namespace of its own where there are more than one.

    Args:
        loops: make a `gcm_loop` where it can be.
        spaces: for the lint, where address spaces are real: overloads differ by them, and arguments come from nowhere.
    """
    many = len(jobs) > 1
    pieces: list[str] = []
    sources: dict[str, Source] = {}
    looped = []
    for k, job in enumerate(jobs):
        tag = f"_{k}" if many else ""
        text, loop = job.text, loops and not (job.text.atomic_outputs or waits(job.text.source, job.text.header))
        names = collective_names(text.header, text.source)
        header, body = (rewrite(part, names, overloads=spaces) for part in (text.header, text.source))
        # In one unit the tag tells the kernels' files apart; it is not shown.
        header_file, body_file = f"{text.name}.header.metal{tag}", f"{text.name}.metal{tag}"
        sources |= {header_file: Source(f"{text.name}.header.metal", header), body_file: Source(f"{text.name}.metal", body)}
        looped.append(loop)
        inside = header.text
        if many:
            pieces.append("\n".join(_INCLUDE.findall(inside)) + "\n")
            inside = _INCLUDE.sub("", inside)
            pieces.append(f"namespace gcm_kernel{tag} {{\nusing namespace metal;\n")
        pieces.append(f'#line {HEADER_LINES + 1} "{header_file}"\n{inside}\n#line 1 "{text.name} (generated)"\n{job.signature.head}')
        pieces.append(f'#line {BODY_LINES + 1} "{body_file}"\n{body.text}\n}}\n#line 1 "{text.name} (entry)"\n')
        pieces += [_instance(job.signature)] if spaces else _entries(job.signature, tag, loop=loop)
        if many:
            defined = sorted({*_DEFINE.findall(text.header), *_DEFINE.findall(text.source)})
            pieces += ["}\n", *(f"#undef {name}\n" for name in defined)]
    defines = tuple(
        name for name, word in _DEFINES.items() if any(word.search(part) for job in jobs for part in (job.text.source, job.text.header))
    )
    return Unit("".join(pieces), sources, tuple(looped), defines)


def _entries(signature: Signature, tag: str, *, loop: bool) -> Iterator[str]:
    call = _call(signature)
    yield from (f'#pragma push_macro("{word}")\n#undef {word}\n' for word in _FIELDS)
    exported = 'extern "C" __attribute__((visibility("default"), no_sanitize("thread")))'
    yield f"{exported} void gcm_entry{tag}(void* const* buffers, gcm_thread* self) {{ {call}; }}\n"
    if loop:
        yield _LOOP.format(tag=tag, call=call)
    yield from (f'#pragma pop_macro("{word}")\n' for word in _FIELDS)


def _call(signature: Signature) -> str:
    arguments = []
    for i, parameter in enumerate(signature.parameters):
        declared = parameter.declared
        for word in _FIELDS:
            declared = declared.replace(f"{word} ", "")
        plain = declared.rstrip("*&")
        star = "*" if declared.endswith("&") else ""
        arguments.append(f"{star}({plain}*)buffers[{i}]")
    arguments += [f"GCM_ATTR_{name}(self)" for name in signature.attributes]
    return f"{signature.function}{signature.arguments}({', '.join(arguments)})"


def _instance(signature: Signature) -> str:
    """A call with arguments in their address spaces, so that a template is looked at."""
    declared = [f"extern {p.declared.replace('&', '*')} gcm_argument_{i};\n" for i, p in enumerate(signature.parameters)]
    arguments = [f"{'*' * p.declared.endswith('&')}gcm_argument_{i}" for i, p in enumerate(signature.parameters)]
    arguments += [f"GCM_ATTR_{name}(self)" for name in signature.attributes]
    whole = f"{signature.function}{signature.arguments}({', '.join(arguments)})"
    return "".join(declared) + f"void gcm_instance(gcm_thread* self) {{ {whole}; }}\n"
