"""Why a kernel is off: the case, the form in which it computes, or a mistake.

Three questions, none of which a wrong kernel answers as a right one does:

* **Is it more than the case's own noise explains?** That noise is of the oracle alone: the reference in float32, and at inputs that
  are moved by one rounding (`truth.own_noise`). If not, no error has been shown: the truth itself moves that much. The gradient of a
  gate is not asked for itself but for what it brings to what is trained behind it, where the suite says what that is (`Trained`).
* **Does the error repeat?** The inputs are moved a little, truth and kernel are asked again, and the two errors compared. A mistake
  makes the same error again; rounding, however much amplified, makes another one.
* **Does the very same call repeat?** If not, neither question means anything.

Not to repeat is needed for both lenient words, so that a mistake below the noise of an ill-conditioned case is still called one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from gradcheck._case import Case
from gradcheck._op import Op
from gradcheck._trained import Trained
from gradcheck._truth import F64, Truth
from gradcheck._verdict import Evidence, Measurement
from gradcheck.calibrate.judge import Tolerances, within
from gradcheck.calibrate.noise import FACTOR
from gradcheck.engine.call import Call
from gradcheck.engine.execute import Job, attempt, op_of
from gradcheck.engine.measure import measure
from gradcheck.engine.problem import Problem
from gradcheck.engine.trained import carried_from, carried_noise, trained_of
from gradcheck.engine.truth import FURTHER_RUNS, ROUNDING, Ratios, answer, know, own_noise
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.numerics.metrics import rounding_unit

Kind = Literal["ill-conditioned", "rounding", "mistake"]

MOVES = (3, 12)
"""How often the inputs are moved, at least and at most."""

SURE = 110
"""Elements that are off times moves, from which on no error repeats by chance.

The signs of n elements are then alike by `REPEATS` and more, in each of m moves, once in exp(n m REPEATS^2 / 2), which is a million.
"""

LITTLE = 2.0**-10
"""How far, relative to each: far enough that a sum of a thousand times their size is rounded anew, and a mistake is still the same.

Measured on the scan in chunks by exponentials of differences of cumulative sums, which fails 40 of 132 cases: the cosines of its errors
are below 0.3 at nearly all of them (at 2^-14 some are 0.5 and more). Planted mistakes have 0.95 and more.
"""

FEW = 8
"""How many roundings, where the case explains the error: an ill-conditioned truth is another one further off."""

SAME = 2.0
"""Factor within which an element's error is the same again after a move. One of rounding has the same sign by a half chance and then the same
size by less than two thirds; one in two million is the same in `MOVES[1]` moves."""

HANDFUL = 8
"""Where fewer elements are off each is looked at by itself, and one that stays is a mistake: two that change their sign would hide the others
from the cosine."""

REPEATS = 0.5
"""Cosine of two errors from which on they are one: that of two vectors which share half of what they are. Errors of rounding have about
0, give or take one over the root of the number of elements that are off; a mistake has 1."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a closer look at a failed case says.

    Args:
        kind: whether the case, rounding in the kernel's form, or a mistake explains the error.
        repeats: least cosine between its error and that at inputs moved a little, of the quantity in which it repeats most: by a `FEW` roundings where the case explains the error, else by `LITTLE`.
        excess: the error in units of what the case's own noise explains, in the metric that is exceeded most. Of a gate's gradient it
            is the error in what is `trained` behind it.
        trained: the inputs that an error in a gate's gradient was carried to.
        alone: the excess where a gate's gradient counts as any other.
    """

    kind: Kind
    repeats: float
    excess: float
    trained: tuple[str, ...] = ()
    alone: float = 0.0

    def __str__(self) -> str:
        there = f" in {self._trained}," if self.trained else ""
        if self.kind == "ill-conditioned" and self.alone > 1:
            return (
                f"ill-conditioned, not wrong: where its gate saturates the error is {self.alone:.2g} times what rounding explains, and what it "
                f"comes to{there} is {self.excess:.2g} of what is explained there (it does not repeat: cosine {self.repeats:.2f})"
            )
        if self.kind == "ill-conditioned":
            return (
                f"ill-conditioned, not wrong: the truth itself moves as much when inputs move by one rounding (the error is {self.excess:.2g} "
                f"of what that explains, and does not repeat: cosine {self.repeats:.2f})"
            )
        if self.kind == "rounding":
            return (
                f"numerically poor: the error{there} is {self.excess:.2g} times what rounding explains of the recurrence, and yet is rounding, "
                f"for it does not repeat when inputs move by {LITTLE:.0e} (cosine {self.repeats:.2f}): the form amplifies it"
            )
        return f"a mistake: the error repeats when inputs move (cosine {self.repeats:.2f}){self.spared}"

    @property
    def spared(self) -> str:
        """What to add of a mistake in a gate's gradient that does not reach what is trained behind it; nothing where there is none."""
        if not self.trained or self.excess > 1:
            return ""
        return f"; what it comes to in {self._trained}, is {self.excess:.2g} of what rounding explains there"

    @property
    def _trained(self) -> str:
        """What is trained behind the gate, `a at exp(A_log) = 16` as `a`."""
        names = tuple(dict.fromkeys(name.partition(" at ")[0] for name in self.trained))
        return f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}, trained behind it"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a worker to look at a clean kernel at a case at which it failed by numbers.

    Args:
        job: of the kernel, with the tolerances that it exceeded.
        carry: dtype in which it carries its state.
    """

    job: Job
    carry: str


def look(ask: Ask) -> Look | None:
    """What explains the error; None where that cannot be told, since the kernel does not repeat itself or returns no numbers."""
    job = ask.job
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    known, problem = know(op, case)
    first = _off(op, case, job, problem, known.truth)
    again = _off(op, case, job, problem, known.truth)
    if first is None or again is None or not _same(first.call, again.call):
        return None
    failed = [m.quantity for m in first.measured if not within(m, job.tolerances)]
    if not failed or any(m.problem or m.zero == "zero-broken" for m in first.measured):
        return None
    excesses = _excesses(first.measured, job.tolerances, own_noise(op, case, ask.carry, known, problem))
    trained = _trained(op, case, ask, problem, known.truth, first, failed)
    gates = {f"d {one.through}" for one in trained}
    excess = max([*(much for name, much in excesses.items() if name not in gates), *trained.values()])
    alone = max(excesses.values())
    names = tuple(one.name for one, much in trained.items() if excess <= 1 or much == excess)
    rounding = 2 * DTYPES[case.dtype].u
    cosines: dict[str, list[float]] = {name: [] for name in failed}
    stay = {name: _few(first.errors[name]) for name in failed}  # in the end the elements that are off by the same in every move
    for number in range(MOVES[1]):
        if (
            number >= MOVES[0]
            and not any(_by_chance(_clipped(first.errors[name]), found) for name, found in cosines.items())
            and not (excess <= 1 and any(map(np.any, stay.values())))
        ):
            break
        moved = _moved(op, case, problem, number, (FEW * rounding) if alone <= 1 else max(LITTLE, rounding))
        there = _off(op, case, job, moved, answer(op, case.variant, moved))
        if there is None:
            return None
        for name in failed:
            one, other = first.errors[name], there.errors[name]
            cosines[name].append(_cosine(_clipped(one), _clipped(other)))
            stay[name] &= (one * other > 0) & (np.abs(other) < SAME * np.abs(one)) & (np.abs(one) < SAME * np.abs(other))
    repeats = max(map(min, cosines.values()))  # a mistake repeats every time, and may be in one of them only
    if excess <= 1 and any(map(np.any, stay.values())):
        repeats = 1.0  # or in a few elements: of those that stay it is the cosine
    if not (repeats < REPEATS):
        return Look("mistake", repeats, excess, names, alone)
    return Look("ill-conditioned" if excess <= 1 else "rounding", repeats, excess, names, alone)


@dataclass(frozen=True, slots=True)
class _Off:
    call: Call
    measured: tuple[Measurement, ...]
    errors: Mapping[str, F64]


def _off(op: Op, case: Case, job: Job, problem: Problem, truth: Truth) -> _Off | None:
    """What the kernel does there, and its errors, less the oracle's own, in units of the tolerance of z."""
    got = attempt(job, problem)
    if isinstance(got, Evidence) or got.notes:
        return None
    gots = (*got.outputs, *got.gradients)
    errors = {}
    for (name, want), one in zip(truth.quantities().items(), gots, strict=False):
        if one.value is None or not np.isfinite(one.value).all() or not np.isfinite(want.value).all():
            return None
        unit = rounding_unit(want.majorant, DTYPES[case.dtype]) * job.tolerances[name]["z"]
        off = one.value - want.value
        errors[name] = np.sign(off) * np.maximum(np.abs(off) - want.error, 0.0) / unit
    return _Off(got, measure(op, case.variant, case.dtype, truth, got.outputs, got.gradients), errors)


def _same(a: Call, b: Call) -> bool:
    pairs = zip((*a.outputs, *a.gradients), (*b.outputs, *b.gradients), strict=True)
    return all(np.array_equal(one.value, other.value) for one, other in pairs if one.value is not None and other.value is not None)


def _moved(op: Op, case: Case, problem: Problem, number: int, by: float) -> Problem:
    """The problem with every differentiable input moved up or down by this part of it, at random."""
    rng = np.random.default_rng(np.frombuffer(hashlib.sha256(f"move {number} of {case}".encode()).digest(), np.uint32))
    inputs = {
        name: value if name in op.constants else round_to(value * (1 + by * rng.choice([-1, 1], value.shape)), case.dtype)
        for name, value in problem.inputs.items()
    }
    return replace(problem, inputs=inputs)


def _few(error: F64) -> npt.NDArray[np.bool_]:
    """The elements that are off, if they are a handful at most; else none."""
    off: npt.NDArray[np.bool_] = np.abs(error) > 1
    return off if off.sum() < HANDFUL else np.zeros_like(off)


def _clipped(error: F64) -> F64:
    """No element counted for more than one."""
    return np.clip(error, -1.0, 1.0)


def _cosine(a: F64, b: F64) -> float:
    both = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / both if both > 0 else 0.0


def _by_chance(error: F64, cosines: Sequence[float]) -> bool:
    """Whether an error that repeated in each of these moves may have done so by chance, since few elements are off."""
    squares = float((error**2).sum())
    elements = float(np.abs(error).sum()) ** 2 / squares if squares > 0 else 0.0
    return min(cosines) >= REPEATS and elements * len(cosines) < SURE


def _excesses(measured: tuple[Measurement, ...], tolerances: Tolerances, own: Ratios) -> dict[str, float]:
    """The error of each output and gradient, see `_excess`."""
    return {m.quantity: _excess(m.ratios, tolerances[m.quantity], own[m.quantity]) for m in measured}


def _excess(ratios: Mapping[str, float | None], tolerances: Mapping[str, float], own: Mapping[str, float | None]) -> float:
    """The largest error in units of what is tolerated or, where that is more, of k times the case's own noise; infinite for no number."""
    worst = 0.0
    for metric, ratio in ratios.items():
        allowed = max(tolerances[metric], FACTOR * (own[metric] or 0.0))
        worst = max(worst, float("inf") if ratio is None or not np.isfinite(ratio) else ratio / allowed)
    return worst


def _trained(op: Op, case: Case, ask: Ask, problem: Problem, truth: Truth, off: _Off, failed: Sequence[str]) -> dict[Trained, float]:
    """What is trained behind gates whose gradients failed, each with the error there, see `_excess`; with the tolerances of those."""
    known = [one for one in trained_of(ask.job.source, op.name) if f"d {one.through}" in failed]
    gots = {name: got.value for name, got in zip(truth.gradients, off.call.gradients, strict=True) if got.value is not None}
    found = carried_from(known, op, case, problem.inputs, truth, gots)
    if not found:
        return {}
    moved = [_moved(op, case, problem, number, ROUNDING) for number in range(FURTHER_RUNS)]
    own = carried_noise(list(found), op, case, ask.carry, truth, [problem, *moved])
    return {one: _excess(ratios, ask.job.tolerances[f"d {one.through}"], own[one]) for one, ratios in found.items()}
