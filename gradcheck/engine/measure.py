"""From what a kernel returned to measurements: one per output and gradient, never summed over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradcheck._op import Op
from gradcheck._truth import F64, Quantity, Truth
from gradcheck._verdict import Measurement
from gradcheck.engine.call import Got
from gradcheck.numerics.dtypes import DTYPES, DType
from gradcheck.numerics.metrics import Comparison, Yardstick, against, rounding_unit, yardstick
from gradcheck.numerics.recurrence import BATCH, TIME, Axes, axes

SCALE_DEFECT = 1e-3
"""The scale error that is spliced into a stranger's gradient: 0.1 %, the smallest that the shipped wrong kernels make."""

ROUNDINGS_IN_SCALE = 16
"""A scale error of fewer roundings than this is no defect but the precision itself: half precision cannot hold 0.1 %."""

INFORMATIVE = 10.0
"""A truth counts when its largest element is at least this many times its own error: one digit."""


Sticks = Mapping[str, Yardstick]


def sticks_of(op: Op, variant: str, dtype: str, truth: Truth) -> Sticks:
    """A yardstick for every output and gradient that is neither structurally zero nor beyond all bounds."""
    layout = quantity_axes(op, variant)
    return {
        name: yardstick(want.value, want.error, rounding_unit(want.majorant, DTYPES[dtype]), layout[name])
        for name, want in truth.quantities().items()
        if want.majorant.any() and np.isfinite(want.value).all()
    }


def measure(
    op: Op,
    variant: str,
    dtype: str,
    truth: Truth,
    outputs: Sequence[Got],
    gradients: Sequence[Got],
    sticks: Sticks | None = None,
    *,
    brief: bool = False,
) -> tuple[Measurement, ...]:
    """One measurement per output, then one per gradient, in the op's order; `gradients` is empty when only the forward was run.

    `sticks` from `sticks_of` spare making them anew. `brief` leaves out what only matters of a clean kernel: profile and spliced defects.
    """
    layout = quantity_axes(op, variant)
    sticks = sticks_of(op, variant, dtype, truth) if sticks is None else sticks
    wanted = truth.quantities()
    names = [*truth.outputs, *(f"d {name}" for name in truth.gradients)]
    values = {name: got.value for name, got in zip(names, (*outputs, *gradients), strict=False) if not got.problem}
    found = []
    for name, got in zip(names, (*outputs, *gradients), strict=False):
        one = _one(name, got, wanted[name], layout[name], sticks.get(name))
        if brief:
            found.append(replace(one, profile=()))
            continue
        twin = next((values[other] for other in values if other != name and _swappable(name, other, values)), None)
        splice = name.startswith("d ") and name in sticks and not one.problem
        found.append(replace(one, spliced=_spliced(sticks[name], twin, DTYPES[dtype])) if splice else one)
    return tuple(found)


def quantity_axes(op: Op, variant: str) -> dict[str, Axes]:
    """Axis names of every output and gradient."""
    inputs = op.recurrence(variant).inputs
    outputs = {name: axes(text) for name, text in op.outputs.items()}
    return outputs | {f"d {name}": inputs[name] for name in op.recurrence(variant).differentiable}


def _swappable(name: str, other: str, values: Mapping[str, F64 | None]) -> bool:
    """Whether two gradients have one shape, so that swapping them is a mistake that nothing else would catch."""
    a, b = values.get(name), values.get(other)
    return name.startswith("d ") and other.startswith("d ") and a is not None and b is not None and a.shape == b.shape


def _one(name: str, got: Got, want: Quantity, names: Axes, stick: Yardstick | None) -> Measurement:
    if got.problem or got.value is None:
        return Measurement(name, problem=got.problem or "is missing")
    checked = got.value.size
    if not np.isfinite(want.value).all():
        return Measurement(name, problem="", checked=checked, informative=False)
    if stick is None:
        nonzero = np.argwhere(~(got.value == 0))
        worst = tuple(int(i) for i in nonzero[0]) if len(nonzero) else ()
        value = float(got.value[worst]) if len(nonzero) else 0.0
        return Measurement(
            name,
            zero="zero-broken" if len(nonzero) else "zero-kept",
            checked=checked,
            axes=names,
            worst=worst,
            got=_finite(value),
            want=0.0,
            worst_step=worst[names.index(TIME)] if worst and TIME in names else None,
        )
    found = against(stick, got.value)
    profile = found.slices.get(TIME)
    bad = int((~np.isfinite(got.value)).sum())
    return Measurement(
        quantity=name,
        problem=f"{bad} of {checked} elements are not finite" if bad else "",
        checked=checked,
        errors=found.errors,
        ratios=found.ratios,
        diluted={form: _finite(value) for form, value in _diluted(found, names).items()},
        axes=names,
        worst=found.worst,
        got=_finite(float(got.value[found.worst])),
        want=_finite(float(want.value[found.worst])),
        worst_step=None if profile is None else int(np.argmax(profile)),
        profile=() if profile is None else tuple(_finite(float(f"{ratio:.4g}")) for ratio in profile),
        informative=bool(np.abs(want.value).max() > INFORMATIVE * want.error.max()),
    )


def head_axis(names: Axes) -> str | None:
    """The axis of heads or groups: the first that is neither batch nor time."""
    return next((axis for axis in names if axis not in {BATCH, TIME}), None)


def _diluted(found: Comparison, names: Axes) -> dict[str, float]:
    """The slice ratios that a defect would have if it struck at the last step alone, or in the first head alone."""
    out = {}
    if TIME in names:
        out["last step"] = float(found.slices[TIME][-1])
    if (head := head_axis(names)) is not None:
        out["one head"] = float(found.slices[head][0])
    return out


def _spliced(stick: Yardstick, twin: F64 | None, dtype: DType) -> dict[str, float | None]:
    """What known defects of this very gradient would measure: `l2` for those of the whole tensor, `slice` for those of one slice."""
    norm = float(np.sqrt(stick.unit_square))
    size = stick.norm / norm
    out: dict[str, float | None] = {"zero": size}
    if dtype.u * ROUNDINGS_IN_SCALE < SCALE_DEFECT:
        out["scale"] = SCALE_DEFECT * size
    if twin is not None and np.isfinite(twin).all():
        out["swap"] = float(np.sqrt(((twin - stick.want) ** 2).sum())) / norm
    for form, axis in {"last step": TIME, "one row": BATCH}.items():
        if axis in stick.axes:
            at = stick.axes.index(axis)
            value, scale = (np.take(a, -1, axis=at) for a in (stick.want, stick.unit))
            out[form] = float(np.sqrt((value**2).mean() / (scale**2).mean()))
    return out


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
