"""`gradcheck.gradcheck`: is the gradient of a function right, with no op file at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradcheck._errors import UsageError
from gradcheck._truth import F64
from gradcheck.engine.call import Call, Got, NoBackward, call
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.testing._function import LONG, Function, Inputs, function_of, inputs_of
from gradcheck.testing._result import WEAK, Gradient, Result
from gradcheck.testing._slopes import COARSE_STEP, FINE_STEP, Loss, Slopes, kink, slopes

__all__ = ["Result", "gradcheck"]

FACTOR = 16.0
"""How many times further off a right gradient may be than one rounding of inputs and cotangents moves it.

What right functions need of it is measured in `docs/how-to/use-in-pytest.md`.
"""

DRAWS = 12
"""Ways to round inputs and cotangents. In a third of them all elements of an array move the same way, as in a sum that is rounded."""

SAME = 2.0**-10
"""Outputs of one function in two precisions are nearer than this, relative to their norm; else it is another function there."""

_SHORT = {dtype.long: dtype for dtype in DTYPES.values()}


def gradcheck(fn: object, inputs: object, *, seed: int = 0) -> Result:
    """Compare a function's own gradients with differences of the function, element by element.

        L = sum of w . f(inputs) over all outputs,     w random, of either sign, between 0.5 and 1.5 in size

    The differences are taken in float64 where the function can be evaluated so. Then a gradient in the inputs' own dtype may be off by
    what rounding explains: FACTOR times what one rounding of inputs and cotangents does to the function's float64 gradient, which must
    itself agree with the differences. Where it cannot (a custom Metal kernel), differences of its float32 outputs are taken with large
    steps, their noise is measured, and the result says how small an error would have shown.

    The function is called twice at the same inputs first: one that gives other outputs or gradients, by more than rounding, has no slope.
    It runs in this process: one that crashes takes the process along.

    Args:
        fn: a callable on MLX arrays, differentiated by `mx.vjp`; or an object with `forward(*inputs)` and `vjp(inputs, cotangents)`.
        inputs: an array, a sequence of arrays, or arrays by name in the order of the arguments. The floating ones, all of one dtype,
            are differentiated. float64 is rounded to float32.
        seed: of the weights w.

    Returns:
        True where every gradient of every input is right; `str` of it says what is wrong, and what could not have been seen.

    Raises:
        UsageError: nothing can be compared: no floating input or output, or no gradient at all.
    """
    function = function_of(fn)
    given = inputs_of(inputs, lambda values, dtype: round_to(values, _SHORT[dtype].name))
    dtype = _SHORT[given.dtype]
    base = _outputs(function, given)
    rng = np.random.default_rng(seed)
    weights = [round_to(rng.uniform(0.5, 1.5, out.shape) * rng.choice([-1.0, 1.0], out.shape), dtype.name) for out in base]
    if bad := [i for i, out in enumerate(base) if not np.isfinite(out).all()]:
        return Result((), given.dtype, f"output {bad[0]} is not finite: no gradient can be checked here")
    try:
        found, again = (
            call(
                fn,
                {name: value.astype(np.float64) if name in given.differentiable else value for name, value in given.values.items()},
                weights,
                dtype=dtype.name,
                output_shapes=[out.shape for out in base],
                differentiable=given.differentiable,
            )
            for _ in range(2)
        )
    except NoBackward as error:
        raise UsageError(f"nothing to compare: {error}") from error
    except Exception as error:  # noqa: BLE001 - the forward ran, so this is the backward's, and a verdict
        return Result((), given.dtype, f"its backward raised {type(error).__name__}: {error}")
    unsteady, size = _unsteady(found, again, given.differentiable)
    if not (size <= FACTOR * dtype.u):
        return Result((), given.dtype, f"{unsteady}; draw what is random outside of the function, or fix its seed")
    precision = _precision(function, given, base)
    spread = _spread(function, given, weights, dtype.u) if precision == LONG else {}
    rows = []
    for name, got in zip(given.differentiable, found.gradients, strict=True):
        if given.values[name].size:
            rows.append(_compare(function, given, precision, weights, name, got, spread.get(name), unsteady))
    return Result(tuple(rows), precision, "; ".join(found.notes))


def _unsteady(first: Call, second: Call, names: Sequence[str]) -> tuple[str, float]:
    """What differs most between two calls at the same inputs, and by what share of its norm; nothing and 0 where no bit does."""
    whats = [*(f"output {i}" for i in range(len(first.outputs))), *(f"d {name}" for name in names)]
    moved = []
    pairs = zip((*first.outputs, *first.gradients), (*second.outputs, *second.gradients), strict=True)
    for what, (one, other) in zip(whats, pairs, strict=True):
        if one.value is None or other.value is None or np.array_equal(one.value, other.value, equal_nan=True):
            continue
        share = float(np.linalg.norm(other.value - one.value) / (np.linalg.norm(one.value) or 1.0))
        moved.append((np.inf if np.isnan(share) else share, what))
    if not moved:
        return "", 0.0
    share, what = max(moved)
    return f"it is not deterministic: two calls at the same inputs differ in {what}, by {share:.1g} of its norm", share


def _outputs(function: Function, given: Inputs) -> list[F64]:
    """The outputs in the inputs' own dtype."""
    outputs = function.forward(given, given.dtype)
    for i, output in enumerate(outputs):
        kind = function.arrays.dtype_of(output) if function.arrays.is_array(output) else type(output).__name__
        if kind not in {given.dtype, "float32"}:
            raise UsageError(
                f"output {i} is {kind}, which has no gradient here; wrap the function so that it returns floating outputs only"
            )
    numbers = [function.arrays.numbers(output) for output in outputs]
    if not sum(out.size for out in numbers):
        raise UsageError("nothing to compare: the function returns no output with an element")
    return numbers


def _precision(function: Function, given: Inputs, base: Sequence[F64]) -> str:
    """float64 where the function can be evaluated in it and is the same function there; else float32."""
    try:
        outputs = function.forward(given, LONG)
    except Exception:  # noqa: BLE001 - whatever it raises, it cannot take float64
        return "float32"
    if len(outputs) != len(base) or any(not function.arrays.is_array(out) or function.arrays.dtype_of(out) != LONG for out in outputs):
        return "float32"
    close = _SHORT[given.dtype].u / _SHORT["float32"].u * SAME
    pairs = zip((function.arrays.numbers(out) for out in outputs), base, strict=True)
    same = all(a.shape == b.shape and np.linalg.norm(a - b) <= close * np.linalg.norm(a) for a, b in pairs)
    return LONG if same else "float32"


def _spread(function: Function, given: Inputs, weights: Sequence[F64], u: float) -> dict[str, tuple[F64, F64]]:
    """By input: the function's own float64 gradient, and how far one rounding of inputs and cotangents moves it, elementwise."""
    rng = np.random.default_rng(DRAWS)

    def moved(values: F64, draw: int) -> F64:
        signs = rng.choice([-1.0, 1.0], size=() if draw % 3 == 0 else values.shape)
        return np.asarray(values * (1 + u * signs), np.float64)

    try:
        own = function.vjp(given, weights)
        draws = []
        for draw in range(DRAWS):
            values = {
                name: moved(value.astype(np.float64), draw) if name in given.differentiable else value
                for name, value in given.values.items()
            }
            near = Inputs(values, given.differentiable, given.dtype)
            draws.append(function.vjp(near, [moved(weight, draw) for weight in weights]))
    except Exception:  # noqa: BLE001 - its backward cannot take float64, whatever it raises; its forward can
        return {}
    out = {}
    for i, name in enumerate(given.differentiable):
        here, there = own[i], [gradient for found in draws if (gradient := found[i]) is not None]
        if here is not None and len(there) == DRAWS:
            out[name] = here, np.max([np.abs(one - here) for one in there], axis=0)
    return out


def _compare(
    function: Function,
    given: Inputs,
    precision: str,
    weights: Sequence[F64],
    name: str,
    got: Got,
    long: tuple[F64, F64] | None,
    unsteady: str,
) -> Gradient:
    """One gradient against the differences.

    `long` is the float64 gradient and how far rounding moves it, where there is one; `unsteady` explains what is off better than a kink.
    """
    if got.problem or got.value is None:
        return Gradient(name, got.problem or "is missing")
    loss = _loss(function, given, precision, weights, name)
    point = given.values[name].astype(np.float64)
    largest = max(float(np.abs(w * out).max(initial=0.0)) for w, out in zip(weights, function.numbers(given, precision), strict=True))
    unit = _SHORT["float32"].u if precision != LONG else float(np.finfo(np.float64).eps) / 2
    truth = slopes(loss, point, long=precision == LONG, quantum=unit * largest)
    u = _SHORT[given.dtype].u
    tolerance, source = _tolerance(truth, long, u)
    zero = bool((np.abs(truth.value) <= truth.error).all())
    # Of no slope an error cannot be relative: then it is what the rounding of the outputs amounts to, over the input.
    floor = FACTOR * u * largest / (float(np.abs(point).max()) or 1.0)
    if zero and 0 < truth.error.max() <= floor:
        tolerance, source = np.maximum(tolerance, floor), f"{FACTOR:g} roundings of the outputs, since the gradient is zero"
    off = np.abs(got.value - truth.value) / np.maximum(tolerance, np.finfo(np.float64).tiny)
    at = tuple(int(i) for i in np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off)), off.shape))
    told = float(np.max(np.abs(truth.value) / np.maximum(tolerance, np.finfo(np.float64).tiny)))
    lost = zero and not (truth.error.max() <= floor)
    visible = None if zero and not lost else 1 / told if told else np.inf
    problem = _problem(truth, got.value, off)
    if not problem and (visible is not None and not (visible < 1)):
        problem = "it is lost in the noise of the differences, so that nothing can be said of it"
    if problem and unsteady:
        problem += f"; {unsteady}"
    elif problem and (sides := kink(loss, point, at, FINE_STEP if precision == LONG else COARSE_STEP)):
        problem += f"; the input is at or near a kink: slope {sides[0]:.4g} to the left, {sides[1]:.4g} to the right; move it away"
    return Gradient(
        name,
        problem,
        got.value.size,
        at,
        float(got.value[at]),
        float(truth.value[at]),
        float(tolerance[at]),
        source,
        None if visible is None else float(visible),
        0 if visible is None else int((~(tolerance <= WEAK * _size(truth))).sum()),
    )


def _loss(function: Function, given: Inputs, precision: str, weights: Sequence[F64], name: str) -> Loss:
    base = function.numbers(given, precision)

    def loss(moved: F64) -> F64:
        outputs = function.numbers(given.with_(name, moved), precision)
        return np.concatenate([(w * (out - at)).ravel() for w, out, at in zip(weights, outputs, base, strict=True)])

    return loss


def _tolerance(truth: Slopes, long: tuple[F64, F64] | None, u: float) -> tuple[F64, str]:
    """(elementwise tolerance, where it comes from)."""
    of_differences = f"{float(np.median(truth.error)):.1g} of the differences"
    if long is not None:
        own, spread = long
        rounding = FACTOR * spread * np.finfo(np.float64).eps / 2 / u  # of the float64 gradient itself
        if bool((np.abs(own - truth.value) <= truth.error + rounding).all()):
            return FACTOR * spread + u * np.abs(truth.value) + truth.error, (
                f"{FACTOR:g} times what one rounding of inputs and cotangents does to the float64 gradient, which the differences confirm, "
                f"and {of_differences}"
            )
    norm = float(np.sqrt(np.mean(truth.value**2)))
    return FACTOR * u * (np.abs(truth.value) + norm) + truth.error, (
        f"{FACTOR:g} roundings of the element and of the gradient's rms, and {of_differences} (no float64 gradient that these confirm)"
    )


def _problem(truth: Slopes, got: F64, off: F64) -> str:
    """What is wrong with a gradient, or nothing."""
    if bad := int((~np.isfinite(got)).sum()):
        return f"{bad} of {got.size} elements are not finite"
    open_ = ~(truth.truncation <= WEAK * _size(truth)) & (truth.truncation > 0.5 * truth.error)
    if wrong := int((~(off <= 1) & ~open_).sum()):
        return f"{wrong} of {got.size} elements differ from the truth"
    if open_.any():
        return f"the differences do not settle at {int(open_.sum())} elements"
    return ""


def _size(truth: Slopes) -> F64:
    """What an error of an element is relative to: itself, or the rms of its gradient if that is more."""
    return np.maximum(np.abs(truth.value), float(np.sqrt(np.mean(truth.value**2))))
