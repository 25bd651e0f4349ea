"""Pointers that change their address space, which Metal rejects and an executor with one space for all cannot see."""

from __future__ import annotations

import re
from dataclasses import replace

from gradcheck.metal import toolchain
from gradcheck.metal.compile import check_syntax
from gradcheck.metal.places import Diagnostic, diagnostics
from gradcheck.metal.unit import Job, make_unit

_SPACE = re.compile(r"__attribute__\(\(address_space\((\d)\)\)\) ?")
_NAMES = {"1": "device ", "2": "constant ", "3": "threadgroup "}


def space_errors(job: Job) -> tuple[Diagnostic, ...]:
    """Where a kernel's text mixes up address spaces: the compiler's errors when `device`, `constant` and `threadgroup` are real ones.

    Only errors that speak of address spaces count, since class types (`float4`, `bfloat`) lose their members in an address space of C++.

    Raises:
        NoCompilerError: there is no compiler.
    """
    unit = make_unit((job,), loops=False, spaces=True)
    said = diagnostics(check_syntax(unit.text, ["-DGCM_LINT"], toolchain.find()), unit.sources)
    return tuple(
        replace(one, message=_SPACE.sub(lambda match: _NAMES.get(match[1], match[0]), one.message))
        for one in said
        if one.kind == "error" and one.key in unit.sources and ("address space" in one.message or _SPACE.search(one.message))
    )
