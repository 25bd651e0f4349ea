"""The sequences of a batch, and the groups of heads, know nothing of their order."""

from __future__ import annotations

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.checks.bench import Bench, Found, few, repeated, size_of
from gradcheck.engine.checks.same import same
from gradcheck.numerics.recurrence import BATCH, Axes


def permutation(bench: Bench) -> Found:
    """f(permuted) = permuted f, for the rows of the batch and for whole groups of heads, bit by bit but for sums over what is permuted.

    A sum over rows (the gradient of an input that has none) is made in another order, and a kernel may lay its work out by place:
    what is not equal bit by bit must be within noise, and the check says so.
    """
    sizes = bench.case.sizes
    first, wrong = repeated(bench)
    remarks: list[str] = []
    if wrong and any(bench.off(first, bench.truth())):  # neither bit by bit nor by noise
        return Found(wrong)
    moved = {BATCH: {BATCH: BATCH}, **{axis: {axis: axis, fine: axis} for axis, fine in bench.op.groups.items()}}
    said, compared = [], 0
    for axis, along in moved.items():
        if sizes.get(axis, 1) < 2:
            continue
        blocks = {name: sizes[name] // sizes[coarse] for name, coarse in along.items()}
        arrays = {name: _rolled(array, bench.axes[name], blocks, 1) for name, array in bench.arrays().items()}
        got = bench.call(bench.problem_of(arrays))
        values = {q: _rolled(g.value, bench.axes[q], blocks, -1) for q, g in got.gots.items() if g.value is not None}
        broken, remark = same(bench, first, got.mapped(values), bench.truth)
        said += [f"with {'rows of the batch' if axis == BATCH else f'groups {axis}'} in another order, {text}" for text in broken]
        remarks += remark
        compared += size_of(first)
    return Found(few(said), compared, "; ".join(dict.fromkeys(remarks)))


def _rolled(array: F64, names: Axes, blocks: dict[str, int], by: int) -> F64:
    """The array with each of these axes rolled by so many blocks."""
    for axis, block in blocks.items():
        if axis in names:
            array = np.roll(array, by * block, axis=names.index(axis))
    return array
