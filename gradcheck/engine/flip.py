"""A sign to flip in a kernel's source: a mistake that any backward can have, for a mutant to begin with."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from gradcheck._errors import UsageError
from gradcheck._mutant import Edit
from gradcheck._op import Op
from gradcheck.suite import kernel_package

_FLIPS = {"+": "-", "-": "+", "*": "+"}


def flip_of(op: Op, root: Path) -> tuple[str, Edit]:
    """Kernel and edit: the last `+` (else `-`, else `*`) between two operands in a line that its file has once.

    The last, because a backward stands behind its forward.

    Raises:
        UsageError: no Python source of a kernel of `op` has such a line.
    """
    for kernel in op.kernels:
        for source in kernel.sources:
            file = kernel_package(kernel.target, root).folder / source
            if source.endswith(".py") and file.is_file():
                flips = list(_flips(file.read_bytes().decode()))
                for sign in _FLIPS:
                    for found, find, replace in reversed(flips):
                        if found == sign:
                            return kernel.name, Edit(source, find, replace)
    names = ", ".join(kernel.name for kernel in op.kernels) or "there are none"
    raise UsageError(
        f"no Python source of a kernel of {op.name} ({names}) has a sign to flip; write the mutant by hand, see gradcheck lint"
    )


def _flips(source: str) -> Iterator[tuple[str, str, str]]:
    """(sign, line, line with the sign flipped) of every binary sign in a line that occurs once."""
    before: tokenize.TokenInfo | None = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.line.strip()
        operand = before is not None and (before.type in {tokenize.NAME, tokenize.NUMBER} or before.string in {")", "]"})
        if token.string in _FLIPS and token.type == tokenize.OP and operand and "\n" not in line and source.count(line) == 1:
            at = token.start[1] - (len(token.line) - len(token.line.lstrip()))
            yield token.string, line, line[:at] + _FLIPS[token.string] + line[at + 1 :]
        before = token
