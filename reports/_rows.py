"""One output or gradient of a kernel and dtype over all cases: what a row of every report's calibration table is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradcheck import Band, Run

from ._facts import Seen, Table, by_quantity, find, over, seen, separation

SPLICED = " (spliced in)"  # what the engine adds to the name of a defect that is no mutant of the kernel
_PUBLISHED = " (published)"  # … and to that of one that was measured when the bands were published
_ROOM = 3.0  # a defect less than this many tolerances away cannot be told from noise


@dataclass(frozen=True, slots=True)
class Row:
    """One output or gradient over all cases of a kernel and dtype."""

    quantity: str
    measured: tuple[Seen, ...]
    bands: tuple[Band, ...]

    @property
    def failed(self) -> bool:
        """Whether it is why a case fails."""
        return any(s.failed for s in self.measured)

    @property
    def told(self) -> bool:
        """Whether any case could tell anything. That zeros are zeros, as the truth has them, says nothing of what is not zero."""
        found = [s.measurement for s in self.measured]
        return any(m.problem or (m.informative and m.checked and not m.zero) for m in found)

    @property
    def blurred(self) -> bool:
        """Whether there are defects, and by no metric a tolerance well below them: nothing is known of such a gradient."""
        known = [(band.tolerance, band.defect) for band in self.bands if band.defect is not None]
        return bool(known) and all(not (tolerance <= defect / _ROOM) for tolerance, defect in known)

    @property
    def mark(self) -> str:
        """`✗` wrong, `✓` right, `?` not known."""
        return "✗" if self.failed else "✓" if self.told and not self.blurred else "?"

    @property
    def worst(self) -> Seen | None:
        """The case that is furthest off."""
        return max(self.measured, key=lambda s: (s.failed, s.excess), default=None)

    @property
    def band(self) -> Band | None:
        """The metric worth showing.

        Where the row fails, the one exceeded most; else l2, the error in the norm of the whole, or failing that the one that separates
        best. The largest separation of all would flatter: a single element may be off without bounds.
        """
        if self.failed and self.worst:
            return self.worst.deciding
        whole = next((b for b in self.bands if b.metric == "l2"), None)
        if whole is not None and (whole.defect is not None or all(b.defect is None for b in self.bands)):
            return whole
        return max(self.bands, key=lambda b: (separation(b) or -math.inf, over(self.error(b), b.tolerance)), default=None)

    def error(self, band: Band) -> float | None:
        """Worst error of the clean kernel by the band's metric, over all cases; None where nothing was measured or it is not finite."""
        ratios = [s.measurement.ratios[band.metric] for s in self.measured if band.metric in s.measurement.ratios]
        return max(ratios, key=lambda ratio: over(ratio, 1.0)) if ratios else band.measured


def rows(run: Run, kernel: str, dtype: str) -> list[Row]:
    """The rows of a kernel and dtype, in the order in which they were measured."""
    return _rows(list(seen(run, kernel, dtype)), kernel, dtype, by_quantity(run))


def weakest(band: Band) -> str:
    """Name of the weakest defect, without what the engine says of its origin."""
    return band.weakest.removesuffix(_PUBLISHED).removesuffix(SPLICED)


def spliced(band: Band) -> bool:
    """Whether the weakest defect is no mutant, but was spliced into the kernel's own gradient."""
    return SPLICED in band.weakest


def _rows(measured: Sequence[Seen], kernel: str, dtype: str, table: Table) -> list[Row]:
    names = dict.fromkeys(s.measurement.quantity for s in measured)
    return [Row(n, tuple(s for s in measured if s.measurement.quantity == n), find(table, kernel, dtype, n)) for n in names]
