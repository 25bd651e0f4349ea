"""The covering grid of an op, and what the command line picks from it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from gradcheck import Case, Op, SuiteError, UsageError
from gradcheck._case import OBJECTIVES
from gradcheck._op import Draw, op
from gradcheck.engine.grid import BUDGET, grid, select

REGIMES = ("ordinary", "long-memory", "gate-one", "gate-half", "gate-zero", "dt-negative", "dt-zero", "dt-large", "growth", "masked")
STATE = ("B", "H", "P", "N")


def scan(**changes: Any) -> Op:
    """An op shaped like the selective scan; the grid never calls its step."""

    def draw(_rng: object, _shapes: object) -> dict[str, object]:
        raise AssertionError("the grid draws nothing")

    regimes: Mapping[str, Draw] = dict.fromkeys(REGIMES, draw)  # type: ignore[arg-type]

    @op(
        source="https://example.org",
        inputs={"s": "B H P N", "x": "B T H P", "dt": "B T H", "A": "H", "B": "B T G N", "C": "B T G N"},
        outputs={"y": "B T H P", "s_T": "B H P N"},
        state="s",
        terms="B H P N",
        linear="s x B C",
        dims={"B": (1, 2, 3), "T": (1, 5, 63, 64, 65, 131), "H": (2, 3, 6), "G": (1, 2, 3), "P": (1, 5, 33), "N": (3, 16, 37, 65)},
        regimes=regimes,
        variants={"mamba1": {"A": "H N"}, "mamba2": {}},
        groups={"G": "H"},
    )
    def ssm(*_: Any) -> Any:
        raise AssertionError("the grid runs nothing")

    return replace(ssm, **changes)


SCAN = scan()
GRID = grid(SCAN, ("f32", "bf16"), seed=0)


def cost(case: Case) -> int:
    return math.prod(case.sizes[axis] for axis in (*STATE, "T"))


def facts(case: Case) -> dict[str, object]:
    return {**case.sizes, "regime": case.regime, "dtype": case.dtype, "objective": case.objective}


def test_every_case_is_one_that_can_run_within_the_budget() -> None:
    assert all(case.sizes["H"] % case.sizes["G"] == 0 and cost(case) <= BUDGET for case in GRID)


@pytest.mark.parametrize("variant", ["mamba1", "mamba2"])
def test_every_pair_of_choices_meets_in_some_case(variant: str) -> None:
    rows = [facts(case) for case in GRID if case.variant == variant]
    choices = {**SCAN.dims, "regime": REGIMES, "dtype": ("f32", "bf16"), "objective": tuple(OBJECTIVES)}
    met = {pair for row in rows for pair in combinations(row.items(), 2)}
    dims = [dict(zip(SCAN.dims, sizes, strict=True)) for sizes in product(*SCAN.dims.values())]
    able = [d for d in dims if d["H"] % d["G"] == 0 and math.prod(d[axis] for axis in (*STATE, "T")) <= BUDGET]
    by_sizes = {pair for row in able for pair in combinations(row.items(), 2)}
    for (a, b), x, y in ((names, x, y) for names in combinations(choices, 2) for x in choices[names[0]] for y in choices[names[1]]):
        possible = (((a, x), (b, y)) in by_sizes) if {a, b} <= set(SCAN.dims) else True
        assert (((a, x), (b, y)) in met) == possible, (a, x, b, y)


def test_the_grid_is_small_and_quick_to_make() -> None:
    start = time.process_time()
    cases = grid(SCAN, ("f32", "f16", "bf16"), seed=0)
    assert time.process_time() - start < 1
    counts = [sum(case.variant == variant for case in cases) for variant in SCAN.variants]
    assert all(48 <= count <= 72 for count in counts), f"60 are needed for steps x regimes alone; got {counts}"
    assert all(sum(c.variant == v for c in grid(SCAN, ("f32",), seed=0, per_variant=90)) == 90 for v in SCAN.variants)


def test_cases_are_told_apart_and_another_seed_draws_other_numbers_at_the_same_cases() -> None:
    assert len({str(case) for case in GRID}) == len({case.seed for case in GRID}) == len(GRID)
    again = grid(SCAN, ("f32", "bf16"), seed=1)
    assert not {case.seed for case in GRID} & {case.seed for case in again}
    assert [replace(case, seed=0) for case in GRID] == [replace(case, seed=0) for case in again]
    assert all(Case.parse(str(case)) == case for case in GRID)


def test_a_size_beyond_the_budget_still_comes_once_with_everything_else_at_its_smallest() -> None:
    cases = grid(scan(dims={**SCAN.dims, "T": (1, 5, 100_000)}), ("f32",), seed=0)
    large = [case for case in cases if case.sizes["T"] == 100_000]
    assert [(c.variant, c.sizes["B"], c.sizes["H"], c.sizes["P"], c.sizes["N"]) for c in large] == [
        ("mamba1", 1, 2, 1, 3),
        ("mamba2", 1, 2, 1, 3),
    ]


def test_a_size_that_no_case_can_have_is_an_error_of_the_suite() -> None:
    with pytest.raises(SuiteError, match="G4"):
        grid(scan(dims={**SCAN.dims, "G": (1, 4)}), ("f32",), seed=0)


def test_an_axis_of_another_variant_is_no_part_of_a_case() -> None:
    wide = scan(dims={**SCAN.dims, "K": (7,)}, variants={"mamba1": {"A": "H K"}, "mamba2": {}})
    assert {("K" in case.sizes, case.variant) for case in grid(wide, ("f32",), seed=0)} == {(True, "mamba1"), (False, "mamba2")}


def test_without_wishes_the_whole_grid_is_kept() -> None:
    assert select(SCAN, GRID) == GRID


def test_names_filter() -> None:
    kept = select(SCAN, GRID, dtypes=["bf16"], regimes=["growth", "masked"], dims="mamba1")
    assert kept == tuple(c for c in GRID if c.dtype == "bf16" and c.regime in ("growth", "masked") and c.variant == "mamba1")
    assert kept
    assert select(SCAN, GRID, dtypes=["f16"]) == (), "f16 exists, but this grid has none of it"


def test_dims_fix_axes_in_every_case_and_leave_no_twins() -> None:
    kept = select(SCAN, GRID, dims="T=1,B2,H2,P5,N3,G1")
    assert {case.dims for case in kept} == {(("B", 2), ("T", 1), ("H", 2), ("G", 1), ("P", 5), ("N", 3))}
    assert len({replace(case, seed=0) for case in kept}) == len(kept) < len(GRID)
    assert {case.variant for case in kept} == {"mamba1", "mamba2"}


def test_a_group_that_no_longer_divides_takes_the_largest_size_that_does() -> None:
    kept = select(SCAN, GRID, dims="H4")
    assert {case.sizes["G"] for case in kept} == {1, 2}
    assert {case.sizes["H"] for case in select(SCAN, GRID, dims="G2")} == {2, 6}, "H3 cannot be split in two: such cases go"


@pytest.mark.parametrize(
    "wish, says",
    [
        ({"dims": "Q3"}, "no axis of ssm 'Q'"),
        ({"dims": "T=0"}, r"'T=0' is neither an axis with a positive size \(T65\) nor a variant \(mamba1, mamba2\)"),
        ({"dims": "mamba3"}, "did you mean 'mamba2'|did you mean 'mamba1'"),
        ({"dims": "G4,H6"}, "G4 does not divide H6"),
        ({"dtypes": ["f23"]}, "did you mean 'f32'"),
        ({"regimes": ["long-memry"]}, "did you mean 'long-memory'"),
        ({"cases": ["12", "13"]}, "12, 13 is no number of cases"),
        ({"cases": ["0"]}, "0 is no number of cases: give one whole number from 1, or ids"),
        ({"cases": ["-3"]}, "-3 is no number of cases"),
        ({"cases": ["1.5"]}, "1.5 is no number of cases"),
        ({"cases": ["12 of them"]}, "has 1 parts"),
        ({"dims": "T1000000000,B2"}, "would have .* elements, and 2,147,483,647 is what a 32-bit index counts; choose smaller sizes"),
        ({"dims": "T99999999999999999999"}, "elements"),
        ({"cases": ["ssm/B2,T999999999,H4,P8,N16,G2,mamba2/f32/ordinary/7"]}, "y would have 63,999,999,936 elements"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2,mamba2/f32/ordinary/7"], "dims": "T1"}, "leave out the dims"),
        ({"cases": ["wkv7/B2,T5,H4,P8,N16,G2,mamba2/f32/ordinary/7"]}, "wkv7"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2/f32/ordinary/7"]}, "names no variant; known: mamba1, mamba2"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2,mamba9/f32/ordinary/7"]}, "no variant of ssm 'mamba9'"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2,mamba2/f99/ordinary/7"]}, "no dtype 'f99'"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2,mamba2/f32/ordinry/7"]}, "did you mean 'ordinary'"),
        ({"cases": ["ssm/B2,T5,H4,P8,G2,mamba2/f32/ordinary/7"]}, "gives no size for N"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G2,K3,mamba2/f32/ordinary/7"]}, "no axis of ssm 'K'"),
        ({"cases": ["ssm/B2,T5,H4,P8,N16,G3,mamba2/f32/ordinary/7"]}, "G3 does not divide H4"),
    ],
)
def test_a_wish_that_does_not_fit_the_op_is_a_usage_error(wish: dict[str, object], says: str) -> None:
    named = scan(name="ssm")
    with pytest.raises(UsageError, match=says):
        select(named, grid(named, ("f32",), seed=0), **wish)  # type: ignore[arg-type]


def test_a_case_id_is_taken_as_it_is_wherever_the_grid_lies() -> None:
    named = scan(name="ssm")
    text = "ssm/B2,T9,H4,G2,P8,N16,mamba2/f32/long-memory@impulse/7"
    shuffled = "ssm/N16,P8,B2,T9,H4,G2,mamba2/f32/long-memory@impulse/8"
    kept = select(named, GRID, cases=[text, shuffled, text])
    assert [str(case) for case in kept] == [text, text[:-1] + "8"]


def test_a_number_of_cases_is_the_first_of_each_variant_and_they_are_spread() -> None:
    kept = select(SCAN, GRID, cases=["6"])
    assert [case.variant for case in kept] == ["mamba1"] * 6 + ["mamba2"] * 6
    first = kept[:6]
    assert {case.sizes["T"] for case in first} == set(SCAN.dims["T"])
    assert len({case.regime for case in first}) == 6
    assert {case.objective for case in first} == set(OBJECTIVES)
    assert {case.dtype for case in first} == {"f32", "bf16"}
