"""One comparison seen close: one kernel, or one of its mutants, at one case, with every error element by element."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import GradcheckError, StaleMutant, SuiteError, UsageError, unknown
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck._truth import Truth
from gradcheck._verdict import CANARY, NULL, Evidence, Outcome, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.calibrate.noise import FACTOR, Table, noise_table
from gradcheck.engine.assemble import carried
from gradcheck.engine.call import Call, NoBackward, call, canary
from gradcheck.engine.execute import Job, Prepare, Probe, Source, describe, kernel_of, op_of, prepare, probe
from gradcheck.engine.measure import measure
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.engine.published import read_published
from gradcheck.engine.truth import cases_of, know, lookup
from gradcheck.engine.view import View, view_of
from gradcheck.process import Died, Done, Limits, run_all
from gradcheck.suite import Suite, find_op, load

GIB = 2**30


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
    """

    item: WorkItem
    outcome: Outcome
    why: str
    oracle: str
    limits: str
    views: tuple[View, ...]
    log: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel agrees with the truth."""
        return self.outcome in {Outcome.PASSED, Outcome.PASSED_ZERO}

    @property
    def ending(self) -> str:
        """What the outcome means; a kernel without a backward is not what its outcome usually stands for."""
        without = self.outcome is Outcome.UNINFORMATIVE and not self.views
        return "it has no backward, so no gradient was compared" if without else self.outcome.value

    def __str__(self) -> str:
        who = f"{self.item.kernel} with {self.item.mutant}" if self.item.mutant else self.item.kernel
        return f"{who} at {self.item.case}: {self.ending}{': ' + self.why if self.why else ''}"


@dataclass(frozen=True, slots=True)
class _Attempt:
    truth: Truth
    call: Call


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
    source = Source(tuple(str(Path(path).resolve()) for path in suites), str(Path.cwd()))
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
        job = Job(item, source, subject.kernel, _package(subject, name, logs), subject.module, forward_only)
        ((_, got),) = run_all(_attempt, [job], jobs=1, limits=limits, logs=logs)
    if isinstance(got, Done) and isinstance(got.value, str):
        raise UsageError(got.value)
    if isinstance(got, Done) and isinstance(got.value, _Attempt):
        seen = _seen(plan.op, item, got.value, tolerances, origin)
        return _of_mutant(seen, subject.mutants.get(name)) if name else seen
    evidence = Evidence(item, got.kind, detail=got.detail, log=got.log) if isinstance(got, Died) else got.value
    assert isinstance(evidence, Evidence)
    verdict = judge(evidence, tolerances)
    outcome = Outcome.UNVIABLE if name and evidence.status in {"raised", "unviable"} else verdict.outcome
    return Closeup(item, outcome, verdict.why, "", origin, (), evidence.log)


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


def _package(subject: Subject, mutant: str, into: Path) -> str:
    """Folder of the package to load: the kernel's own, or a copy with the defect planted."""
    if mutant in {"", CANARY}:
        return subject.package
    edit = None if mutant == NULL else subject.mutants[mutant].edits[subject.kernel.name]
    return str(copy_with_edit(Path(subject.package), edit, mutant, into))


def _attempt(job: Job) -> _Attempt | Evidence | str:
    """In a worker: the truth and what the kernel returns; or evidence of how it failed; or why it is no kernel to check."""
    if not job.package and (problem_ := probe(Probe(job.source, job.item.op, job.kernel.target))):
        return problem_
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    known, problem = know(op, case)
    try:
        kernel = kernel_of(job)
    except UsageError as error:
        return Evidence(job.item, "unviable", detail=str(error))
    try:
        got = call(
            canary(kernel) if job.item.mutant == CANARY else kernel,
            problem.inputs,
            problem.cotangents,
            dtype=case.dtype,
            output_shapes=tuple(op.output_shapes(case.sizes).values()),
            differentiable=op.recurrence(case.variant).differentiable,
            forward_only=job.forward_only,
        )
    except NoBackward as error:
        return Evidence(job.item, "no-backward", detail=str(error))
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything, and that is its outcome
        return Evidence(job.item, "raised", detail=describe(error))
    return _Attempt(known.truth, got)


def _tolerances(suite: Suite, op: Op, subject: Subject, dtype: str, source: Source, logs: Path) -> tuple[dict[str, dict[str, float]], str]:
    """Quantity to metric to tolerance, and where they come from: published, or else the model noise over the whole grid."""
    published = read_published(suite, op.name)
    carry = carried(subject, dtype)
    noise = published.noise.get(f"{dtype}/{carry}") if published else None
    origin = f"{FACTOR:g} times the {'published' if noise else 'model'} noise"
    table = noise or _noise(op, dtype, carry, source, logs)
    tolerances = {quantity: {metric: FACTOR * level for metric, level in row.items()} for quantity, row in table.items()}
    for band in published.bands if published else ():
        if (band.kernel, band.dtype) == (subject.kernel.name, dtype):
            tolerances[band.quantity][band.metric] = band.tolerance
            origin = "published"
    return tolerances, origin


def _noise(op: Op, dtype: str, carry: str, source: Source, logs: Path) -> Table:
    """The noise of the model over the covering grid, from the cache or computed in workers."""
    cases = cases_of(op, (dtype,), 0)
    asks = [Prepare(source, op.name, str(case)) for case in cases if lookup(op, case) is None]
    if asks:
        for ask, got in run_all(prepare, asks, jobs=2, limits=Limits(600.0, 8 * GIB), logs=logs):
            if isinstance(got, Died):
                raise SuiteError(f"the reference of {op.name} failed at case {ask.case}: {got.detail}\n{got.log}".rstrip())
    known = [found for case in cases if (found := lookup(op, case)) is not None]
    if len(known) < len(cases):
        raise GradcheckError("the cache of truths cannot be written; set GRADCHECK_CACHE_DIR to a folder that can, or see gradcheck doctor")
    return noise_table(one.noise[carry] for one in known)


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
    return Closeup(item, verdict.outcome, verdict.why, attempt.truth.oracle, origin, views)


def _of_mutant(seen: Closeup, mutant: Mutant | None) -> Closeup:
    """The verdict on the check, rather than on the kernel."""
    if seen.outcome is Outcome.FAILED:
        return replace(seen, outcome=Outcome.KILLED)
    if mutant is None or mutant.expect == "killed":
        return replace(seen, outcome=Outcome.SURVIVED)
    return replace(seen, outcome=Outcome.EQUIVALENT if mutant.expect == "equivalent" else Outcome.HARMLESS, why=mutant.reason)
