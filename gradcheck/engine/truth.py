"""The truth of a case, and how far the model of a correct kernel is from it: computed once, kept by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Literal, cast

import numpy as np

from gradcheck import math as reference_math
from gradcheck import numerics
from gradcheck._case import Case
from gradcheck._op import Op
from gradcheck._truth import Quantity, Truth
from gradcheck.engine import cache
from gradcheck.engine.call import Got
from gradcheck.engine.grid import grid, select
from gradcheck.engine.measure import measure
from gradcheck.engine.problem import Problem, draw
from gradcheck.numerics.blackbox import blackbox
from gradcheck.numerics.certify import certificate
from gradcheck.numerics.costate import Answers, costate, model
from gradcheck.numerics.dtypes import round_to
from gradcheck.numerics.replay import replay

Oracle = Literal["costate", "blackbox", "replay", "certificate"]
ORACLES: Mapping[str, Callable[..., Answers]] = {"costate": costate, "blackbox": blackbox, "replay": replay, "certificate": certificate}

HALF_CASES = 12
"""Cases of the covering grid per branch that are run with half-precision inputs, which are one more regime rather than a grid of their
own: with two branches 24, enough for a quantile."""


Ratios = Mapping[str, Mapping[str, float | None]]
"""Quantity to metric to multiple of the rounding unit."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a case without any kernel.

    Args:
        truth: what the oracle says.
        noise: how far the model of a correct kernel is off, by the dtype in which it carries the state.
    """

    truth: Truth
    noise: Mapping[str, Ratios]


def cases_of(op: Op, dtypes: Sequence[str], seed: int) -> tuple[Case, ...]:
    """The covering grid in float32, and a part of it, spread evenly, in each half precision; one dtype after the other."""
    whole = {dtype: grid(op, (dtype,), seed=seed) for dtype in dtypes}
    return tuple(
        case for dtype, cases in whole.items() for case in (cases if dtype == "f32" else select(op, cases, cases=(str(HALF_CASES),)))
    )


def carries(dtype: str) -> tuple[str, ...]:
    """The dtypes in which a kernel on inputs of `dtype` may carry its state."""
    return ("f32",) if dtype == "f32" else ("f32", dtype)


def lookup(op: Op, case: Case, oracle: Oracle = "costate") -> Known | None:
    """What the cache knows of `case`."""
    found = cache.get(_key(op, case, oracle))
    return None if found is None else Known(found[0], cast("Mapping[str, Ratios]", found[1]["noise"]))


def know(op: Op, case: Case, oracle: Oracle = "costate") -> tuple[Known, Problem]:
    """The truth of `case` and the model noise there, from the cache or computed and kept, and the problem itself."""
    problem = draw(op, case)
    known = lookup(op, case, oracle)
    if known is None:
        truth = answer(op, case.variant, problem, oracle)
        known = Known(truth, {carry: _noise(op, case, carry, truth, problem) for carry in carries(case.dtype)})
        cache.put(_key(op, case, oracle), truth, {"noise": known.noise})
    return known, problem


def answer(op: Op, variant: str, problem: Problem, oracle: Oracle = "costate") -> Truth:
    """The truth of any problem, drawn or made; not kept."""
    answers = ORACLES[oracle](op.recurrence(variant), problem.inputs, *problem.cotangents)
    outputs = {name: Quantity(a.value, a.error, a.majorant) for name, a in zip(op.outputs, answers.outputs, strict=True)}
    gradients = {name: Quantity(a.value, a.error, a.majorant) for name, a in answers.gradients.items()}
    return Truth(oracle, outputs, gradients)


def _noise(op: Op, case: Case, carry: str, truth: Truth, problem: Problem) -> Ratios:
    """The model of a correct kernel, measured like a kernel: float32 arithmetic, state carried in `carry`, results in `case.dtype`."""
    recurrence = op.recurrence(case.variant)
    y, state, gradients = model(recurrence, problem.inputs, *problem.cotangents, carry="" if carry == "f32" else carry)
    rounded = [Got(round_to(a, case.dtype)) for a in (y, state, *gradients.values())]
    found = measure(op, case.variant, case.dtype, truth, rounded[:2], rounded[2:])
    return {m.quantity: m.ratios for m in found}


def _key(op: Op, case: Case, oracle: Oracle) -> str:
    """Everything that can change the answer: the op's own text, its helpers, our numerics, numpy, and the case."""
    return cache.key_of({"oracle": oracle, "case": str(case), "op": op_digest(op.file), "numerics": own_digest(), "numpy": np.__version__})


def sources_of(op: Op) -> str:
    """A digest of everything that noise and truth depend on but the case: bands of other sources do not count."""
    return cache.key_of({"op": op_digest(op.file), "numerics": own_digest()})


@once
def op_digest(file: str) -> str:
    """A digest of an op's file and the helpers beside it."""
    path = Path(file)
    return cache.source_digest([path, *sorted(path.parent.glob("_*.py"))])


@once
def own_digest() -> str:
    """A digest of everything of ours that a truth depends on."""
    # The numerics, and what turns their answers into the noise that is kept beside the truth.
    here = Path(__file__).parent
    folder = Path(str(numerics.__file__)).parent
    return cache.source_digest([Path(str(reference_math.__file__)), folder, here / "measure.py", here / "problem.py", Path(__file__)])
