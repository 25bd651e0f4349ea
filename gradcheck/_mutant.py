"""A mutant: one realistic mistake, written as an edit to a kernel's source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gradcheck._errors import StaleMutant

Expect = Literal["killed", "equivalent", "harmless"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the one place in `file` (relative to the kernel's package) that reads `find`."""

    file: str
    find: str
    replace: str

    def apply(self, source: str, who: str) -> str:
        """`source` with the edit made.

        Raises:
            StaleMutant: `find` does not match exactly once.
        """
        hits = source.count(self.find)
        if hits != 1:
            raise StaleMutant(
                f"mutant {who}: `find` matches {hits} places in {self.file}, need exactly 1: {self.find!r}. "
                "The kernel changed: write the edit anew against the present text."
            )
        return source.replace(self.find, self.replace)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect that people make, and how it looks in each kernel.

    Args:
        op: the op whose kernels are edited.
        why: what goes wrong, in one sentence.
        defect: its class: `dropped-term`, `wrong-seed`, `off-by-one-time`, …
        seen_in: where such a defect was seen in public.
        edits: kernel name to the edit that plants it.
        expect: `killed`, or `equivalent` or `harmless` with a `reason`.
        reason: why the mutant cannot or need not be killed.
        variants: branches of the op in which it is a defect; empty means all. It is not run in the others.
        dtypes: dtypes of the inputs on which it is a defect; empty means all. A sum in bfloat16 is one on float32 inputs; on bfloat16
            inputs it is of the size of the noise.
        name: the name of the variable that holds it, filled in by the loader.
    """

    op: str
    why: str
    defect: str
    seen_in: str
    edits: Mapping[str, Edit] = field(hash=False)
    expect: Expect = "killed"
    reason: str = ""
    variants: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    name: str = ""

    @property
    def id(self) -> str:
        """`op/name`, unique in a suite."""
        return f"{self.op}/{self.name}"
