"""What the reference says is independent stays as it is, bit by bit: causality, rows, heads, groups.

Which outputs and gradients depend on an element is read off the reference: a NaN is planted there, and whatever does not become NaN
is independent of it. In the kernel a large number is added in the same place. A NaN there would be too much to ask: a correct
masked product spreads it, since 0 times NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.checks.alike import Alike
from gradcheck.engine.checks.bench import Bench, Found, differences, few, repeated, unsteady
from gradcheck.engine.problem import Problem
from gradcheck.numerics.costate import model
from gradcheck.numerics.dtypes import round_to
from gradcheck.numerics.recurrence import TIME

LARGE = 2.0**40
"""Added to what enters linearly: a leak of 1e-12 becomes 1."""

MODERATE = (8.0, 1.0, 2.0**-3, 2.0**-6)
"""Added to what does not enter linearly, or multiplies itself from step to step: the first that keeps the reference finite."""

FINITE = 2.0**100
"""A reference below this in every output and gradient leaves room for the products of a kernel in float32."""

BOUNDARY = 64
"""A step where a chunk begins, for chunks of 64 and of every divisor of it."""

Slab = tuple[int | slice, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """All elements of one array at one index of one axis."""

    array: str
    axis: str
    index: int
    slab: Slab

    def __str__(self) -> str:
        name = f"the cotangent of {self.array[2:]}" if self.array.startswith("w ") else self.array
        return f"{name} at {self.axis.lower()}={self.index}"


def taint(bench: Bench) -> Found:
    """Adding ±2^40 to all elements of an input or cotangent at one index of one axis changes nothing that is independent of them.

    What changes is blamed on the place only once both calls have been made again and gave the same bits: a race that strikes seldom
    is no leak.
    """
    first, wrong = repeated(bench)
    if wrong:
        return Found(wrong)
    rng = np.random.default_rng(bench.case.seed)
    clean, alike = _reference(bench, bench.problem), Alike.of(bench)
    found: dict[tuple[str, str, str], str] = {}
    compared = 0
    for place in _places(bench, rng):
        spoilt = _reference(bench, _moved(bench, place, np.nan, rng))
        independent = {name: ~np.isnan(spoilt[name]) & np.isfinite(clean[name]) for name in first.gots}
        judged = [name for name, got in first.gots.items() if got.value is not None and independent[name].any()]
        if bench.forward_only or place.array.startswith("w "):
            judged = [name for name in judged if name.startswith("d ") is not bench.forward_only]
        if not judged:
            continue
        size, problem = _largest(bench, place, rng)
        got = bench.call(problem)
        compared += sum(int(independent[name].sum()) for name in judged)
        texts = {name: alike.unequal(name, first.value(name), got.value(name), independent[name]) for name in judged}
        if bench.deterministic and any(texts.values()):
            again = differences(bench, first, bench.call()) or differences(bench, got, bench.call(problem))
            if again:
                return Found(unsteady(again), compared)
        for name, text in texts.items():
            if text:
                sentence = f"{name} does not depend on {place}, and yet {text} when ±{size:g} is added there"
                found.setdefault((place.array, place.axis, name), sentence)
    return Found(few(list(found.values())), compared, alike.remark)


def _places(bench: Bench, rng: np.random.Generator) -> Iterator[_Place]:
    """One index, drawn, of each axis of each array; of time the middle, the last and the beginning of a chunk."""
    given = bench.arrays()
    for name, array in given.items():
        if name in bench.op.constants or (name.startswith("w ") and (bench.forward_only or not array.any())):
            continue
        for at, (axis, size) in enumerate(zip(bench.axes[name], array.shape, strict=True)):
            if size < 2:
                continue
            steps = {size // 2, size - 1, *([BOUNDARY] if size > BOUNDARY else [])}
            for index in sorted(steps) if axis == TIME else [int(rng.integers(size))]:
                yield _Place(name, axis, index, (slice(None),) * at + (index,))


def _moved(bench: Bench, place: _Place, size: float, rng: np.random.Generator) -> Problem:
    """The problem with `size`, of either sign, added to the elements of a place."""
    arrays = bench.arrays()
    array = arrays[place.array].copy()
    part = array[place.slab]
    array[place.slab] = round_to(part + size * rng.choice([-1.0, 1.0], part.shape), bench.case.dtype)
    return bench.problem_of({**arrays, place.array: array})


def _largest(bench: Bench, place: _Place, rng: np.random.Generator) -> tuple[float, Problem]:
    """(what is added, the problem): as much as the reference bears without overflow."""
    if place.array.startswith("w "):
        return LARGE, _moved(bench, place, LARGE, rng)
    problem = bench.problem
    for size in (LARGE, *MODERATE) if place.array in bench.op.linear else MODERATE:
        problem = _moved(bench, place, size, rng)
        if all(bool((np.abs(a) <= FINITE).all()) for a in _reference(bench, problem).values()):
            return size, problem
    return MODERATE[-1], problem


def _reference(bench: Bench, problem: Problem) -> Mapping[str, F64]:
    """The reference in single precision, by complex steps.

    No size of one element enters the others there, as it does in a difference whose step is chosen by the largest.
    """
    with np.errstate(all="ignore"):
        y, state, gradients = model(bench.recurrence, problem.inputs, *problem.cotangents)
    outputs = dict(zip(bench.op.outputs, (y, state), strict=True))
    return {**outputs, **{f"d {name}": value for name, value in gradients.items()}}
