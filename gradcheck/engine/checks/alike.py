"""What is equal, for this kernel: the same bits or, of one that is declared not deterministic, the same within noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.checks.bench import Bench, Mask, Result, told, unequal
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.metrics import rounding_unit

DECLARED = "declared not deterministic"
"""What a check says that was told not to expect the same bits."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Compares two calls of one kernel at one problem, element by element.

    Args:
        bench: the kernel, and what it may be off.
        limits: per quantity how far two calls may be apart; None where they must be equal bit by bit. Each may be off the truth by
            the tolerance of z, in rounding units of its own element, so two of them by twice that from each other.
    """

    bench: Bench
    limits: Mapping[str, F64] | None

    @classmethod
    def of(cls, bench: Bench) -> Alike:
        """What is equal for the bench's kernel, at its problem."""
        if bench.deterministic:
            return cls(bench, None)
        dtype = DTYPES[bench.case.dtype]
        wanted = bench.truth().quantities()
        return cls(bench, {name: 2 * bench.tolerances[name]["z"] * rounding_unit(q.majorant, dtype) for name, q in wanted.items()})

    @property
    def remark(self) -> str:
        """What a reader must know of the comparison."""
        return "" if self.limits is None else f"{DECLARED}: equal means within twice the tolerance of z"

    def unequal(self, name: str, want: F64, got: F64, where: Mask | None = None, *, factor: float = 1.0) -> str:
        """How a quantity differs, or nothing; `where` masks what is compared, `factor` is what both have been scaled by."""
        if self.limits is None or want.shape != got.shape:
            return unequal(self.bench.axes[name], want, got, where)
        wrong = ~(np.abs(got - want) <= self.limits[name] * abs(factor))
        text = told(self.bench.axes[name], want, got, wrong if where is None else wrong & where)
        return f"{text}, which is beyond noise" if text else ""

    def spread(self, want: Result, got: Result) -> dict[str, float]:
        """The quantities that are not the same bits, each with its largest distance as a part of what is allowed."""
        out = {}
        for name, limit in (self.limits or {}).items():
            a, b = want.value(name), got.value(name)
            if a.shape == b.shape == limit.shape and (a != b).any():
                out[name] = float((np.abs(a - b) / limit).max())
        return out
