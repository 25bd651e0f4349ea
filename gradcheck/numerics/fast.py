"""The oracle `fast`: an op's own compiled function in the place of `costate`, believed only where it agrees with it.

The function is tried on a part of the very problem it is to solve: some rows, heads, groups and lanes of it, and its first steps,
which is a smaller problem of the same recurrence. There `costate` is cheap. Agreement means that every value lies within both bounds,
that the bounds claim neither more nor much less than those of `costate`, and that the majorants are equal to two digits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gradcheck.numerics.costate import Answer, Answers, costate
from gradcheck.numerics.differences import COARSE_STEP
from gradcheck.numerics.recurrence import BATCH, TIME, Array, Compiled, Recurrence

STEPS = 6
"""First steps of the problem on which a function is tried."""

FACTOR = 4.0
"""How far an error bound may lie below or above that of `costate`: both add up the same roundings."""

DIGITS = 2.0**-7
"""How far a majorant may be off, relative to it: it is a scale, itself taken with a step of 2^-12, by which its rounding is divided."""

FLOOR = 2.0**-64
"""Bounds below this, relative to the largest majorant of the problem, are not compared: they are of what is zero, or as good as."""


class Refused(ValueError):
    """The function does not agree with `costate`, or does not run; the text says how."""


def fast(
    recurrence: Recurrence, function: Compiled, outputs: tuple[str, str], inputs: Mapping[str, Array], w_y: Array, w_s: Array
) -> Answers:
    """Outputs and all gradients by `function`, if it agrees with `costate` on a part of the problem.

    Args:
        recurrence: the step and its axes.
        function: see `Compiled`.
        outputs: names of y and of the final state in what `function` returns.
        inputs, w_y, w_s: as for `costate`.

    Raises:
        Refused: `function` raises, leaves something out, or differs from `costate`.
        ValueError: shapes do not fit.
    """
    part = _part(recurrence, inputs, w_y, w_s)
    want, got = costate(recurrence, *part), _run(recurrence, function, outputs, *part)
    names = (*outputs, *(f"d {name}" for name in recurrence.differentiable))
    ours, theirs = (*want.outputs, *want.gradients.values()), (*got.outputs, *got.gradients.values())
    floor = FLOOR * max(float(answer.majorant.max(initial=0.0)) for answer in ours)
    if wrong := [f"{name} {text}" for name, a, b in zip(names, ours, theirs, strict=True) if (text := _apart(a, b, floor))]:
        raise Refused(f"it disagrees with costate: {wrong[0]}")
    return _run(recurrence, function, outputs, inputs, w_y, w_s)


def _run(
    recurrence: Recurrence, function: Compiled, outputs: tuple[str, str], inputs: Mapping[str, Array], w_y: Array, w_s: Array
) -> Answers:
    try:
        found = function({name: _locked(value) for name, value in inputs.items()}, _locked(w_y), _locked(w_s))
        shapes = {outputs[0]: np.shape(w_y), outputs[1]: np.shape(w_s)} | {
            name: np.shape(inputs[name]) for name in recurrence.differentiable
        }
        answers = {name: Answer(*(np.asarray(part, np.float64) for part in found[name])) for name in shapes}
    except Exception as error:
        raise Refused(f"it does not run: {type(error).__name__}: {error}") from error
    for name, shape in shapes.items():
        if any(part.shape != shape for part in (answers[name].value, answers[name].error, answers[name].majorant)):
            raise Refused(f"it returns {name} in the shape {answers[name].value.shape}, not {shape}")
    y, state = (answers.pop(name) for name in outputs)
    return Answers((y, state), answers)


def _locked(value: Array) -> Array:
    """A view that cannot be written to: a function that overwrites its input raises."""
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view


def _apart(want: Answer, got: Answer, floor: float) -> str:
    """How two answers differ by more than they may, or nothing. What is not finite agrees with nothing."""
    with np.errstate(all="ignore"):
        off = np.abs(got.value - want.value)
        if not (off <= got.error + want.error).all():
            return f"is off by up to {np.max(off):.3g}, where the bounds allow {np.max(got.error + want.error):.3g}"
        if not ((got.error <= FACTOR * want.error + floor) & (want.error <= FACTOR * got.error + floor)).all():
            return f"has an error bound of up to {np.max(got.error):.3g}, and costate's is {np.max(want.error):.3g}"
        if not (np.abs(got.majorant - want.majorant) <= DIGITS * want.majorant + want.error / COARSE_STEP).all():
            return f"has a majorant of up to {np.max(got.majorant):.3g}, and costate's is {np.max(want.majorant):.3g}"
    return ""


def _part(recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array) -> tuple[dict[str, Array], Array, Array]:
    """A smaller problem of the same recurrence: the first steps, and of every other axis the first, middle and last index.

    Of a fine axis (heads) as many are taken from each group that is taken, so that what belongs together stays together.
    """
    sizes: dict[str, int] = {}
    for name, names in recurrence.inputs.items():
        sizes |= dict(zip(names, np.shape(inputs[name]), strict=True))
    taken = {axis: _spread(size) for axis, size in sizes.items()} | {TIME: np.arange(min(sizes[TIME], STEPS))}
    taken[BATCH] = np.unique([0, sizes[BATCH] - 1])
    for coarse, fine in recurrence.groups.items():
        members = sizes[fine] // sizes[coarse]
        taken[fine] = np.concatenate([group * members + np.unique([0, members - 1]) for group in taken[coarse]])

    def cut(value: Array, names: tuple[str, ...]) -> Array:
        return np.array(value[np.ix_(*(taken[axis] for axis in names))], order="C")  # of no axes too, where `ascontiguousarray` adds one

    smaller = {name: cut(np.asarray(inputs[name]), names) for name, names in recurrence.inputs.items()}
    return smaller, cut(np.asarray(w_y), recurrence.output), cut(np.asarray(w_s), recurrence.inputs[recurrence.state])


def _spread(size: int) -> Array:
    """First, middle and last index."""
    return np.unique([0, size // 2, size - 1])
