"""A case made concrete: inputs and cotangents, drawn reproducibly and rounded to the dtype under test."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck._case import Case
from gradcheck._errors import SuiteError, unknown
from gradcheck._op import Op
from gradcheck._truth import F64
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.numerics.recurrence import TIME, axes


@dataclass(frozen=True, slots=True)
class Problem:
    """Inputs by name and one cotangent per output, as float64 arrays that `case.dtype` represents exactly."""

    inputs: Mapping[str, F64]
    cotangents: tuple[F64, F64]


def draw(op: Op, case: Case) -> Problem:
    """The inputs and cotangents of `case`. Equal cases give equal arrays on every machine.

    Cotangents are random in sign and between 0.5 and 1.5 in size: never ones, which hide every defect that permutes or ignores them.

    Raises:
        UsageError: the case names a regime, dtype, variant or axis that the op does not have.
        SuiteError: the regime draws something else than the inputs of the op.
    """
    if case.regime not in op.regimes:
        raise unknown(f"regime of {op.name}", case.regime, op.regimes)
    if case.dtype not in DTYPES:
        raise unknown("dtype", case.dtype, DTYPES)
    sizes = case.sizes
    if missing := set(op.dims) - set(sizes):
        raise unknown(f"size for the axis {', '.join(sorted(missing))} in the case", str(case), op.dims)
    if stray_axes := set(sizes) - set(op.dims):
        raise unknown(f"axis of {op.name}", min(stray_axes), op.dims)
    shapes = op.shapes(sizes, case.variant)
    rng = np.random.default_rng(np.frombuffer(hashlib.sha256(str(case).encode()).digest(), np.uint32))
    drawn = op.regimes[case.regime].draw(rng, shapes)
    for name, shape in shapes.items():
        if name not in drawn or np.shape(drawn[name]) != shape:
            have = f"shape {np.shape(drawn[name])}" if name in drawn else "nothing"
            raise SuiteError(f"op {op.name}: regime {case.regime!r} draws {have} for the input {name}, need shape {shape}")
    if stray := set(drawn) - set(shapes):
        raise SuiteError(f"op {op.name}: regime {case.regime!r} draws {', '.join(sorted(stray))}, which is not an input")
    inputs = {name: drawn[name] if name in op.constants else round_to(drawn[name], case.dtype) for name in shapes}
    return Problem(inputs, _cotangents(op, case, rng))


def _cotangents(op: Op, case: Case, rng: np.random.Generator) -> tuple[F64, F64]:
    """w_y and w_s by the case's objective (see `OBJECTIVES`)."""
    y, state = (
        round_to(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape), case.dtype)
        for shape in op.output_shapes(case.sizes).values()
    )
    if case.objective == "state":
        y = np.zeros_like(y)
    if case.objective in {"y", "impulse"}:
        state = np.zeros_like(state)
    if case.objective == "impulse":
        time = axes(next(iter(op.outputs.values()))).index(TIME)
        steps = np.zeros(case.sizes[TIME])
        steps[rng.integers(case.sizes[TIME])] = 1
        y = y * steps.reshape([-1 if i == time else 1 for i in range(y.ndim)])
    return y, state
