"""Pointers that change their address space, which Metal rejects and an executor with one space for all cannot see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gradcheck.metal.collectives import SPACES
from gradcheck.metal.compile import check_syntax
from gradcheck.metal.places import Diagnostic, diagnostics
from gradcheck.metal.tokens import closing_angle, code
from gradcheck.metal.toolchain import Toolchain
from gradcheck.metal.unit import Job, make_unit

_SPACE = re.compile(r"__attribute__\(\(address_space\((\d)\)\)\) ?")
_NAMES = {"1": "device ", "2": "constant ", "3": "threadgroup "}
_TYPE = re.compile(r"'([^']*[*\[][^']*)'")  # of a pointer or an array, in a message


def space_errors(jobs: Sequence[Job], toolchain: Toolchain) -> list[tuple[Diagnostic, ...]]:
    """Where each kernel hands a pointer over to another address space: the compiler's errors when `device`, `constant` and `threadgroup` are real.

    Only errors that name two pointers count, since class types (`float4`, `bfloat`) lose their members in an address space of C++; of a
    call that fits no function, those of which every function of the kernel's own text takes a pointer of another space. A text that
    declares no pointer by its space (its only pointers are `auto`) is not looked at.

    Raises:
        NoCompilerError: there is no compiler.
    """
    asked = tuple(job for job in jobs if declares_pointer(job.text.source) or declares_pointer(job.text.header))
    if not asked:
        return [() for _ in jobs]
    unit = make_unit(asked, loops=False, spaces=True)
    said = [one for one in diagnostics(check_syntax(unit.text, toolchain), unit.sources) if one.key in unit.sources]
    found: dict[str, list[Diagnostic]] = {}
    for i, one in enumerate(said):
        if one.kind != "error":
            continue
        notes = []
        for other in said[i + 1 :]:
            if other.kind == "error":
                break
            notes += [other] if other.message.startswith("candidate ") else []
        if (why := next((each.message for each in (one, *notes) if _crosses(each.message)), "")) and all(
            map(_crosses, (n.message for n in notes))
        ):
            found.setdefault(one.key.rpartition("_")[2] if len(asked) > 1 else "0", []).append(replace(one, message=_named(why)))
    by_job = {job: tuple(found.get(str(i), ())) for i, job in enumerate(asked)}
    return [by_job.get(job, ()) for job in jobs]


def declares_pointer(text: str) -> bool:
    """Whether a text has a pointer or reference that names its address space: `device float*`, `(threadgroup T&)`."""
    tokens = code(text)
    for i, token in enumerate(tokens):
        if token.text not in SPACES:
            continue
        end: int | None = i + 1
        while end is not None and end < len(tokens) and (tokens[end].kind == "word" or tokens[end].text in {"::", "<"}):
            end = closing_angle(tokens, end) if tokens[end].text == "<" else end
            end = None if end is None else end + 1
        if end is not None and end < len(tokens) and tokens[end].text in {"*", "&", "&&"}:
            return True
    return False


def _crosses(message: str) -> bool:
    """Whether two pointers in it are of different address spaces."""
    return len({frozenset(_SPACE.findall(_spelt(kind))) for kind in _TYPE.findall(message)}) > 1


def _spelt(message: str) -> str:
    """As `_SPACE` has it: clang says `device` for the macro in some places and its attribute in others."""
    return re.sub(r"\b(device|constant|threadgroup) ", lambda word: f"__attribute__((address_space({_NUMBERS[word[1]]}))) ", message)


def _named(message: str) -> str:
    return _SPACE.sub(lambda match: _NAMES.get(match[1], match[0]), message)


_NUMBERS = {name.strip(): number for number, name in _NAMES.items()}
