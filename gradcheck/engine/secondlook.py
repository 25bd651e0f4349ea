"""A second look at kernels that failed: is it the case, the form or a mistake, and which known mistake does it look like.

Made on failure only, at a few cases, within a time. No kernel passes by it: what is explained by its case is undecided.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._verdict import Outcome, Verdict, WorkItem
from gradcheck.calibrate.judge import Tolerances, margin
from gradcheck.engine.assemble import carried
from gradcheck.engine.conditioning import Ask, Look, look
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.nearest import Nearest, alike, keep, nearest
from gradcheck.engine.plan import Request, Subject, make_plan
from gradcheck.numerics.recurrence import TIME
from gradcheck.process import Done, Limits, run_all
from gradcheck.suite import Suite

LOOKS = 3
"""Failed cases of a kernel that are looked at. A kernel that fails at more is not excused at any other."""

FAR = 0.01
"""A case this much less wrong than the worst may be wrong by accident only."""

STEPS = (5, 65)
"""Numbers of steps at which a mistake shows its shape, and a kernel is soon called some sixty times."""

Failed = Mapping[Case, Verdict]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a second look at one kernel found.

    Args:
        looks: by failed case that was looked at.
        nearest: the mutant that it looks like.
    """

    looks: Mapping[WorkItem, Look] = field(default_factory=dict, hash=False)
    nearest: Nearest | None = None

    @property
    def excused(self) -> dict[WorkItem, str]:
        """The items that do not show the kernel to be wrong, each with the reason."""
        return {item: str(one) for item, one in self.looks.items() if one.kind == "ill-conditioned"}

    @property
    def sentence(self) -> str:
        """What to say of the kernel as a whole, or nothing: the mutant, or else that all that was looked at is rounding."""
        if self.nearest is not None:
            return str(self.nearest)
        kinds = [one.kind for one in self.looks.values()]
        poor = [one for one in self.looks.values() if one.kind == "rounding"]
        if poor and "mistake" not in kinds:
            return f"is {max(poor, key=lambda one: one.excess)} (the worst of {len(poor)} cases looked at)"
        return ""


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where and how a second look is made: the suites and the workers."""

    suite: Suite
    source: Source
    jobs: int
    limits: Limits

    def look(self, subject: Subject, job: Job, verdicts: Sequence[Verdict]) -> Seen:
        """A second look at a kernel.

        Args:
            subject: the kernel.
            job: one of it, with the tolerances of the comparison with the truth.
            verdicts: on it, at all cases of one dtype.
        """
        failed = {Case.parse(v.item.case): v for v in verdicts if _by_numbers(v)}
        if not failed:
            return Seen()
        with tempfile.TemporaryDirectory(prefix="gradcheck-") as scratch:
            return self._look(subject, job, failed, Path(scratch))

    def _look(self, subject: Subject, job: Job, failed: Failed, scratch: Path) -> Seen:
        cases = _telling(failed, job.tolerances)
        regimes = {case.regime: case for case in reversed(cases)}  # the first of each
        spread = [case for case in cases if regimes[case.regime] == case][:LOOKS]
        wrong = [case for case in cases if _gradients_off(failed[case], job.tolerances)]
        file, at = scratch / "error.pickle", alike(wrong) if wrong else ()
        asks: list[Ask | Keep] = [Ask(_at(job, case), carried(subject, case.dtype)) for case in spread]
        asks += [Keep(_at(job, wrong[0]), at, str(file))] if at else []
        looks: dict[WorkItem, Look] = {}
        for ask, got in run_all(_do, asks, jobs=min(self.jobs, len(asks)), limits=self.limits, logs=scratch):
            if isinstance(got, Done) and isinstance(got.value, Look):
                looks[ask.job.item] = got.value
        blameless = looks and all(one.kind != "mistake" for one in looks.values())
        reference = None if blameless or not file.exists() else self._reference(job)
        if reference is None:
            return Seen(looks)
        return Seen(looks, nearest(file, at, reference, self.source, jobs=self.jobs, limits=self.limits, scratch=scratch))

    def _reference(self, job: Job) -> Subject | None:
        """The kernel of the op, of those that run here, that has the most mutants: another one than the suspect if it can be."""
        request = Request(job.item.op, mutants="all", suites=self.source.suites, checks="none", cases=("1",))
        try:
            subjects = make_plan(request, self.suite).subjects
        except UsageError:
            return None
        known = [subject for subject in subjects if subject.mutants]
        return max(known, key=lambda subject: (subject.kernel.name != job.item.kernel, len(subject.mutants)), default=None)


@dataclass(frozen=True, slots=True)
class Keep:
    """Ask a worker to keep the errors of a wrong kernel at these cases in a file."""

    job: Job
    cases: tuple[str, ...]
    file: str


def _do(ask: Ask | Keep) -> Look | None:
    """In a worker: what is asked. There is no file where a kernel has no errors to compare."""
    if isinstance(ask, Ask):
        return look(ask)
    keep(ask.job, ask.cases, Path(ask.file))
    return None


def _by_numbers(verdict: Verdict) -> bool:
    """Whether a clean kernel failed because its numbers are off, all of them being there."""
    one = verdict.evidence
    return (
        verdict.outcome is Outcome.FAILED and one is not None and one.status == "measured" and not one.notes and not one.item.check
        and not any(m.problem for m in one.measurements)
    )  # fmt: skip


def _telling(failed: Failed, tolerances: Tolerances) -> list[Case]:
    """The failed cases, those first at which a mistake shows its shape: not by accident, not an impulse, neither short nor long."""
    sizes = {case: max(_excesses(verdict, tolerances), default=0.0) for case, verdict in failed.items()}
    far = FAR * max(sizes.values())

    def rank(case: Case) -> tuple[bool, bool, bool, int]:
        steps = case.sizes[TIME]
        cost = 1
        for size in case.sizes.values():
            cost *= size
        return sizes[case] < far, case.objective != "all", not STEPS[0] <= steps <= STEPS[1], cost

    return sorted(failed, key=rank)


def _excesses(verdict: Verdict, tolerances: Tolerances) -> list[float]:
    """The errors of a verdict in units of their tolerances; what is beyond all bounds counts as 1, for it is of no size."""
    assert verdict.evidence is not None
    found = (margin(m, tolerances)[0] for m in verdict.evidence.measurements)
    return [1.0 if size is None else size for size in found]


def _gradients_off(verdict: Verdict, tolerances: Tolerances) -> bool:
    assert verdict.evidence is not None
    sizes = (margin(m, tolerances)[0] for m in verdict.evidence.measurements if m.quantity.startswith("d "))
    return any(size is None or not (size <= 1) for size in sizes)


def _at(job: Job, case: Case) -> Job:
    """The clean kernel of a job at another case."""
    return Job(
        WorkItem(job.item.op, job.item.kernel, str(case)), job.source, job.kernel, job.package, job.module, job.forward_only, job.tolerances
    )
