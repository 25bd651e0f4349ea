"""A second look at kernels that failed: is it the case, the form or a mistake, and which known mistake does it look like.

Made on failure only, at a few cases, within a time. No kernel passes by it: what is explained by its case is undecided.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._verdict import Outcome, Verdict, WorkItem
from gradcheck.calibrate.judge import Tolerances, margin
from gradcheck.engine.assemble import carried
from gradcheck.engine.conditioning import Ask, Look, look
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.nearest import Keep, Nearest, alike, keep, nearest
from gradcheck.engine.plan import Request, Subject, make_plan
from gradcheck.numerics.recurrence import TIME
from gradcheck.process import Done, Limits, Standing
from gradcheck.suite import Suite, find_op

LOOKS = 4
"""Failed cases of a kernel that are looked at, at most. A kernel that fails at more is not excused at any other."""

ENOUGH = 2
"""Cases at which rounding explains the error, after which there is no further look: the kernel stays failed. One mistake is enough."""

FAR = 0.01
"""An error this much smaller than the worst of its quantity may be wrong by accident only."""

STEPS = (5, 65)
"""Numbers of steps at which a mistake shows its shape, and a kernel is soon called some sixty times."""

Failed = Mapping[Case, Verdict]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a second look at one kernel found.

    Args:
        looks: by failed case that was looked at.
        nearest: the mutant that it looks like, or would if one did.
        zeros: the outputs and gradients that it returns zeros for; it is then likened to no mutant.
        failed: in how many cases the kernel failed by numbers.
    """

    looks: Mapping[WorkItem, Look] = field(default_factory=dict, hash=False)
    nearest: Nearest | None = None
    failed: int = 0
    zeros: tuple[str, ...] = ()

    @property
    def excused(self) -> dict[WorkItem, str]:
        """The items that do not show the kernel to be wrong, each with the reason."""
        return {item: str(one) for item, one in self.looks.items() if one.kind == "ill-conditioned"}

    @property
    def sentence(self) -> str:
        """What to say of the kernel as a whole, or nothing: its zeros, the mutant, or else that all that was looked at is rounding."""
        if self.zeros:
            return f"returns zeros for {', '.join(self.zeros)}"
        if self.nearest is not None:
            mistakes = [one for one in self.looks.values() if one.kind == "mistake"]
            worst = max(mistakes, key=lambda one: one.excess, default=None)
            return f"{self.nearest}{worst.spared if worst else ''}"
        kinds = [one.kind for one in self.looks.values()]
        poor = [one for one in self.looks.values() if one.kind == "rounding"]
        if not kinds or "mistake" in kinds:
            return ""
        if poor:
            return f"is {max(poor, key=lambda one: one.excess)} (the worst of {len(poor)} cases looked at)"
        if self.failed > len(kinds):
            worst = max(self.looks.values(), key=lambda one: one.excess)
            return f"is {worst}, at each of the {len(kinds)} cases looked at, of {self.failed} that failed"
        return ""


@contextmanager
def workshop(suite: Suite, source: Source, limits: Limits) -> Iterator[Workshop]:
    """Where second looks are made, with a worker that starts at the first of them; `limits` is what each step of one may take."""
    with tempfile.TemporaryDirectory(prefix="gradcheck-") as scratch, closing(Standing(limits, Path(scratch))) as worker:
        yield Workshop(suite, source, worker, Path(scratch))


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where and how a second look is made.

    Args:
        suite, source: the suites, here and for the worker.
        worker: in which all of it is done: what a look needs most is the start of one.
        scratch: a folder for what is kept meanwhile.
    """

    suite: Suite
    source: Source
    worker: Standing
    scratch: Path

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
        looks = _looks(self.worker, subject, job, failed)
        blameless = looks and all(one.kind != "mistake" for one in looks.values())
        zeros, looks_like = ((), None) if blameless else self._likeness(job, failed)
        return Seen(looks, looks_like, len(failed), zeros)

    def _likeness(self, job: Job, failed: Failed) -> tuple[tuple[str, ...], Nearest | None]:
        """(what it returns zeros for, the mutant that it looks like)."""
        wrong = [case for case in _telling(failed, job.tolerances) if _gradients_off(failed[case], job.tolerances)]
        if not wrong:
            return (), None
        at, file = alike(wrong), Path(tempfile.mkdtemp(dir=self.scratch)) / "error.pickle"
        kept = self.worker.call(keep, Keep(_at(job, wrong[0]), at, str(file)))
        zeros = kept.value if isinstance(kept, Done) and isinstance(kept.value, tuple) else ()
        if not file.exists():
            return zeros, None
        return zeros, nearest(file, at, self._references(job), self.source, worker=self.worker, scratch=self.scratch)

    def _references(self, job: Job) -> list[Subject]:
        """The kernels of the op that have mutants, and run here: the one with the most first, the suspect after the others, Metal last."""
        names = tuple(kernel.name for kernel in find_op(self.suite, job.item.op).kernels)
        request = Request(job.item.op, kernels=names, mutants="all", suites=self.source.suites, checks="none", cases=("1",))
        try:
            subjects = make_plan(request, self.suite).subjects
        except UsageError:
            return []

        def rank(subject: Subject) -> tuple[bool, bool, int]:
            return subject.kernel.metal, subject.kernel.name == job.item.kernel, -len(subject.mutants)

        return sorted((subject for subject in subjects if subject.mutants), key=rank)


def _looks(worker: Standing, subject: Subject, job: Job, failed: Failed) -> dict[WorkItem, Look]:
    """What is seen at one case after the other, until no further one can change what is said of the kernel."""
    looks: dict[WorkItem, Look] = {}
    for case in _spread(failed, job.tolerances):
        got = worker.call(look, Ask(at := _at(job, case), carried(subject, case.dtype)))
        if isinstance(got, Done) and isinstance(got.value, Look):
            looks[at.item] = got.value
        kinds = [one.kind for one in looks.values()]
        if "mistake" in kinds or kinds.count("rounding") >= ENOUGH:
            break
    return looks


def _by_numbers(verdict: Verdict) -> bool:
    """Whether a clean kernel failed because its numbers are off, all of them being there."""
    one = verdict.evidence
    return (
        verdict.outcome is Outcome.FAILED and one is not None and one.status == "measured" and not one.notes and not one.item.check
        and not any(m.problem for m in one.measurements)
    )  # fmt: skip


def _spread(failed: Failed, tolerances: Tolerances) -> list[Case]:
    """The failed cases to look at: for each quantity that is off one in which it is about as far off as anywhere, then of other regimes.

    So a mistake in one gradient is not missed for another's rounding, and cases that excuse themselves do not hide the others.
    """
    ranked = _telling(failed, tolerances)
    sizes = {case: _excesses(failed[case], tolerances) for case in ranked}
    worst = {name: max(sizes[case][name] for case in ranked) for name in sizes[ranked[0]]}
    chosen: list[Case] = []
    for name in sorted((name for name in worst if worst[name] > 1), key=lambda name: -worst[name]):
        telling = [case for case in ranked if sizes[case][name] >= max(1.0, FAR * worst[name])]
        chosen += [] if set(telling) & set(chosen) else telling[:1]
    regimes = {case.regime: case for case in reversed(ranked)}  # the first of each
    return list(dict.fromkeys([*chosen, *(case for case in ranked if regimes[case.regime] == case), *ranked]))[:LOOKS]


def _telling(failed: Failed, tolerances: Tolerances) -> list[Case]:
    """The failed cases, those first at which a mistake shows its shape: not by accident, not an impulse, neither short nor long."""
    sizes = {case: max(_excesses(verdict, tolerances).values(), default=0.0) for case, verdict in failed.items()}
    far = FAR * max(sizes.values())

    def rank(case: Case) -> tuple[bool, bool, bool, int]:
        steps = case.sizes[TIME]
        cost = 1
        for size in case.sizes.values():
            cost *= size
        return sizes[case] < far, case.objective != "all", not STEPS[0] <= steps <= STEPS[1], cost

    return sorted(failed, key=rank)


def _excesses(verdict: Verdict, tolerances: Tolerances) -> dict[str, float]:
    """The errors of a verdict in units of their tolerances; what is beyond all bounds counts as little more than 1, for it is of no size."""
    assert verdict.evidence is not None
    found = {m.quantity: margin(m, tolerances)[0] for m in verdict.evidence.measurements}
    return {name: 1.0 if size is None else size for name, size in found.items()}


def _gradients_off(verdict: Verdict, tolerances: Tolerances) -> bool:
    assert verdict.evidence is not None
    sizes = (margin(m, tolerances)[0] for m in verdict.evidence.measurements if m.quantity.startswith("d "))
    return any(size is None or not (size <= 1) for size in sizes)


def _at(job: Job, case: Case) -> Job:
    """The clean kernel of a job at another case."""
    return Job(
        WorkItem(job.item.op, job.item.kernel, str(case)), job.source, job.kernel, job.package, job.module, job.forward_only, job.tolerances
    )
