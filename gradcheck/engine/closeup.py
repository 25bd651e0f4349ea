"""One comparison seen close: one kernel, or one of its mutants, at one case, with every error element by element."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import StaleMutant, UsageError, unknown
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck._truth import Truth
from gradcheck._verdict import CANARY, NULL, Evidence, Outcome, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.calibrate.noise import FACTOR
from gradcheck.engine.assemble import carried
from gradcheck.engine.call import Call
from gradcheck.engine.execute import Job, Source, attempt, evidence_of, job_of, op_of, source_of
from gradcheck.engine.launches import launches, placed
from gradcheck.engine.measure import measure
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.engine.prepare import prepare_all, table_of
from gradcheck.engine.probe import Probe, probe
from gradcheck.engine.published import read_published
from gradcheck.engine.secondlook import Workshop, workshop
from gradcheck.engine.truth import cases_of, know
from gradcheck.engine.view import View, view_of
from gradcheck.process import GIB, Done, Limits, run_all
from gradcheck.suite import Suite, find_op, load


@dataclass(frozen=True, slots=True)
class Closeup:
    """A comparison, seen close. `str` of it is the reason for its outcome, as an assertion would show it.

    Args:
        item: what was compared.
        outcome, why: the verdict on it; a mutant is KILLED where its kernel, with the defect planted, differs from the truth.
        oracle: who said the truth.
        limits: where the tolerances come from.
        views: outputs first, then gradients; empty where the kernel did not get so far.
        log: what the kernel wrote before it died.
        ending: what the outcome means here.
        place: where its Metal kernels ran, as in `Evidence`.
        remarks: what a second look says of a kernel that is off: what explains it, and the mutant that it looks like.
    """

    item: WorkItem
    outcome: Outcome
    why: str
    oracle: str
    limits: str
    views: tuple[View, ...]
    log: str = ""
    ending: str = ""
    place: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the kernel agrees with the truth."""
        return self.outcome in {Outcome.PASSED, Outcome.PASSED_ZERO}

    def __str__(self) -> str:
        who = f"{self.item.kernel} with {self.item.mutant}" if self.item.mutant else self.item.kernel
        return f"{who} at {self.item.case}: {self.ending}{': ' + self.why if self.why else ''}"


@dataclass(frozen=True, slots=True)
class _Attempt:
    truth: Truth
    call: Call
    place: str


def closeup(
    case: str,
    *,
    kernel: str,
    mutant: str = "",
    suites: Sequence[str] = (),
    forward_only: bool = False,
    timeout: float = 60.0,
    memory: float = 8.0,
) -> Closeup:
    """Draw `case`, and compare `kernel` there with the truth, once, in a worker.

    Args:
        case: id of a case; it need not be in the grid.
        kernel: name of a kernel of the op, or `package.module:attr` or `path/to/file.py:attr`.
        mutant: name of a defect to plant first, `canary`, or `null`.
        suites: folders of suites, as for `gradcheck run`.
        forward_only: compare the outputs alone.
        timeout: seconds that the kernel may take.
        memory: GiB that it may take.

    Raises:
        UsageError: a name does not exist or does not fit, or the kernel cannot run here.
        StaleMutant: the mutant's text no longer matches the kernel.
    """
    parsed = Case.parse(case)
    source = source_of(suites, Path.cwd())
    suite = load([Path(path) for path in source.suites])
    name = mutant.removeprefix(f"{parsed.op}/")
    request = Request(
        find_op(suite, parsed.op).name,
        kernels=(kernel,),
        mutants=_one_mutant(suite, parsed.op, name),
        dtypes=(parsed.dtype,),
        cases=(case,),
        suites=source.suites,
        forward_only=forward_only,
    )
    plan = make_plan(request, suite)
    subject = _subject(plan, parsed, name)
    item = WorkItem(plan.op.name, subject.kernel.name, str(subject.cases[0]), name)
    with tempfile.TemporaryDirectory(prefix="gradcheck-") as scratch:
        logs, limits = Path(scratch), Limits(timeout, int(memory * GIB))
        tolerances, origin = _tolerances(suite, plan.op, subject, parsed.dtype, source, logs)
        job = job_of(subject, item, source, logs, forward_only=forward_only)
        ((_, got),) = run_all(_attempt, [job], jobs=1, limits=limits, logs=logs)
    if isinstance(got, Done) and isinstance(got.value, str):
        raise UsageError(got.value)
    if isinstance(got, Done) and isinstance(got.value, _Attempt):
        seen, status = _seen(plan.op, item, got.value, tolerances, origin), "measured"
    else:
        verdict = judge(evidence := evidence_of(item, got), tolerances)
        seen = Closeup(item, verdict.outcome, verdict.why, "", origin, (), evidence.log, verdict.ending, evidence.place)
        status = evidence.status
    if name:
        return _of_mutant(seen, status, subject.mutants.get(name))
    if seen.outcome is not Outcome.FAILED:
        return seen
    with workshop(suite, source, limits) as shop:
        return _looked_at(seen, subject, replace(job, tolerances=tolerances), shop)


def _one_mutant(suite: Suite, op: str, name: str) -> str:
    """What a request calls this mutant; it must be one."""
    if name in {"all", "none"} or "," in name:
        raise unknown(f"mutant of {op}", name, [m.name for m in suite.mutants.values() if m.op == op], "One at a time.")
    return "none" if name in {"", CANARY, NULL} else name


def _subject(plan: Plan, case: Case, mutant: str) -> Subject:
    for name, why in plan.absent.items():
        raise UsageError(f"kernel {name} cannot run here: it {why}")
    (subject,) = plan.subjects
    kernel = subject.kernel
    if not subject.cases or case.variant not in (kernel.variants or (case.variant,)):
        claims = " ".join([*kernel.dtypes, *(kernel.variants or plan.op.variants)])
        raise UsageError(f"kernel {kernel.name} does not claim to run at {case}; it claims {claims}")
    if mutant in subject.stale:
        raise StaleMutant(subject.stale[mutant])
    if mutant == NULL and subject.stranger:
        raise UsageError(f"the null mutant copies a package, and the suite does not know the package of {kernel.name}; leave out --mutant")
    return subject


def _attempt(job: Job) -> _Attempt | Evidence | str:
    """In a worker: the truth and what the kernel returns; or evidence of how it failed; or why it is no kernel to check."""
    if not job.package and (problem_ := probe(Probe(job.source, job.item.op, job.kernel.target))):
        return problem_
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    known, problem = know(op, case)
    with launches() as places:
        got = attempt(job, problem)
    evidence = got if isinstance(got, Evidence) else Evidence(job.item, "measured", notes=got.notes)
    evidence = placed(evidence, job.kernel, places)
    if isinstance(got, Evidence) or evidence.status != "measured":
        return evidence
    return _Attempt(known.truth, replace(got, notes=evidence.notes), evidence.place)


def _tolerances(suite: Suite, op: Op, subject: Subject, dtype: str, source: Source, logs: Path) -> tuple[dict[str, dict[str, float]], str]:
    """Quantity to metric to tolerance, and where they come from: published, or else the model noise over the whole grid."""
    published = read_published(suite, op.name)
    carry = carried(subject, dtype)
    noise = published.noise.get(f"{dtype}/{carry}") if published else None
    origin = f"{FACTOR:g} times the {'published' if noise else 'model'} noise"
    cases = cases_of(op, (dtype,), 0)
    table = noise or table_of(prepare_all(op, cases, source, jobs=2, limits=Limits(600.0, 8 * GIB), logs=logs).values(), carry)
    tolerances = {quantity: {metric: FACTOR * level for metric, level in row.items()} for quantity, row in table.items()}
    for band in published.bands if published else ():
        if (band.kernel, band.dtype) == (subject.kernel.name, dtype):
            tolerances[band.quantity][band.metric] = band.tolerance
            origin = "published"
    return tolerances, origin


def _seen(op: Op, item: WorkItem, attempt: _Attempt, tolerances: Mapping[str, Mapping[str, float]], origin: str) -> Closeup:
    """The comparison, measured and judged as a run would, and then looked at."""
    case, got = Case.parse(item.case), attempt.call
    measured = measure(op, case.variant, case.dtype, attempt.truth, got.outputs, got.gradients)
    verdict = judge(Evidence(item, "measured", measured, notes=got.notes), tolerances)
    wanted = attempt.truth.quantities()
    views = tuple(
        view_of(m, one, wanted[m.quantity], case.dtype, tolerances[m.quantity])
        for m, one in zip(measured, (*got.outputs, *got.gradients), strict=False)
    )
    return Closeup(item, verdict.outcome, verdict.why, attempt.truth.oracle, origin, views, ending=verdict.ending, place=attempt.place)


def _looked_at(seen: Closeup, subject: Subject, job: Job, shop: Workshop) -> Closeup:
    """What failed, with what a second look says: undecided, where the case explains it."""
    evidence = Evidence(seen.item, "measured", tuple(view.measurement for view in seen.views))
    found = shop.look(subject, job, [judge(evidence, job.tolerances)])
    if why := found.excused.get(seen.item):
        return replace(seen, outcome=Outcome.INCONCLUSIVE, why=why, ending=Outcome.INCONCLUSIVE.value, remarks=(why,))
    return replace(seen, remarks=(*map(str, found.looks.values()), *([found.sentence] if found.zeros or found.nearest else [])))


def _of_mutant(seen: Closeup, status: str, mutant: Mutant | None) -> Closeup:
    """The verdict on the check, rather than on the kernel."""
    why = seen.why
    if status in {"raised", "unviable"}:
        outcome = Outcome.UNVIABLE
    elif status not in {"measured", "fault"}:
        return seen
    elif seen.outcome is Outcome.FAILED:
        outcome = Outcome.KILLED
    elif mutant is None or mutant.expect == "killed":
        outcome = Outcome.SURVIVED
    else:
        outcome, why = (Outcome.EQUIVALENT if mutant.expect == "equivalent" else Outcome.HARMLESS), mutant.reason
    return replace(seen, outcome=outcome, why=why, ending=outcome.value)
