"""The whole comparison with the truth at the sizes of a real model: every output and gradient, every element, every metric.

The sizes lie far beyond the covering grid, and yet its tolerances serve, since errors are counted in rounding units of each case: the
kernels that we ship stay below 0.07 of them at H = 1536 and at P N = 8192. A direction, or a few of them, would cost four forwards
each and lets pass what is small in the norm of a gradient; the whole truth costs as much as some thirty to a hundred forwards, once:
it is kept on disk, as it depends on no kernel.
"""

from __future__ import annotations

import numpy as np

from gradcheck._truth import Truth
from gradcheck.engine import cache
from gradcheck.engine.checks.bench import Bench, Found, few, size_of
from gradcheck.engine.truth import answer, sources_of


def production(bench: Bench) -> Found:
    """f and its VJP at production sizes are the truth's, within the tolerances of the run. Each quantity is judged by itself."""
    got = bench.call()
    off = bench.off(got, _truth(bench))
    return Found(few([*got.notes, *off.values()]), size_of(got))


def _truth(bench: Bench) -> Truth:
    """The truth of the bench's case, from the cache or computed and kept. The noise there, which costs more than the truth, is not asked."""
    key = cache.key_of(
        {"what": "truth without noise", "case": str(bench.case), "sources": sources_of(bench.op), "numpy": np.__version__},
    )
    if found := cache.get(key):
        return found[0]
    truth = answer(bench.op, bench.case.variant, bench.problem)
    cache.put(key, truth, {})
    return truth
