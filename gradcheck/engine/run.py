"""A run from request to result: load, plan, prepare the truths, run the kernels, run the mutants, judge."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gradcheck._case import Case
from gradcheck._errors import GradcheckError, SuiteError, UsageError
from gradcheck._verdict import CANARY, NULL, Evidence, Run, Status, Verdict, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.calibrate.noise import Table, noise_table, tolerances
from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.assemble import Noises, assemble, carried, group_of, noise_for, not_running, not_sound, planned_items, settled
from gradcheck.engine.cache import source_digest
from gradcheck.engine.environment import environment
from gradcheck.engine.execute import Job, Prepare, Probe, Source, execute, prepare, probe
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.engine.published import read_published
from gradcheck.engine.target import source_files
from gradcheck.engine.truth import cases_of, lookup, op_digest, own_digest
from gradcheck.process import Died, Done, Limits, run_all
from gradcheck.suite import Suite, load

GIB = 2**30
_STATUS: dict[str, Status] = {"crashed": "crashed", "timeout": "timeout", "memory": "memory", "raised": "raised"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `note` is a line to be shown once."""

    stage: Literal["truth", "kernels", "checks", "mutants"]
    done: int
    total: int
    label: str
    note: str = ""


Tell = Callable[[Progress], None]
Ask = TypeVar("Ask")


@dataclass(frozen=True, slots=True)
class _Context:
    """What all stages of one run share."""

    request: Request
    source: Source
    suite: Suite
    plan: Plan
    folder: store.RunFolder
    tell: Tell
    published: Published | None = None
    done: dict[WorkItem, Evidence] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return self.request.jobs or os.cpu_count() or 1

    @property
    def limits(self) -> Limits:
        return Limits(self.request.timeout, int(self.request.memory * GIB))


def run(request: Request, *, folder: Path, tell: Tell) -> Run:
    """Do what `request` asks, in a new run folder under `folder`.

    Raises:
        GradcheckError: the request names something that does not exist, or a suite or folder cannot be used.
    """
    cwd = Path.cwd()
    source = Source(tuple(str(Path(path).resolve()) for path in request.suites), str(cwd))
    suite = load([Path(path) for path in source.suites], cwd=cwd)
    plan = make_plan(request, suite)
    items = planned_items(plan)
    digest = store.digest_of(items, _sources(plan, suite, request, cwd))
    for earlier in store.unfinished(folder, digest)[:1]:
        tell(Progress("truth", 0, 0, "", f"an unfinished run of this very plan exists: gradcheck run --resume {earlier}"))
    stored = store.Manifest(plan.op.name, {**asdict(request), "cwd": str(cwd)}, items, environment(cwd), digest)
    with store.create(folder, stored) as opened:
        return _go(_Context(request, source, suite, plan, opened, tell, _published(request, suite)))


def resume(run_id: str | None, *, folder: Path, tell: Tell) -> Run:
    """Go on with an unfinished run: the newest one, if no id is given.

    Raises:
        UsageError: there is none, or what it was about has changed since.
    """
    with store.open_existing(folder, run_id) as opened:
        told = dict(opened.plan.request)
        cwd = str(told.pop("cwd"))
        request = msgspec.convert(told, Request)
        source = Source(tuple(str(Path(cwd, path).resolve()) for path in request.suites), cwd)
        suite = load([Path(path) for path in source.suites], cwd=Path(cwd))
        plan = make_plan(request, suite)
        if store.digest_of(planned_items(plan), _sources(plan, suite, request, Path(cwd))) != opened.plan.digest:
            raise UsageError(
                f"run {opened.id} cannot go on: the suite, a kernel or gradcheck itself has changed since it began, and its verdicts "
                "would be of two different things. Start a new run."
            )
        kept = store.read(folder, opened.id)
        for sentence in kept.damage:
            tell(Progress("truth", 0, 0, "", sentence))
        done = {record.evidence.item: record.evidence for record in kept.records}
        return _go(_Context(request, source, suite, plan, opened, tell, _published(request, suite), done))


def _published(request: Request, suite: Suite) -> Published | None:
    return read_published(suite, request.op) if request.published else None


def _go(context: _Context) -> Run:
    began = time.perf_counter()
    _probe_strangers(context)
    noises = _prepare(context)
    _stage(context, "kernels", [(subject, item) for subject in context.plan.subjects for item in subject.clean_items()], noises)
    running = [subject for subject in context.plan.subjects if not not_running(_judged(context, subject, noises))]
    _stage(context, "checks", [(subject, item) for subject in running for item in subject.checks], noises)
    sound = [subject for subject in context.plan.subjects if not not_sound(_judged(context, subject, noises, checks=True))]
    _mutants(context, sound, noises)
    finished = assemble(
        context.plan,
        [context.done[item] for item in context.folder.plan.items if item in context.done],
        noises,
        id_=context.folder.id,
        command=command_of(context.request),
        environment={**context.folder.plan.environment, "bands": _origin(context.published), "folder": str(context.folder.path)},
        notes=context.plan.notes,
        planned=len(context.folder.plan.items),
        seconds=time.perf_counter() - began,
        forward_only=context.request.forward_only,
        published=context.published.bands if context.published else (),
    )
    context.folder.finish(msgspec.to_builtins(finished))
    return finished


def _origin(published: Published | None) -> str:
    return f"published {published.environment.get('date', '')}" if published else "measured in this run"


def command_of(request: Request) -> str:
    """The command line that asks for `request`."""
    words = ["gradcheck", "run", "--op", request.op]
    plain = Request(request.op)
    for name, option in {"kernels": "--kernel", "cases": "--cases", "suites": "--suite"}.items():
        words += [word for value in getattr(request, name) for word in (option, value)]
    for name, option in {"dtypes": "--dtype", "regimes": "--regime"}.items():
        words += [option, ",".join(getattr(request, name))] if getattr(request, name) else []
    for name in ("mutants", "dims", "seed", "jobs", "timeout", "memory"):
        if getattr(request, name) != getattr(plain, name):
            words += [f"--{name}", str(getattr(request, name))]
    words += ["--checks", request.checks] if request.checks != "all" else []
    words += [option for option, on in {"--matrix": request.matrix, "--forward-only": request.forward_only}.items() if on]
    return shlex.join(words)


def _sources(plan: Plan, suite: Suite, request: Request, cwd: Path) -> str:
    """Digest of every source that evidence depends on."""
    packages = [Path(subject.package) for subject in plan.subjects if subject.package]
    targets = [file for subject in plan.subjects if subject.stranger for file in source_files(subject.kernel.target, folder=cwd)]
    mutants = {Path(suite.files[mutant.id]) for subject in plan.subjects for mutant in subject.mutants.values()}
    files = [path for path in (*packages, *targets, *sorted(mutants)) if path.exists()]
    return f"{op_digest(plan.op.file)} {own_digest()} {source_digest(files)} {request.forward_only}"


def _probe_strangers(context: _Context) -> None:
    """A stranger's file is code we have never seen: load it in a worker first."""
    asks = [
        Probe(context.source, context.plan.op.name, s.kernel.target, tuple(dict.fromkeys(case.dtype for case in s.cases)))
        for s in context.plan.subjects
        if s.stranger
    ]
    for ask, got in run_all(probe, asks, jobs=1, limits=context.limits, logs=context.folder.logs):
        if isinstance(got, Done) and got.value:
            raise UsageError(str(got.value))
        if isinstance(got, Died) and got.kind == "raised":
            raise UsageError(f"kernel {ask.target!r} cannot be loaded: {got.detail}")


def _prepare(context: _Context) -> Noises:
    """Truths of all cases, and the noise of the model over the whole covering grid of each dtype, whatever cases were chosen."""
    op = context.plan.op
    dtypes = dict.fromkeys(case.dtype for subject in context.plan.subjects for case in subject.cases)
    given = context.published.noise if context.published else {}
    measured = [d for s in context.plan.subjects for d in dtypes if f"{d}/{carried(s, d)}" not in given]
    pools = {dtype: cases_of(op, (dtype,), 0) for dtype in dict.fromkeys(measured)}
    chosen = [case for subject in context.plan.subjects for case in subject.cases]
    wanted = list(dict.fromkeys([*chosen, *(case for pool in pools.values() for case in pool)]))
    unknown_ = [case for case in wanted if lookup(op, case) is None]
    asks = [Prepare(context.source, op.name, str(case)) for case in unknown_]
    context.tell(Progress("truth", 0, len(asks), f"{len(wanted)} cases, {len(wanted) - len(asks)} known"))
    for done, (ask, got) in enumerate(_pool(context, prepare, asks), start=1):
        if isinstance(got, Died):
            raise SuiteError(f"the reference of {op.name} failed at case {ask.case}: {got.detail}\n{got.log}".rstrip())
        context.tell(Progress("truth", done, len(asks), ask.case))
    noises: dict[tuple[str, str], Table] = {}
    for subject in context.plan.subjects:
        for dtype in dict.fromkeys(case.dtype for case in subject.cases):
            carry = carried(subject, dtype)
            if f"{dtype}/{carry}" in given:
                noises[dtype, carry] = given[f"{dtype}/{carry}"]
                continue
            known = [found for case in pools[dtype] if (found := lookup(op, case)) is not None]
            if len(known) < len(pools[dtype]):
                raise GradcheckError(
                    f"the cache of truths cannot be written, so the noise of {op.name} cannot be told; "
                    "set GRADCHECK_CACHE_DIR to a folder that can"
                )
            noises[dtype, carry] = noise_table(one.noise[carry] for one in known)
    return noises


def _stage(context: _Context, stage: Literal["kernels", "checks", "mutants"], work: list[tuple[Subject, WorkItem]], noises: Noises) -> None:
    """Run the items that have no evidence yet, and write down what each yields."""
    subjects = {subject.kernel.name: subject for subject, _ in work}
    jobs = [_job(context, subject, item, noises) for subject, item in work if item not in context.done]
    finished = len(work) - len(jobs)
    context.tell(Progress(stage, finished, len(work), ""))
    for job, got in _pool(context, execute, jobs):
        evidence = (
            got.value
            if isinstance(got, Done)
            else Evidence(job.item, _STATUS[got.kind], detail=got.detail, log=got.log, seconds=got.seconds)
        )
        assert isinstance(evidence, Evidence)
        context.done[job.item] = evidence
        context.folder.append(evidence, _outcome(subjects[job.item.kernel], evidence, noises))
        finished += 1
        context.tell(Progress(stage, finished, len(work), f"{job.item.kernel} {job.item.mutant or job.item.check} {job.item.case}"))


def _mutants(context: _Context, sound: Sequence[Subject], noises: Noises) -> None:
    """Run the mutants wave by wave; those that have been seen in every form need no further wave."""
    waves = {subject.kernel.name: subject.waves() for subject in sound}
    for number in range(max(map(len, waves.values()), default=0)):
        work = []
        for subject in sound:
            limits = {dtype: tolerances(noise_for(subject, dtype, noises)) for dtype in dict.fromkeys(case.dtype for case in subject.cases)}
            over = set() if context.request.matrix else settled(subject, list(context.done.values()), limits)
            wave = waves[subject.kernel.name][number : number + 1]
            work += [(subject, item) for items in wave for item in items if item in context.done or group_of(item) not in over]
        _stage(context, "mutants", work, noises)


def _pool(context: _Context, function: Callable[[Ask], object], asks: Sequence[Ask]) -> Iterable[tuple[Ask, Done | Died]]:
    if not asks:
        return ()
    return run_all(function, asks, jobs=min(context.jobs, len(asks)), limits=context.limits, logs=context.folder.logs)


def _job(context: _Context, subject: Subject, item: WorkItem, noises: Noises) -> Job:
    """The item with the package it needs: a mutant's is a copy in the run folder."""
    package = subject.package
    if item.mutant and item.mutant != CANARY:
        edit = None if item.mutant == NULL else subject.mutants[item.mutant].edits[subject.kernel.name]
        into = (context.folder.path / "mutants" / item.mutant).absolute()  # a kernel may change the folder of its worker
        package = str(copy_with_edit(Path(subject.package), edit, item.mutant, into))
    job = Job(item, context.source, subject.kernel, package, subject.module, context.request.forward_only)
    if not item.check:
        return job
    limits = tolerances(noise_for(subject, Case.parse(item.case).dtype, noises))
    return replace(job, tolerances=limits, sound=not not_sound(_judged(context, subject, noises)))


def _outcome(subject: Subject, evidence: Evidence, noises: Noises) -> str:
    """The outcome as it looks now, before all defects are known; reports judge again with the final bands."""
    dtype = Case.parse(evidence.item.case).dtype
    verdict = judge(evidence, tolerances(noise_for(subject, dtype, noises)))
    if not evidence.item.mutant or evidence.status != "measured":
        return verdict.outcome.name
    return "KILLED" if verdict.outcome.name == "FAILED" else "SURVIVED"


def _judged(context: _Context, subject: Subject, noises: Noises, *, checks: bool = False) -> list[Verdict]:
    items = (*subject.clean_items(), *(subject.checks if checks else ()))
    evidence = [context.done[item] for item in items if item in context.done]
    return [judge(one, tolerances(noise_for(subject, Case.parse(one.item.case).dtype, noises))) for one in evidence]
