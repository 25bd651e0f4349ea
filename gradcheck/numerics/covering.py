"""Covering arrays: few rows in which every pair of levels meets, under a constraint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations, product
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Cells = tuple[int, ...]  # levels of different factors, ascending; levels are numbered through all factors
Possible = Callable[[Sequence[int]], bool]
Draws = npt.NDArray[np.float64]


def covering(
    levels: Mapping[str, Sequence[T]],
    *,
    allowed: Callable[[Mapping[str, T]], bool],
    rows: int,
    seed: int,
    strength: int = 2,
) -> list[dict[str, T]]:
    """Distinct allowed rows that contain every combination of `strength` levels which some allowed row contains.

    Greedy: each row is grown around a combination not yet covered, factor by factor in the order of `levels`, by the level that
    covers most; then come rows whose combinations were used least, until there are `rows` of them or no other row is allowed.
    So a prefix of the result is spread as evenly as its length permits. The same arguments give the same rows everywhere.

    Args:
        levels: factor name to its levels, all different.
        allowed: whether a row may be used. It is asked about partial rows too, so that dead ends are cut early: a `KeyError` there
            (a factor that is not chosen yet) means undecided, and `False` must mean that no row which extends it is allowed.
            The search is exhaustive, so it is fast only where `allowed` decides early: put the factors that it reads first.
        rows: the least number of rows wanted.
        seed: breaks ties.
        strength: how many factors a combination has; 2 is pairwise.
    """
    cells = [(name, level) for name, choices in levels.items() for level in choices]
    ends = np.cumsum([0, *(len(choices) for choices in levels.values())]).tolist()
    factors = [range(start, end) for start, end in pairwise(ends)]

    def possible(chosen: Sequence[int]) -> bool:
        try:
            return allowed({cells[cell][0]: cells[cell][1] for cell in chosen})
        except KeyError:
            if len(chosen) == len(factors):
                raise
            return True

    # Only the raw stream is drawn: numpy keeps that one stable over its versions, the derived distributions not.
    draw = np.random.Generator(np.random.PCG64(seed)).random
    table = _Table(len(cells), min(strength, len(factors)))
    targets = [target for some in combinations(factors, table.strength) for target in product(*some) if possible(target)]
    table.want(targets[i] for i in np.argsort(draw(len(targets)), kind="stable"))
    while table.uncovered or len(table.rows) < rows:
        target = next(iter(table.uncovered), ())
        row = _extend(target, factors, table, possible, draw(len(cells)))
        if row:
            table.add(row)
        elif target:
            table.forget(target)  # no allowed row contains it
        else:
            break  # every allowed row is in use
    return [dict(cells[cell] for cell in row) for row in table.rows]


@dataclass(slots=True)
class _Table:
    """The rows so far, and what they cover. Arrays are indexed by the cells of a combination, in any order."""

    size: int
    strength: int
    rows: dict[Cells, None] = field(default_factory=dict)  # a dict is a set that keeps its order
    uncovered: dict[Cells, None] = field(default_factory=dict)
    fresh: npt.NDArray[np.int32] = field(init=False)  # 1 where the combination is uncovered
    uses: npt.NDArray[np.int32] = field(init=False)  # rows that contain the combination
    seen: npt.NDArray[np.int32] = field(init=False)  # rows that contain the cell

    def __post_init__(self) -> None:
        self.fresh = np.zeros((self.size,) * self.strength, np.int32)
        self.uses = np.zeros_like(self.fresh)
        self.seen = np.zeros(self.size, np.int32)

    def want(self, targets: Iterable[Cells]) -> None:
        for target in targets:
            self.uncovered[target] = None
            for index in permutations(target):
                self.fresh[index] = 1

    def forget(self, target: Cells) -> None:
        self.uncovered.pop(target, None)
        for index in permutations(target):
            self.fresh[index] = 0

    def add(self, row: Cells) -> None:
        self.rows[row] = None
        self.seen[list(row)] += 1
        for combination in combinations(row, self.strength):
            self.forget(combination)
            for index in permutations(combination):
                self.uses[index] += 1

    def best_first(self, factor: range, chosen: Cells, draws: Draws) -> list[int]:
        """The cells of a factor: those that cover most beside the chosen ones first, then those that were used least."""
        mine = np.arange(factor.start, factor.stop)
        others = list(combinations(chosen, self.strength - 1))
        where = (mine[:, None], *np.array(others, np.intp).reshape(len(others), self.strength - 1).T)
        covers, used = self.fresh[where].sum(axis=1), self.uses[where].sum(axis=1)
        order: list[int] = mine[np.lexsort((draws[mine], self.seen[mine], used, -covers))].tolist()
        return order


def _extend(chosen: Cells, factors: Sequence[range], table: _Table, possible: Possible, draws: Draws) -> Cells | None:
    """A row not yet in the table that contains the `chosen` cells and a cell of each of `factors`, by backtracking."""
    if not factors:
        full = tuple(sorted(chosen))
        return None if full in table.rows else full
    first, *rest = factors
    if any(cell in first for cell in chosen):
        return _extend(chosen, rest, table, possible, draws)
    for cell in table.best_first(first, chosen, draws):
        longer = (*chosen, cell)
        if possible(longer) and (row := _extend(longer, rest, table, possible, draws)):
            return row
    return None
