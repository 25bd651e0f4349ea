"""The cases of an op: a covering grid, and what the command line picks from it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from gradcheck._case import OBJECTIVES, Case, parse_dims
from gradcheck._errors import SuiteError, UsageError, unknown
from gradcheck._op import Op
from gradcheck.numerics.covering import covering
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.recurrence import TIME, axes

Level = int | str
Row = dict[str, Level]

BUDGET = 120_000
"""State elements times steps that a case may have, so that the whole grid stays fast."""

_SEED_STRIDE = 1_000
"""Distance between the case seeds of two run seeds, so that grids of up to that many cases share none."""

_MOST = 2**31 - 1
"""Elements of one array: what a 32-bit index counts."""

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")

_ROWS_SEED = 0
"""Ties in the covering array are broken alike in every run: another run seed draws other numbers at the same cases."""


def grid(op: Op, dtypes: Sequence[str], *, seed: int, per_variant: int = 48, budget: int = BUDGET) -> tuple[Case, ...]:
    """Cases in which each pair of axis sizes, regime, dtype and objective meets, for every variant of the op.

    Pairs are left out only where no case can hold them: a group that does not divide, or a cost (state elements times steps) beyond
    `budget`. A size too large for the budget by itself comes once, with everything else at its smallest: no size worth testing
    is dropped in silence. A prefix is spread over the grid as evenly as its length permits.

    Args:
        op: whose `dims`, regimes and variants are covered.
        dtypes: dtypes of the inputs.
        seed: of the run; case number i (counted through all variants) has the seed `1000 * seed + i`.
        per_variant: the least number of cases of a variant, where it has that many.
        budget: state elements times steps.
    """
    rows = [(variant, row) for variant in op.variants or ("",) for row in _rows(op, variant, dtypes, per_variant, budget)]
    return tuple(
        Case(
            op=op.name,
            dims=tuple((axis, int(row[axis])) for axis in _axes(op, variant)),
            dtype=str(row["dtype"]),
            regime=str(row["regime"]),
            seed=seed * _SEED_STRIDE + index,
            variant=variant,
            objective=str(row["objective"]),
        )
        for index, (variant, row) in enumerate(rows)
    )


def select(
    op: Op,
    pool: Sequence[Case],
    *,
    dims: str = "",
    dtypes: Sequence[str] = (),
    regimes: Sequence[str] = (),
    cases: Sequence[str] = (),
) -> tuple[Case, ...]:
    """The cases of `pool` that the command line asks for; nothing, where its wishes exclude each other.

    Args:
        op: the op of the cases.
        pool: the grid.
        dims: `B2,T65,mamba2` gives these axes these sizes in every case and keeps that variant. Where an axis grouped by another
            (or grouping it) no longer divides, the coarse one takes the largest size that does; where it is given too, the case goes.
        dtypes: those to keep; all, if none is given.
        regimes: those to keep; all, if none is given.
        cases: one whole number N for the first N of each variant, or full case ids, which need not be in the pool.

    Raises:
        UsageError: a name that does not exist, a case id that does not fit the op, sizes that cannot go together or that nothing can hold,
            a number of cases that is none.
    """
    for kind, names, known in (("dtype", dtypes, DTYPES), (f"regime of {op.name}", regimes, op.regimes)):
        if stray := [name for name in names if name not in known]:
            raise unknown(kind, stray[0], known)
    first_only = _is_count(cases)
    if cases and not first_only:
        if dims:
            raise UsageError(f"a case id says its sizes itself: leave out the dims {dims!r}, or give a number of cases")
        pool = list(dict.fromkeys(_named(op, text) for text in cases))
    pool = [case for case in pool if case.dtype in (dtypes or DTYPES) and case.regime in (regimes or op.regimes)]
    if dims:
        pool = _distinct(_fix(op, pool, dims))
    if dims or (cases and not first_only):
        _require_room(op, pool)
    return tuple(_first_of_each_variant(pool, int(cases[0])) if first_only else pool)


def _is_count(cases: Sequence[str]) -> bool:
    """Whether this is a number of cases, rather than their ids."""
    numbers = [text for text in cases if _NUMBER.fullmatch(text)]
    if numbers and (len(cases) > 1 or not numbers[0].isdecimal() or int(numbers[0]) == 0):
        raise UsageError(
            f"{', '.join(cases)} is no number of cases: give one whole number from 1, or ids of cases, which `gradcheck list cases` has"
        )
    return bool(numbers)


def _require_room(op: Op, pool: Iterable[Case]) -> None:
    for case in pool:
        shapes = {**op.shapes(case.sizes, case.variant), **op.output_shapes(case.sizes)}
        elements, name = max((math.prod(shape), name) for name, shape in shapes.items())
        if elements > _MOST:
            raise UsageError(
                f"case {case}: {name} would have {elements:,} elements, and {_MOST:,} is what a 32-bit index counts; choose smaller sizes"
            )


def _axes(op: Op, variant: str) -> list[str]:
    """The axes that this variant has, in the order of `op.dims`."""
    texts = (*op.inputs_of(variant).values(), *op.outputs.values(), *op.terms)
    used = {axis for text in texts for axis in axes(text)}
    return [axis for axis in op.dims if axis in used]


def _divides(op: Op, sizes: Mapping[str, int]) -> bool:
    """Whether every coarse axis divides the axis it groups; those not among `sizes` do not count."""
    return all(sizes[fine] % sizes[coarse] == 0 for coarse, fine in op.groups.items() if coarse in sizes and fine in sizes)


def _rows(op: Op, variant: str, dtypes: Sequence[str], least: int, budget: int) -> list[Row]:
    names = _axes(op, variant)
    costly = {TIME, *axes(op.inputs_of(variant)[op.state])}
    rest: dict[str, Sequence[Level]] = {"regime": tuple(op.regimes), "dtype": tuple(dtypes), "objective": tuple(OBJECTIVES)}

    def sizes(row: Mapping[str, int] | Mapping[str, Level]) -> dict[str, int]:
        return {axis: int(row[axis]) for axis in names if axis in row}

    def cost(row: Mapping[str, int] | Mapping[str, Level]) -> int:
        """Cost of the cheapest case that `row`, which may be partial, extends to, but for the groups."""
        return math.prod(sizes(row).get(axis, min(op.dims[axis])) for axis in costly)

    rows = covering(
        {**{axis: op.dims[axis] for axis in names}, **rest},
        allowed=lambda row: _divides(op, sizes(row)) and cost(row) <= budget,
        rows=least,
        seed=_ROWS_SEED,
    )
    for axis in names:
        for size in op.dims[axis]:
            if dtypes and all(row[axis] != size for row in rows):  # beyond the budget by itself
                fitting = _fitting(op, {**{name: op.dims[name] for name in names}, axis: (size,)})
                if not fitting:
                    raise SuiteError(f"op {op.name}: no case can have {axis}{size}, since then the groups {dict(op.groups)} never divide")
                cheapest: dict[str, int] = min(fitting, key=cost)
                rows.append({**cheapest, **{name: choices[0] for name, choices in rest.items()}})
    return rows


def _fitting(op: Op, dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every choice of sizes in which the groups divide."""
    rows = (dict(zip(dims, choice, strict=True)) for choice in product(*dims.values()))
    return [row for row in rows if _divides(op, row)]


def _named(op: Op, text: str) -> Case:
    """The case with this id, checked against the op."""
    case = Case.parse(text)
    if case.op != op.name:
        raise UsageError(f"case {text!r} is one of the op {case.op!r}, but this run is of {op.name!r}")
    if op.variants and not case.variant:
        raise UsageError(f"case {text!r} names no variant; known: {', '.join(op.variants)}")
    for kind, name, known in (
        (f"variant of {op.name}", case.variant, op.variants or ("",)),
        ("dtype", case.dtype, DTYPES),
        (f"regime of {op.name}", case.regime, op.regimes),
    ):
        if name not in known:
            raise unknown(kind, name, filter(None, known), f"(in case {text!r})")
    names = _axes(op, case.variant)
    for axis in case.sizes:
        if axis not in names:
            raise unknown(f"axis of {op.name}", axis, names, f"(in case {text!r})")
    if missing := [axis for axis in names if axis not in case.sizes]:
        raise UsageError(f"case {text!r} gives no size for {', '.join(missing)}; write it like {missing[0]}{op.dims[missing[0]][-1]}")
    _require_division(op, case.sizes, f"case {text!r}")
    return replace(case, dims=tuple((axis, case.sizes[axis]) for axis in names))


def _require_division(op: Op, sizes: Mapping[str, int], who: str) -> None:
    for coarse, fine in op.groups.items():
        if coarse in sizes and fine in sizes and sizes[fine] % sizes[coarse]:
            raise UsageError(
                f"{who}: {coarse} groups {fine}, but {coarse}{sizes[coarse]} does not divide {fine}{sizes[fine]}; change one of them"
            )


def _fix(op: Op, pool: Sequence[Case], text: str) -> list[Case]:
    """The cases with these axes at these sizes, without those whose groups cannot be made to divide."""
    dims, variant = parse_dims(text, op.variants)
    wanted = dict(dims)
    for axis in wanted:
        if axis not in op.dims:
            raise unknown(f"axis of {op.name}", axis, op.dims)
    if variant and variant not in op.variants:
        raise unknown(f"variant of {op.name}", variant, op.variants)
    _require_division(op, wanted, f"dims {text!r}")
    fixed = []
    for case in pool:
        sizes = {axis: wanted.get(axis, size) for axis, size in case.dims}
        for coarse, fine in op.groups.items():
            if coarse in sizes and fine in sizes and coarse not in wanted and sizes[fine] % sizes[coarse]:
                sizes[coarse] = max((size for size in op.dims[coarse] if sizes[fine] % size == 0), default=sizes[coarse])
        if variant in ("", case.variant) and _divides(op, sizes):
            fixed.append(replace(case, dims=tuple(sizes.items())))
    return fixed


def _distinct(pool: Iterable[Case]) -> list[Case]:
    """The first of those cases that differ in nothing but the seed, which in a grid only numbers them."""
    first: dict[Case, Case] = {}
    for case in pool:
        first.setdefault(replace(case, seed=0), case)
    return list(first.values())


def _first_of_each_variant(pool: Iterable[Case], count: int) -> list[Case]:
    taken: Counter[str] = Counter()
    kept = []
    for case in pool:
        taken[case.variant] += 1
        if taken[case.variant] <= count:
            kept.append(case)
    return kept
