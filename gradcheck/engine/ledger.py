"""What is done of a run, by item. Clean kernels and checks are at hand; mutants, of which there may be tens of thousands, stay on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import cast

from gradcheck._verdict import Evidence, WorkItem

RECENT = 512
"""Evidence from disk that is kept for a moment: what is judged is judged mutant by mutant, and each of them in several forms."""


class Ledger(Mapping[WorkItem, Evidence]):
    """Item to evidence, in the order in which it came.

    Args:
        items: of the plan, so that what is read of them many times is held once.
        read: the evidence that lies at a place of the journal.
    """

    def __init__(self, items: Iterable[WorkItem], read: Callable[[int], Evidence]) -> None:
        self._known = {item: item for item in items}
        self._read = lru_cache(maxsize=RECENT)(read)
        self._held: dict[WorkItem, Evidence] = {}

    def keep(self, evidence: Evidence, place: int) -> None:
        """Note what was written at this place of the journal. The last time of an item counts."""
        self.note(evidence.item, place, evidence)

    def note(self, item: WorkItem, place: int, evidence: Evidence | None = None) -> None:
        """As `keep`, of what need not be at hand."""
        item = self._known.get(item, item)
        self._held.pop(item, None)
        self._held[item] = cast("Evidence", _Far(item, place, self._read)) if item.mutant else evidence or self._read(place)

    def __getitem__(self, item: WorkItem) -> Evidence:
        return self._held[item]

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class _Far:
    """Evidence that is read when something of it is asked for but its item."""

    __slots__ = ("_place", "_read", "item")

    def __init__(self, item: WorkItem, place: int, read: Callable[[int], Evidence]) -> None:
        self.item, self._place, self._read = item, place, read

    def __getattr__(self, name: str) -> object:
        return getattr(self._read(self._place), name)
