"""The same call gives the same numbers: twice in a row, and after calls with other shapes and with other values."""

from __future__ import annotations

from gradcheck.engine.checks.alike import DECLARED, Alike
from gradcheck.engine.checks.bench import Bench, Found, Result, differences, few, size_of
from gradcheck.engine.problem import Problem, draw
from gradcheck.numerics.recurrence import TIME

CALLS = 4
"""Calls by which the spread of a kernel is measured that is declared not to repeat itself."""


def determinism(bench: Bench) -> Found:
    """f(p) = f(p) bit by bit, whatever was computed in between, and what is in between is right as well.

    A cache that is keyed by too little, or a buffer that is added to and not cleared, shows in the second call, in the one after
    another shape, or in the values of the call in between. Of a kernel that is declared not deterministic every one of these calls
    must be right within noise, and how far they are apart is measured and said.
    """
    if not bench.deterministic:
        return _declared(bench)
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


def _declared(bench: Bench) -> Found:
    """The same calls, each judged by the truth."""
    alike, truth = Alike.of(bench), bench.truth()
    first, *again = (bench.call() for _ in range(CALLS))
    longer, other = draw(bench.op, bench.at(**{TIME: bench.case.sizes[TIME] + 1})), draw(bench.op, bench.at(seed=bench.case.seed + 1))
    between = bench.call(longer), bench.call(), bench.call(other), bench.call()
    unsound = bench.wrong_anyway(first, truth)

    def off(result: Result, problem: Problem | None = None) -> list[str]:
        known = truth if problem is None else bench.truth(problem)
        return [text for name, text in bench.off(result, known).items() if name not in unsound]

    wrong = [f"the same call again is off the truth: {text}" for result in again for text in off(result)]
    wrong += [f"the same call after others is off the truth: {text}" for result in (between[1], between[3]) for text in off(result)]
    wrong += [f"a call with other values, after one of the same shapes, is off the truth: {text}" for text in off(between[2], other)]
    apart: dict[str, float] = {}
    for result in (*again, between[1], between[3]):
        for name, part in alike.spread(first, result).items():
            apart[name] = max(apart.get(name, 0.0), part)
    much = max(apart.values(), default=0.0)
    said = "every call gave the same bits all the same"
    if apart:
        said = f"{', '.join(apart)} differ between calls, by at most {much:.2g} of what noise allows"
    return Found(few(wrong), (CALLS + 4) * size_of(first), f"{DECLARED}: {said}")
