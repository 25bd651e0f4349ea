"""Mutants whose text a change made stale: what they look for, and what is there now."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
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
        find, present: what the mutant looks for, and what stands there now, or is nearest to it.
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


Before = Callable[[Path], bytes | None]
"""What a file was before the change; None where that is not known."""


def stale_of(suite: Suite, op: Op, kernels: Iterable[str], before: Before) -> tuple[Stale, ...]:
    """The stale mutants of these kernels of an op."""
    return tuple(found for kernel in kernels for found in _of_kernel(suite, op, kernel, before))


def _of_kernel(suite: Suite, op: Op, name: str, before: Before) -> Iterator[Stale]:
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
            old = (before(file) or b"").decode("utf-8", errors="replace")
            line, present = _followed(edit.find, old, source) or (nearest(edit.find, source) if source else (1, ""))
            yield Stale(mutant.name, name, file, 0, line, edit.find, present)


def _followed(find: str, old: str, new: str) -> tuple[int, str] | None:
    """What stands now where `find` stood, and its line; None where it did not stand in one place."""
    if old.count(find) != 1 or not new:
        return None
    was, now = old.splitlines(), new.splitlines()
    first = old.count("\n", 0, old.index(find.lstrip("\n")))
    last = first + find.strip("\n").count("\n")
    lows, highs = [], []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if i1 <= last and i2 > first:
            same = tag == "equal"
            lows.append(j1 + max(first - i1, 0) if same else j1)
            highs.append(j1 + min(last + 1, i2) - i1 if same else j2)
    low, high = min(lows), max(highs)
    if high - low > 2 * (last - first + 1):  # much else was rewritten with it
        line, text = nearest(find, "\n".join(now[low:high]))
        return low + line, text
    return min(low + 1, max(len(now), 1)), "\n".join(now[low:high]).strip()
