"""The error in the gradient of a gate, carried to what is trained behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gradcheck._case import Case
from gradcheck._op import Op
from gradcheck._trained import Trained
from gradcheck._truth import F64, Quantity, Truth
from gradcheck.engine.execute import Source, suite_of
from gradcheck.engine.problem import Problem
from gradcheck.numerics.costate import model
from gradcheck.numerics.dtypes import DTYPES, DType, round_to
from gradcheck.numerics.metrics import compare, rounding_unit
from gradcheck.numerics.recurrence import BATCH, TIME, Axes, axes

CLOSED = 2.0**-4
"""A gate whose slope is below this part of the largest, in any sequence and step, is closed: it saturates. Gates from 0.3 to 0.95 are open."""

Ratios = Mapping[str, float | None]
"""Metric to multiple of the rounding unit."""


def trained_of(source: Source, op: str) -> tuple[Trained, ...]:
    """What is trained behind the inputs of an op, as a worker finds it."""
    return tuple(one for one in suite_of(source).trained.values() if one.op == op)


def carried(one: Trained, names: Axes, value: F64, got: F64, want: Quantity, dtype: DType) -> Ratios | None:
    """By every metric how far the gradient of a trained input is off, if that of the gate is `got`.

    With f' the slope and e the error in the gate's gradient, f' e is compared with what rounding is of f' times the truth, over the whole by
    l2 and max. A factor leaves every single element as it is, so by z, slice and maa open gates are judged by e itself, and of closed ones
    f' e is compared, by z, with the rounding of the open ones that go into the same trained number. Of a gate that is equally open everywhere
    that is to judge its own gradient. Where the trained input has fewer axes, sums are compared, by all five.

    Args:
        one: the trained input.
        names: axis names of the gate.
        value: the gate.
        got, want: its gradient, by the kernel and in truth.
        dtype: of the kernel's results.

    Returns:
        None where the slope is zero everywhere, so that this case trains nothing.
    """
    slope = one.slope(value)
    weight = np.abs(slope)
    if not weight.any():
        return None
    lost = tuple(at for at, axis in enumerate(names) if one.axes is not None and axis not in axes(one.axes))
    left = tuple(axis for at, axis in enumerate(names) if at not in lost)
    unit = rounding_unit((weight * want.majorant).sum(lost), dtype)
    whole = compare((slope * got).sum(lost), (slope * want.value).sum(lost), (weight * want.error).sum(lost), unit, left).ratios
    if lost:
        return whole
    shared = tuple(at for at, axis in enumerate(names) if axis in {BATCH, TIME})
    open_ = weight > weight.max(shared, keepdims=True) * CLOSED
    off = weight * np.maximum(np.abs(got - want.value) - want.error, 0.0)
    let_through = np.where(open_, 0.0, off / unit.max(shared, keepdims=True)).max()
    each = compare(np.where(open_, got, want.value), want.value, want.error, rounding_unit(want.majorant, dtype), names).ratios
    return {**each, "l2": whole["l2"], "max": whole["max"], "z": max(each["z"] or 0.0, float(let_through))}


def carried_from(
    known: Sequence[Trained], op: Op, case: Case, inputs: Mapping[str, F64], truth: Truth, gots: Mapping[str, F64]
) -> dict[Trained, Ratios]:
    """Each trained input that this case trains, with how far its gradient is off if those of the op's inputs are `gots`, by name."""
    names = op.recurrence(case.variant).inputs
    found = {}
    for one in known:
        ratios = carried(one, names[one.through], inputs[one.through], gots[one.through], truth.gradients[one.through], DTYPES[case.dtype])
        if ratios is not None:
            found[one] = ratios
    return found


def carried_noise(
    known: Sequence[Trained], op: Op, case: Case, carry: str, truth: Truth, problems: Sequence[Problem]
) -> dict[Trained, dict[str, float]]:
    """What rounding explains there: by metric the largest of runs of the model of a correct kernel, at these problems, against `truth`."""
    most: dict[Trained, dict[str, float]] = {}
    for problem in problems:
        _, _, gradients = model(op.recurrence(case.variant), problem.inputs, *problem.cotangents, carry="" if carry == "f32" else carry)
        rounded = {name: round_to(gradient, case.dtype) for name, gradient in gradients.items()}
        for one, ratios in carried_from(known, op, case, problem.inputs, truth, rounded).items():
            before = most.setdefault(one, {})
            before.update({metric: max(before.get(metric, 0.0), ratio or 0.0) for metric, ratio in ratios.items()})
    return most
