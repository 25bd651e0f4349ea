"""One item of `--oracle self`, done in a worker: a kernel's gradients against differences of its own forward, and against the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gradcheck._case import Case
from gradcheck._truth import F64
from gradcheck._verdict import Evidence, Status, WorkItem
from gradcheck.engine.arrays import arrays_of
from gradcheck.engine.execute import Job, attempt, kernel_of, op_of, trial
from gradcheck.engine.measure import measure
from gradcheck.engine.truth import know
from gradcheck.numerics.metrics import signed_asymmetry
from gradcheck.numerics.selfdiff import self_gradients


@dataclass(frozen=True, slots=True)
class SelfJob:
    """A work item, and how to difference: `stencil` points, `step` in the units of the inputs."""

    job: Job
    stencil: int
    step: float


@dataclass(frozen=True, slots=True)
class SelfEvidence:
    """What one item yielded.

    Args:
        item: the work item.
        status: `measured`, or how it failed to be.
        maa: by input, ggml's measure against the differences; None is not finite, or no gradient at all.
        l2: by input, relative L2 against the float64 truth; None likewise.
        detail: error text; of a measured item, what is a failure by itself (`forward overwrites its input x`).
        seconds: wall time.
    """

    item: WorkItem
    status: Status
    maa: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    l2: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    detail: str = ""
    seconds: float = 0.0


def measure_self(ask: SelfJob) -> SelfEvidence:
    """The evidence of one item; whatever the kernel raises is part of it."""
    began = time.perf_counter()
    return replace(_measured(ask), seconds=time.perf_counter() - began)


def _measured(ask: SelfJob) -> SelfEvidence:
    item = ask.job.item
    op, case = op_of(ask.job.source, item.op), Case.parse(item.case)
    known, problem = know(op, case)
    names = op.recurrence(case.variant).differentiable
    got = attempt(ask.job, problem)
    if isinstance(got, Evidence):
        return SelfEvidence(item, got.status, detail=got.detail)
    if bad := next((one.problem for one in got.outputs if one.problem), ""):
        return SelfEvidence(item, "raised", detail=f"the forward: an output {bad}")
    forward = own_forward(kernel_of(ask.job), case.dtype, names)
    numeric = trial(item, lambda: self_gradients(forward, problem.inputs, problem.cotangents, names, points=ask.stencil, step=ask.step))
    if isinstance(numeric, Evidence):
        return SelfEvidence(item, numeric.status, detail=numeric.detail)
    analytic = dict(zip(names, got.gradients, strict=True))
    found = {m.quantity: m for m in measure(op, case.variant, case.dtype, known.truth, got.outputs, got.gradients)}
    maa = {name: None if one.value is None else signed_asymmetry(one.value, numeric[name]) for name, one in analytic.items()}
    l2 = {name: 0.0 if found[f"d {name}"].zero == "zero-kept" else found[f"d {name}"].errors.get("l2") for name in names}
    notes = [f"d {name} {one.problem}" for name, one in analytic.items() if one.problem]
    return SelfEvidence(item, "measured", maa, l2, "; ".join([*got.notes, *notes]))


def own_forward(kernel: object, dtype: str, moving: Sequence[str]) -> Callable[[Mapping[str, npt.NDArray[np.generic]]], Sequence[F64]]:
    """The kernel's forward on plain arrays. `call` has already looked at what it returns; here it is called hundreds of times."""
    arrays = arrays_of(kernel)
    function = cast("Callable[..., Any]", getattr(kernel, "forward", kernel))

    def forward(inputs: Mapping[str, npt.NDArray[np.generic]]) -> Sequence[F64]:
        # Fresh arrays each time: a kernel that writes on its inputs spoils nothing.
        returned = function(*(arrays.make(value, dtype if name in moving else "") for name, value in inputs.items()))
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        return [arrays.numbers(output) for output in outputs]

    return forward
