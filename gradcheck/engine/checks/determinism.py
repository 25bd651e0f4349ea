"""The same call gives the same numbers: twice in a row, and after calls with other shapes and with other values."""

from __future__ import annotations

from gradcheck.engine.checks.bench import Bench, Found, differences, few, size_of
from gradcheck.engine.problem import draw
from gradcheck.numerics.recurrence import TIME


def determinism(bench: Bench) -> Found:
    """f(p) = f(p) bit by bit, whatever was computed in between, and what is in between is right as well.

    A cache that is keyed by too little, or a buffer that is added to and not cleared, shows in the second call, in the one after
    another shape, or in the values of the call in between.
    """
    first = bench.call()
    wrong = [f"the same call again differs: {text}" for text in differences(bench, first, bench.call()).values()]
    longer = bench.at(**{TIME: bench.case.sizes[TIME] + 1})
    bench.call(draw(bench.op, longer))
    if not wrong:
        after = differences(bench, first, bench.call())
        wrong = [f"the same call after one with {TIME} = {longer.sizes[TIME]} differs: {text}" for text in after.values()]
    other = draw(bench.op, bench.at(seed=bench.case.seed + 1))
    between = bench.call(other)
    if not wrong:
        after = differences(bench, first, bench.call())
        wrong = [f"the same call after one with other values differs: {text}" for text in after.values()]
    unsound = bench.wrong_anyway(first, bench.truth())
    off = {name: text for name, text in bench.off(between, bench.truth(other)).items() if name not in unsound}
    wrong += [f"a call with other values, after one of the same shapes, is off the truth: {text}" for text in off.values()]
    return Found(few(wrong), 4 * size_of(first))
