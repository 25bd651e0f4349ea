"""Values count, not where they lie: strided, reversed, sliced and broadcast arrays give what plain ones give."""

from __future__ import annotations

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.arrays import LAYOUTS
from gradcheck.engine.checks.bench import Bench, Found, few, repeated, size_of
from gradcheck.engine.checks.same import same
from gradcheck.engine.problem import Problem
from gradcheck.numerics.recurrence import BATCH


def layout(bench: Bench) -> Found:
    """f of views = f of copies, inputs and cotangents alike. A kernel that takes every array for contiguous reads other numbers."""
    first, wrong = repeated(bench)
    if wrong:
        return Found(wrong)
    said, remarks, compared = [], [], 0
    for name in LAYOUTS:
        problem, want = bench.problem, first
        if name == "broadcast":
            problem = _alike(bench)
            want = bench.call(problem)
        broken, remark = same(bench, want, bench.call(problem, name), lambda given=problem: bench.truth(given))  # type: ignore[misc]
        said += [f"with {name} arrays ({LAYOUTS[name]}), {text}" for text in broken]
        remarks += [f"{name}: {text}" for text in remark]
        compared += size_of(want)
    return Found(few(said), compared, "; ".join(remarks))


def _alike(bench: Bench) -> Problem:
    """The problem with every row of the batch like the first."""

    def rows(name: str, array: F64) -> F64:
        return np.broadcast_to(array[:1], array.shape).copy() if BATCH in bench.axes[name][:1] else array

    return bench.problem_of({name: rows(name, array) for name, array in bench.arrays().items()})
