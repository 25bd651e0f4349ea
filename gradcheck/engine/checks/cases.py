"""At which cases the checks are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gradcheck._case import Case, parse_dims
from gradcheck._errors import unknown
from gradcheck._op import Op
from gradcheck._verdict import WorkItem
from gradcheck.engine.checks import CHECKS, DTYPE, Check
from gradcheck.engine.grid import select
from gradcheck.numerics.recurrence import TIME, axes

PER_BRANCH = 2
"""Cases of each branch: one long, one short."""

BUDGET = 20_000
"""State elements times steps of such a case, if there is one as small: a check calls a kernel some forty times."""


def chosen(text: str) -> tuple[Check, ...]:
    """The checks that `all`, `none` or names with commas ask for.

    Raises:
        UsageError: there is no such check.
    """
    known = {check.name: check for check in CHECKS}
    if text in {"all", "none"}:
        return CHECKS if text == "all" else ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown("check", name, known, "`all` and `none` are understood too.")
    return tuple(known[name] for name in names)


def items(op: Op, kernel: str, cases: Sequence[Case], checks: Iterable[Check], *, dims: str = "", named: bool = False) -> list[WorkItem]:
    """Every check of a kernel at a few of its cases, and the large ones at the production sizes of the op.

    Args:
        op: what is checked.
        kernel: its name.
        cases: those at which it is compared with the truth.
        checks: those to make.
        dims: sizes that the user has fixed; production sizes obey them too.
        named: the user has named the cases: there are no others than these.
    """
    usable = [replace(case, objective="all") for case in dict.fromkeys(cases) if case.dtype == DTYPE]
    found = []
    for variant in dict.fromkeys(case.variant for case in usable):
        mine = list(dict.fromkeys(case for case in usable if case.variant == variant))
        large = list(_production(op, variant, mine[0], dims))
        at = {True: [case for case in large if case in mine] if named else large, False: _few(op, [c for c in mine if c not in large])}
        found += [WorkItem(op.name, kernel, str(case), check=check.name) for check in checks for case in at[check.large]]
    return found


def _few(op: Op, cases: Sequence[Case]) -> list[Case]:
    """The longest case within the budget, and the smallest of the others.

    Of those with the most axes longer than 1, since a row alone, or one step, has nothing to be independent of.
    """

    def cost(case: Case) -> int:
        return math.prod(case.sizes[axis] for axis in {TIME, *axes(op.inputs[op.state])})

    def width(case: Case) -> int:
        return sum(size > 1 for size in case.sizes.values())

    if not cases:
        return []
    enough = max(map(width, cases)) - 1  # one axis of size 1 is a price worth paying for length
    long = max(
        cases, key=lambda case: (case.sizes[TIME] > 1, cost(case) <= BUDGET, min(width(case), enough), case.sizes[TIME], -cost(case))
    )
    others = [case for case in cases if case != long]
    small = [min(others, key=lambda case: (cost(case) > BUDGET, -width(case), cost(case)))] if others else []
    return [long, *small][:PER_BRANCH]


def _production(op: Op, variant: str, like: Case, dims: str) -> Iterator[Case]:
    """The case of production sizes, with the first regime of the op; the same one whatever the seed, so that its id can be given."""
    if variant in op.production:
        sizes, _ = parse_dims(op.production[variant])
        case = Case(op.name, tuple((axis, dict(sizes)[axis]) for axis, _ in like.dims), DTYPE, next(iter(op.regimes)), 0, variant)
        yield from select(op, [case], dims=dims)
