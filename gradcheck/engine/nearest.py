"""Which known defect a wrong kernel looks like: the mutant that moves the gradients the same way."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from gradcheck._case import Case
from gradcheck._mutant import Mutant
from gradcheck._truth import F64, Truth
from gradcheck._verdict import Evidence, WorkItem
from gradcheck.engine.call import Call
from gradcheck.engine.execute import Job, Source, attempt, job_of, op_of
from gradcheck.engine.plan import Subject
from gradcheck.engine.problem import Problem
from gradcheck.engine.truth import know
from gradcheck.metal.settings import configured
from gradcheck.process import Died, Standing

ALIKE = 0.95
"""Least cosine that means something.

Measured over the catalogue of the scan, all pairs of its mutants, three cases in each branch: of two mutants that are different defects
the cosine is below 0.2 in 90 % of the pairs, below 0.65 in 98 %, and 0.86 at most (one of them a part of the other). Of one defect in
two kernels of different code it is 0.999 or more. Pairs above 0.95 are one defect twice, or the same term at another size.
"""

TIE = 1e-3
"""Mutants whose cosines differ by less than this cannot be told apart at these cases."""

SAME_SIZE = (0.9, 1.1)
"""Of mutants that point the same way (a term dropped, or subtracted) the one whose size fits is meant."""

NAMED = 3
"""Names that are told where several mutants cannot be told apart."""

SECONDS = 15.0
"""Time after which no further mutant is tried; as much again for those of Metal kernels, which must be compiled."""

OF_THREADS = frozenset({"race-barrier", "warp-size", "thread-partition", "missing-init", "out-of-bounds-write", "compiler-miscompile"})
"""Classes of defects in how threads share out work and memory: what comes of one hangs on the machine, and no other code errs alike."""

FURTHER = 2
"""Cases beside the first at which a mutant that looks alike must go on looking alike."""

Residual = Mapping[str, F64]
"""Case and gradient to the error there, in norms of the true gradient."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The mutant that a wrong kernel looks like most.

    Args:
        mutants: its name, and those of others that cannot be told from it at these cases.
        why: what goes wrong in it.
        cosine: between the errors of the kernel and what the mutant changes.
        size: how large the kernel's error is, of the mutant's.
        tried, known: how many mutants were compared, of how many.
    """

    mutants: tuple[str, ...]
    why: str
    cosine: float
    size: float
    tried: int
    known: int

    @property
    def close(self) -> bool:
        """Whether it looks so much like it that this means something."""
        return self.cosine >= ALIKE

    def __str__(self) -> str:
        some = "" if self.tried == self.known else f"; {self.tried} of {self.known} mutants were tried"
        if not self.close:
            return f"looks like no known mutant: the nearest is `{self.mutants[0]}` (cosine {self.cosine:.2f}{some})"
        names = " or ".join(f"`{name}`" for name in self.mutants[:NAMED])
        others = len(self.mutants) - NAMED
        more = f" or {others} others" if others > 0 else ""
        part = "" if SAME_SIZE[0] <= self.size <= SAME_SIZE[1] else f", {self.size:.2g} times its size"
        return f"looks most like mutant {names}{more} (cosine {self.cosine:.3f}{part}{some}): {self.why}"


@dataclass(frozen=True, slots=True)
class Keep:
    """Ask a worker to keep the errors of a wrong kernel at these cases in a file."""

    suspect: Job
    cases: tuple[str, ...]
    file: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Ask a worker how much a mutant looks like the error that is kept in `file`, at these cases; `clean` is its kernel as it is."""

    job: Job
    clean: Job
    cases: tuple[str, ...]
    file: str


_NOTHING = (0.0, 1.0)
"""Cosine and size of what cannot be compared."""


def keep(ask: Keep) -> tuple[str, ...]:
    """In a worker: the outputs and gradients that the suspect returns zeros for at these cases, though the truth has others.

    If there are none its errors are written into the file: a mistake that says itself needs no mutant to be likened to. There is no
    file where it has no errors to compare.
    """
    errors, zeros = errors_of(ask.suspect, ask.cases)
    if errors and not zeros:
        Path(ask.file).write_bytes(pickle.dumps(errors))
    return zeros


def alike(cases: Iterable[Case]) -> tuple[str, ...]:
    """The cases at which a kernel and mutants are compared: of one branch and dtype, that of the first."""
    first, *others = cases
    return tuple(str(case) for case in (first, *others) if (case.variant, case.dtype) == (first.variant, first.dtype))[: 1 + FURTHER]


def nearest(
    file: Path,
    cases: Sequence[str],
    references: Sequence[Subject],
    source: Source,
    *,
    worker: Standing,
    scratch: Path,
    seconds: float = SECONDS,
) -> Nearest | None:
    """The mutant that changes the gradients most as the suspect's are off; None where nothing could be compared.

    At the first case every mutant is tried, on the first of `references` that has it; those that look alike must do so at the others too.
    The error of the suspect is that against the truth; of a mutant it is what the edit changes, so that a reference which is itself wrong
    does not spoil it. Mutants of Metal kernels alone are tried only where no other looks alike.

    Args:
        file: the suspect's errors, from `keep`.
        cases: where it is wrong, from `alike`, the first cheap.
        references: kernels of the op with their mutants, those in Metal last.
        source: where workers find things.
        worker: in which it all happens, one mutant after the other: most of them take less than the start of a second one.
        scratch: a folder for copies.
        seconds: time after which no further mutant is tried.
    """
    first = Case.parse(cases[0])
    found: dict[str, tuple[float, float]] = {}
    why: dict[str, str] = {}
    until = time.monotonic() + seconds
    in_metal = False
    for reference in references:
        if reference.kernel.metal and not in_metal:
            if any(angle >= ALIKE for angle, _ in found.values()):
                break
            in_metal, until = True, time.monotonic() + seconds
        names = [
            name
            for name, mutant in reference.mutants.items()
            if name not in why and _applies(mutant, first) and not (in_metal and mutant.defect in OF_THREADS)
        ]
        why |= {name: reference.mutants[name].why for name in names}
        clean = job_of(reference, WorkItem(first.op, reference.kernel.name, cases[0]), source, scratch)
        for name in names:
            if time.monotonic() > until:
                break
            job = job_of(reference, replace(clean.item, mutant=name), source, scratch)
            got = worker.call(compare, Trial(job, clean, tuple(cases), str(file)))
            found[name] = _NOTHING if isinstance(got, Died) else got.value  # type: ignore[assignment] # what `compare` returns
    return best(found, why)


def best(found: Mapping[str, tuple[float, float]], why: Mapping[str, str]) -> Nearest | None:
    """Of the mutants that were tried, each with its cosine and size, the one that looks most alike, and those that cannot be told from it.

    None where none has anything to do with the error. `why` has all that might have been tried.
    """
    top = max((angle for angle, _ in found.values()), default=0.0)
    if not (top > 0):
        return None
    tied = [name for name, (angle, _) in found.items() if angle > top - TIE]
    fitting = [name for name in tied if SAME_SIZE[0] <= found[name][1] <= SAME_SIZE[1]]
    names = sorted(fitting or tied, key=lambda name: -found[name][0])
    return Nearest(tuple(names), why[names[0]], *found[names[0]], len(found), len(why))


def residual(case: str, truth: Truth, call: Call) -> dict[str, F64]:
    """The error in each gradient, in norms of that gradient, so that all count alike. Nothing where one is missing or not finite."""
    found: dict[str, F64] = {}
    for (name, want), got in zip(truth.gradients.items(), call.gradients, strict=False):
        if got.value is None or not np.isfinite(got.value).all() or not np.isfinite(want.value).all():
            return {}
        norm = float(np.sqrt((want.value**2).sum()))
        if norm > 0:
            found[f"{case} {name}"] = (got.value - want.value) / norm
    return found


def cosine(a: Residual, b: Residual) -> float:
    """The cosine of the angle between two errors over the same gradients; 0 where one of them is nothing."""
    both = size(a) * size(b)
    return sum(float((a[name] * b[name]).sum()) for name in a) / both if both > 0 else 0.0


def size(a: Residual) -> float:
    """The norm of an error."""
    return float(np.sqrt(sum(float((part**2).sum()) for part in a.values())))


def _applies(mutant: Mutant, case: Case) -> bool:
    branch, dtype = case.variant in (mutant.variants or (case.variant,)), case.dtype in (mutant.dtypes or (case.dtype,))
    return mutant.expect == "killed" and branch and dtype


def compare(ask: Trial) -> tuple[float, float]:
    """In a worker: (cosine between the suspect's error and what the mutant changes, size of the one in units of the other).

    Metal kernels run unchecked, which compiles them sooner: a mutant that ends the worker looks like nothing.
    """
    with configured(mode="plain"):
        return _compared(ask)


def _compared(ask: Trial) -> tuple[float, float]:
    told = _NOTHING
    for cases in dict.fromkeys((ask.cases[:1], ask.cases)):
        kept, (mutated, _), clean = _kept(ask.file), errors_of(ask.job, cases), _clean(ask.clean, cases)
        wanted = {name: kept[name] for name in kept if name.partition(" ")[0] in cases}
        if wanted.keys() != mutated.keys() or wanted.keys() != clean.keys():  # one of them is not finite somewhere
            return _NOTHING
        changed = {name: part - clean[name] for name, part in mutated.items()}
        told = cosine(wanted, changed), size(wanted) / (size(changed) or 1.0)
        if told[0] < ALIKE:
            break
    return told


def errors_of(job: Job, cases: Sequence[str]) -> tuple[dict[str, F64], tuple[str, ...]]:
    """(the errors at all cases, the quantities that are zero throughout and should not be); nothing where one case yields no errors."""
    found: dict[str, F64] = {}
    zero: dict[str, bool] = {}
    for text in cases:
        truth, problem = _at(job.source, job.item.op, text)
        got = attempt(replace(job, item=replace(job.item, case=text)), problem)
        errors = {} if isinstance(got, Evidence) or got.notes else residual(text, truth, got)
        if isinstance(got, Evidence) or not errors:
            return {}, ()
        found.update(errors)
        for (name, want), one in zip(truth.quantities().items(), (*got.outputs, *got.gradients), strict=True):
            if want.value.any() and Case.parse(text).objective == "all":  # a cotangent that is dropped may be all there is
                zero[name] = zero.get(name, True) and one.value is not None and not one.value.any()
    return found, tuple(name for name, all_of_it in zero.items() if all_of_it)


@lru_cache(maxsize=2)
def _clean(job: Job, cases: tuple[str, ...]) -> dict[str, F64]:
    return errors_of(job, cases)[0]


@lru_cache(maxsize=1 + FURTHER)
def _at(source: Source, op: str, text: str) -> tuple[Truth, Problem]:
    known, problem = know(op_of(source, op), Case.parse(text))
    return known.truth, problem


@lru_cache(maxsize=1)
def _kept(file: str) -> Residual:
    found: Residual = pickle.loads(Path(file).read_bytes())  # noqa: S301 - written by `keep` into a folder of ours
    return found
