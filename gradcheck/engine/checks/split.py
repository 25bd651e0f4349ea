"""Two calls that hand the state over are one call: outputs, final state and every gradient."""

from __future__ import annotations

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.call import Got
from gradcheck.engine.checks.bench import Bench, Found, Result, few, size_of
from gradcheck.engine.problem import Problem
from gradcheck.numerics.recurrence import TIME


def split(bench: Bench) -> Found:
    """f over [0, T) against f over [k, T) from the state that f over [0, k) leaves, judged like any call: by the truth and its noise.

    Backwards the gradient of the second call's initial state is the cotangent of the first call's final state; gradients of inputs
    without time add up. What is wrong in one call already is left to the comparison with the truth.
    """
    steps = bench.case.sizes[TIME]
    if steps < 2:
        return Found()
    k = steps // 2
    truth, whole = bench.truth(), bench.call()
    unsound = bench.wrong_anyway(whole, truth)
    joined = _joined(bench, k)
    if isinstance(joined, str):
        return Found((joined,), 1)
    off = {name: text for name, text in bench.off(joined, truth).items() if name not in unsound}
    sound = size_of(joined) if len(unsound) < len(whole.gots) else 0
    return Found(few([f"in two calls, of {k} and {steps - k} steps, {text}" for text in off.values()]), sound)


def _joined(bench: Bench, k: int) -> Result | str:
    """What two calls make together, or why they do not go together."""
    op, arrays, axes = bench.op, bench.arrays(), bench.axes
    y, final = op.outputs
    state, gradient = op.state, f"d {op.state}"
    early, late = ({name: _part(a, axes[name], part) for name, a in arrays.items()} for part in (slice(None, k), slice(k, None)))
    forth = [axes[final].index(axis) for axis in axes[state]]  # a final state may be laid out otherwise than an initial one
    back = [axes[state].index(axis) for axis in axes[final]]
    first = _forward(bench, early)
    if first.gots[final].value is None:
        return f"the first {k} steps leave no state: {first.gots[final].problem}"
    late[state] = first.value(final).transpose(forth)
    second = bench.call(bench.problem_of(late))
    if not bench.forward_only:
        if second.gots[gradient].value is None:
            return f"the last steps give no gradient of the state: {second.gots[gradient].problem}"
        early[f"w {final}"] = second.value(gradient).transpose(back)
        first = bench.call(bench.problem_of(early))
    values = {y: np.concatenate([first.value(y), second.value(y)], axis=axes[y].index(TIME)), final: second.value(final)}
    for name in first.gots:
        if name.startswith("d ") and first.gots[name].value is not None and second.gots[name].value is not None:
            pair = first.value(name), second.value(name)
            if name == gradient:
                values[name] = pair[0]
            elif TIME in axes[name]:
                values[name] = np.concatenate(pair, axis=axes[name].index(TIME))
            else:
                values[name] = pair[0] + pair[1]
    return Result({name: Got(values[name]) if name in values else got for name, got in first.gots.items()}, ())


def _forward(bench: Bench, arrays: dict[str, F64]) -> Result:
    problem = bench.problem_of(arrays)
    return bench.call(Problem(problem.inputs, problem.cotangents))


def _part(array: F64, names: tuple[str, ...], part: slice) -> F64:
    return array[tuple(part if axis == TIME else slice(None) for axis in names)]
