"""Mutants whose text a change made stale: what they look for, and what is there now."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError
from gradcheck._op import Op
from gradcheck.suite import Suite, kernel_package, mutants_of, nearest


@dataclass(frozen=True, slots=True)
class Stale:
    """An edit that matches nowhere, or more than once.

    Args:
        mutant, kernel: which.
        file: the kernel's file, where it lies.
        hits: how often `find` is in it.
        line: of the nearest text; 1 where the file is gone.
        find, present: what the mutant looks for, and the nearest text that is there.
    """

    mutant: str
    kernel: str
    file: Path
    hits: int
    line: int
    find: str
    present: str

    @property
    def diff(self) -> str:
        """Both texts, one above the other, as a unified diff."""
        rows = difflib.unified_diff(
            self.find.strip("\n").splitlines(),
            self.present.strip("\n").splitlines(),
            "the mutant looks for",
            f"{self.file.name} line {self.line} has",
            lineterm="",
        )
        return "\n".join(rows) or f"  {self.find}"

    def __str__(self) -> str:
        return f"mutant {self.mutant} on {self.kernel}: its text matches {self.hits} places in {self.file.name}, need exactly 1"


def stale_of(suite: Suite, op: Op, kernels: Iterable[str]) -> tuple[Stale, ...]:
    """The stale mutants of these kernels of an op."""
    return tuple(found for kernel in kernels for found in _of_kernel(suite, op, kernel))


def _of_kernel(suite: Suite, op: Op, name: str) -> Iterator[Stale]:
    targets = {kernel.name: kernel.target for kernel in op.kernels}
    if name not in targets:
        return
    try:
        folder = kernel_package(targets[name], suite.homes[op.name].path).folder
    except UsageError:
        return
    for mutant in mutants_of(suite, op.name):
        edit = mutant.edits.get(name)
        if edit is None:
            continue
        file = folder / edit.file
        source = file.read_bytes().decode("utf-8", errors="replace") if file.is_file() else ""
        hits = source.count(edit.find)
        if hits > 1:  # the text is there, and again
            yield Stale(mutant.name, name, file, hits, source.count("\n", 0, source.index(edit.find)) + 1, edit.find, edit.find)
        elif hits == 0:
            line, present = nearest(edit.find, source) if source else (1, "")
            yield Stale(mutant.name, name, file, 0, line, edit.find, present)
