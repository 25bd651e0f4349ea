"""Covering arrays: every pair that can be had is there, by brute force on small instances."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck.numerics.covering import covering

Row = Mapping[str, int]
Allowed = Callable[[Row], bool]
DIMS = {"B": (1, 2, 3), "T": (1, 5, 63, 64, 65, 131), "H": (2, 3, 6), "G": (1, 2, 3), "P": (1, 5, 33), "N": (3, 16, 37, 65)}


def anything(_: Row) -> bool:
    return True


def parts(rows: list[dict[str, int]], strength: int) -> set[tuple[tuple[str, int], ...]]:
    return {part for row in rows for part in combinations(row.items(), strength)}


def every_row(levels: Mapping[str, tuple[int, ...]], allowed: Allowed) -> list[dict[str, int]]:
    rows = [dict(zip(levels, choice, strict=True)) for choice in product(*levels.values())]
    return [row for row in rows if allowed(row)]


@st.composite
def instances(draw: st.DrawFn) -> tuple[dict[str, tuple[int, ...]], Allowed]:
    """Up to five small factors and a constraint that forbids some full rows and some pairs, at random."""
    levels = {name: tuple(range(draw(st.integers(1, 4)))) for name in "abcde"[: draw(st.integers(1, 5))]}
    full = list(product(*levels.values()))
    banned = set(draw(st.lists(st.sampled_from(full), max_size=min(len(full), 60))))
    first, last = next(iter(levels)), list(levels)[-1]
    clash = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6))

    def allowed(row: Row) -> bool:
        return (row[first], row[last]) not in clash and tuple(row[name] for name in levels) not in banned

    return levels, allowed


@settings(max_examples=100, deadline=None)
@given(instances(), st.integers(1, 3), st.integers(0, 40), st.integers(0, 9))
def test_every_combination_that_an_allowed_row_contains_is_covered(
    instance: tuple[dict[str, tuple[int, ...]], Allowed], strength: int, wanted: int, seed: int
) -> None:
    levels, allowed = instance
    strength = min(strength, len(levels))
    rows = covering(levels, allowed=allowed, rows=wanted, seed=seed, strength=strength)
    possible = every_row(levels, allowed)
    assert parts(rows, strength) == parts(possible, strength)
    assert all(row in possible and list(row) == list(levels) for row in rows)
    assert len({tuple(row.items()) for row in rows}) == len(rows) >= min(wanted, len(possible))


def test_the_rows_are_few() -> None:
    levels = {name: tuple(range(4)) for name in "abcdef"}
    rows = covering(levels, allowed=anything, rows=0, seed=0)
    assert 16 <= len(rows) <= 30, "16 is the least possible, 4096 the full product"


def test_a_prefix_already_holds_every_level_a_few_times() -> None:
    levels = {name: tuple(range(4)) for name in "abcdef"}
    rows = covering(levels, allowed=anything, rows=64, seed=3)
    assert parts(rows[:6], 1) == parts(rows, 1)
    counts = [sum(row[name] == level for row in rows) for name in levels for level in range(4)]
    assert len(rows) == 64
    assert max(counts) - min(counts) <= 4, "the fill is even"
    pairs = Counter(pair for row in rows for pair in combinations(row.items(), 2))
    assert set(pairs.values()) <= {3, 4, 5}, "over pairs too: 64 rows hold each of them 4 times on average"


PINNED = [(1, 2, 2), (3, 1, 1), (2, 1, 2), (3, 2, 1), (3, 1, 2), (2, 2, 1), (1, 2, 1)]


def test_rows_are_the_same_on_every_machine() -> None:
    rows = covering({"a": (1, 2, 3), "b": (1, 2), "c": (1, 2)}, allowed=lambda row: row["a"] + row["b"] > 2, rows=0, seed=7)
    assert [tuple(row.values()) for row in rows] == PINNED
    assert rows != covering({"a": (1, 2, 3), "b": (1, 2), "c": (1, 2)}, allowed=lambda row: row["a"] + row["b"] > 2, rows=0, seed=8)


def test_more_rows_than_there_are_gives_all_of_them() -> None:
    assert len(covering({"a": (1, 2), "b": (1, 2)}, allowed=lambda row: row["a"] != row["b"], rows=50, seed=0)) == 2
    assert covering({"a": (1, 2), "b": (1, 2)}, allowed=lambda _: False, rows=50, seed=0) == []


def test_a_constraint_that_misspells_a_factor_is_not_taken_for_undecided() -> None:
    with pytest.raises(KeyError, match="bb"):
        covering({"a": (1, 2), "b": (1, 2)}, allowed=lambda row: row["bb"] > 1, rows=1, seed=0)


def test_ten_factors_under_a_tight_budget_take_less_than_half_a_second() -> None:
    levels = {f"f{i}": tuple(range(1, 10)) for i in range(10)}

    def cheap(row: Row) -> bool:
        return math.prod(row.values()) <= 200_000  # true of one row in six

    start = time.process_time()
    rows = covering(levels, allowed=cheap, rows=48, seed=0)
    seconds = time.process_time() - start
    assert parts(rows, 2) == {pair for pair in parts_of_levels(levels) if math.prod(value for _, value in pair) <= 200_000}
    assert seconds < 0.5, f"{len(rows)} rows in {seconds:.2f} s"


def parts_of_levels(levels: Mapping[str, tuple[int, ...]]) -> set[tuple[tuple[str, int], ...]]:
    return {((a, x), (b, y)) for a, b in combinations(levels, 2) for x in levels[a] for y in levels[b]}
