"""A run from request to result: load, plan, prepare the truths, run the kernels, run the mutants, judge."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from gradcheck._case import Case
from gradcheck._errors import GradcheckError, UsageError
from gradcheck._verdict import Band, Evidence, Outcome, Run, Verdict, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.calibrate.noise import tolerances
from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.assemble import (
    Noises,
    assemble,
    carried,
    due,
    group_of,
    limits_of,
    noise_for,
    not_running,
    not_sound,
    own_forms,
    planned_items,
    settled,
)
from gradcheck.engine.cache import source_digest
from gradcheck.engine.environment import environment
from gradcheck.engine.execute import Job, Source, job_of, source_of
from gradcheck.engine.finished import finished_run
from gradcheck.engine.ledger import Ledger
from gradcheck.engine.order import kill_rates
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.engine.prepare import prepare_all, table_of
from gradcheck.engine.probe import probe_strangers
from gradcheck.engine.published import read_published
from gradcheck.engine.secondlook import Seen, workshop
from gradcheck.engine.shard import parse_shard, part
from gradcheck.engine.target import source_files
from gradcheck.engine.truth import cases_of, op_digest, own_digest, refusals
from gradcheck.engine.unreached import unreached
from gradcheck.engine.weakest import weakest_items
from gradcheck.engine.workers import Work, evidences, hired, passing
from gradcheck.process import GIB, Limits, run_all
from gradcheck.suite import Suite, load


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `note` is a line to be shown once."""

    stage: Literal["truth", "kernels", "checks", "mutants"]
    done: int
    total: int
    label: str
    note: str = ""


Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class _Context:
    """What all stages of one run share."""

    request: Request
    source: Source
    suite: Suite
    plan: Plan
    folder: store.RunFolder
    tell: Tell
    published: Published | None
    done: Ledger
    noise: store.Noise = field(default_factory=dict)  # as an earlier process has left it
    judging: bool = False  # no item is run: what is done is judged
    notes: tuple[str, ...] = ()
    work: Work = run_all
    began: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> bool:
        """Whether no further item may be begun."""
        return self.judging or (bool(self.request.budget) and time.perf_counter() - self.began >= self.request.budget)

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
    source = source_of(request.suites, cwd, request.oracle)
    suite = load([Path(path) for path in source.suites], cwd=cwd)
    plan, stored = planned(request, suite, cwd)
    for earlier in store.unfinished(folder, stored.digest)[:1]:
        tell(Progress("truth", 0, 0, "", f"an unfinished run of this very plan exists: gradcheck run --resume {earlier}"))
    with store.create(folder, stored) as opened:
        try:
            return _go(_Context(request, source, suite, plan, opened, tell, published_for(request, suite), opened.ledger()[0]))
        except GradcheckError:
            opened.discard()
            raise


def planned(request: Request, suite: Suite, cwd: Path) -> tuple[Plan, store.Manifest]:
    """What a request comes to in this folder: the plan, and what is written of it.

    Raises:
        UsageError: a name in it does not exist, or does not fit.
    """
    plan = make_plan(request, suite)
    sources, items = _sources(plan, suite, request, cwd), planned_items(plan)
    whole = store.digest_of(items, sources)
    if request.shard:
        plan = part(plan, parse_shard(request.shard))
        items = planned_items(plan)
    manifest = store.Manifest(
        op=plan.op.name,
        request={**asdict(request), "cwd": str(cwd)},
        items=items,
        environment=environment(cwd),
        digest=store.digest_of(items, sources),
        whole=whole,
        sources=store.digest_of((), sources),
    )
    return plan, manifest


def resume(run_id: str | None, *, folder: Path, tell: Tell, judging: bool = False, notes: Sequence[str] = ()) -> Run:
    """Go on with an unfinished run: the newest one, if no id is given.

    With `judging` no item is run, and what is done is judged; what must be said of it first is in `notes`.

    Raises:
        UsageError: there is none, or what it was about has changed since.
    """
    with store.open_existing(folder, run_id) as opened:
        told = dict(opened.plan.request)
        cwd = str(told.pop("cwd"))
        request = msgspec.convert(told, Request)
        source = source_of(request.suites, Path(cwd), request.oracle)
        suite = load([Path(path) for path in source.suites], cwd=Path(cwd))
        plan, now = planned(request, suite, Path(cwd))
        if now.digest != opened.plan.digest:
            raise UsageError(
                f"run {opened.id} cannot go on: the suite, a kernel or gradcheck itself has changed since it began, and its verdicts "
                "would be of two different things. Start a new run."
            )
        if not judging and (finished := finished_run(opened.path)) is not None:
            return finished
        opened.plan = replace(now, environment=opened.plan.environment)  # the same, in less memory: its items share their texts
        done, damage = opened.ledger()
        for sentence in damage:
            tell(Progress("truth", 0, 0, "", sentence))
        noise = store.noise_of(opened.path) or {}
        return _go(_Context(request, source, suite, plan, opened, tell, published_for(request, suite), done, noise, judging, tuple(notes)))


def published_for(request: Request, suite: Suite) -> Published | None:
    """The published bands that a request is judged by, if there are any of these sources."""
    if not request.published or request.bands == "none":
        return None
    return read_published(suite, request.op, Path(request.bands) if request.bands else None)


def _go(context: _Context) -> Run:
    if context.judging:
        return _done(context)
    try:
        with hired(context.request, context.suite, Path(context.source.cwd), jobs=context.jobs) as work:
            return _done(replace(context, work=work))
    except OSError as error:
        if error.errno not in store.FULL:
            raise
        where = error.filename or context.folder.path
        raise store.StoreError(
            f"cannot write to {where}: {error.strerror}. What is done is kept; make room or make it writable, then go on with "
            f"--resume {context.folder.id}"
        ) from error


def _done(context: _Context) -> Run:
    began = time.perf_counter()
    if not context.judging:
        probe_strangers(context.plan.subjects, context.plan.op.name, context.source, limits=context.limits, logs=context.folder.logs)
    noises = _prepare(context)
    _stage(context, "kernels", [(subject, item) for subject in context.plan.subjects for item in subject.clean_items()], noises)
    running = [subject for subject in context.plan.subjects if not not_running(_judged(context, subject, noises))]
    _stage(context, "checks", [(subject, item) for subject in running for item in subject.checks], noises)
    seen = _second_look(context, noises)
    sound = [subject for subject in context.plan.subjects if not not_sound(_judged(context, subject, noises, checks=True))]
    _mutants(context, sound, noises)
    finished = assemble(
        context.plan,
        [context.done[item] for item in context.folder.plan.items if item in context.done],
        noises,
        id_=context.folder.id,
        command=command_of(context.request),
        environment={**context.folder.plan.environment, **_shard(context.request), **_told(context)},
        notes=(
            *context.notes,
            *_apart(context.request),
            *context.plan.notes,
            *_refusals(context),
            *(f"{name} {one.sentence}" for name, one in seen.items() if one.sentence),
            *passing(context.done.values()),
        ),
        planned=len(context.folder.plan.items),
        seconds=time.perf_counter() - began,
        forward_only=context.request.forward_only,
        published=_bands(context),
        excused={item: why for one in seen.values() for item, why in one.excused.items()},
        causes={item: look.kind for one in seen.values() for item, look in one.looks.items()},
        part=bool(context.request.shard),
    )
    if context.request.mutants == "all" and not context.request.shard:
        finished = replace(finished, notes=(*finished.notes, *unreached(finished)))
    context.folder.finish(msgspec.to_builtins(finished))
    return finished


def _bands(context: _Context) -> tuple[Band, ...]:
    """The published bands. A run that has measured its defects in full, or the weakest of them, shows its own."""
    bands = context.published.bands if context.published else ()
    return tuple(replace(band, defect=None) for band in bands) if context.request.matrix or context.request.weakest else bands


def _told(context: _Context) -> dict[str, str]:
    """What the bands are of, and where the run lies."""
    published = context.published
    bands_ = f"published {published.environment.get('date', '')}" if published else "measured in this run"
    return {"bands": bands_, "folder": str(context.folder.path)}


def _shard(request: Request) -> dict[str, str]:
    """Which part of the plan this is, in a run of a part."""
    return {"shard": str(parse_shard(request.shard))} if request.shard else {}


def _apart(request: Request) -> list[str]:
    """What a reader of a part must know first."""
    return [f"this is shard {parse_shard(request.shard)}: what the plan comes to shows when all are merged"] if request.shard else []


def command_of(request: Request) -> str:
    """The command line that asks for `request`."""
    words = ["gradcheck", "run", "--op", request.op]
    plain = Request(request.op)
    for name, option in {"kernels": "--kernel", "cases": "--cases", "suites": "--suite"}.items():
        words += [word for value in getattr(request, name) for word in (option, value)]
    for name, option in {"dtypes": "--dtype", "regimes": "--regime"}.items():
        words += [option, ",".join(getattr(request, name))] if getattr(request, name) else []
    for name in ("mutants", "dims", "seed", "jobs", "timeout", "memory", "oracle"):
        if getattr(request, name) != getattr(plain, name):
            words += [f"--{name}", str(getattr(request, name))]
    words += ["--checks", request.checks] if request.checks != "all" else []
    words += [
        word
        for name in ("shard", "engine", "scheduler")
        if (value := getattr(request, name)) != getattr(plain, name)
        for word in (f"--{name}", value)
    ]
    words += [option for option, on in {"--matrix": request.matrix, "--forward-only": request.forward_only}.items() if on]
    return shlex.join(words)


def _refusals(context: _Context) -> list[str]:
    cases = dict.fromkeys(case for subject in context.plan.subjects for case in subject.cases)
    said = refusals(context.plan.op, cases, context.request.oracle)
    return [said] if said else []


def _sources(plan: Plan, suite: Suite, request: Request, cwd: Path) -> str:
    """Digest of every source that evidence depends on."""
    packages = [Path(subject.package) for subject in plan.subjects if subject.package]
    targets = [file for subject in plan.subjects if subject.stranger for file in source_files(subject.kernel.target, folder=cwd)]
    mutants = {Path(suite.files[mutant.id]) for subject in plan.subjects for mutant in subject.mutants.values()}
    files = [path for path in (*packages, *targets, *sorted(mutants)) if path.exists()]
    kernels = [subject.kernel for subject in plan.subjects]
    return f"{op_digest(plan.op.file)} {own_digest()} {source_digest(files)} {request.forward_only} {request.oracle} {kernels}"


def _prepare(context: _Context) -> Noises:
    """Truths of all cases to come, and the noise of the model over the whole covering grid of each dtype, whatever cases were chosen."""
    op, subjects = context.plan.op, context.plan.subjects
    given = {**context.noise, **(context.published.noise if context.published else {})}
    asked = dict.fromkeys((case.dtype, carried(subject, case.dtype)) for subject in subjects for case in subject.cases)
    pools = {dtype: cases_of(op, (dtype,), 0) for dtype, carry in asked if f"{dtype}/{carry}" not in given}
    chosen = _to_come(context, {(dtype, carry): given[f"{dtype}/{carry}"] for dtype, carry in asked} if context.noise else None)
    found = prepare_all(
        op,
        list(dict.fromkeys([*chosen, *(case for pool in pools.values() for case in pool)])),
        context.source,
        jobs=context.jobs,
        limits=context.limits,
        logs=context.folder.logs,
        work=context.work,
        tell=lambda done, total, label: context.tell(Progress("truth", done, total, label)),
    )
    tables = {f"{dtype}/{carry}": table_of((found[case] for case in pools[dtype]), carry) for dtype, carry in asked if dtype in pools}
    noise = {f"{dtype}/{carry}": {**tables, **given}[f"{dtype}/{carry}"] for dtype, carry in asked}
    if noise != context.noise:
        context.folder.keep_noise(noise)
    return {(dtype, carry): noise[f"{dtype}/{carry}"] for dtype, carry in asked}


def _to_come(context: _Context, noises: Noises | None) -> list[Case]:
    """The cases at which a comparison is still to be made, as far as that is known."""
    if context.judging:
        return []
    items = context.folder.plan.items if noises is None else due(context.plan, context.done, noises, matrix=context.request.matrix)
    texts = dict.fromkeys(item.case for item in items if not item.check and item not in context.done)
    return [Case.parse(text) for text in texts]


def _stage(context: _Context, stage: Literal["kernels", "checks", "mutants"], work: list[tuple[Subject, WorkItem]], noises: Noises) -> None:
    """Run the items that have no evidence yet, and write down what each yields."""
    subjects = {subject.kernel.name: subject for subject, _ in work}
    jobs = [] if context.spent else [_job(context, subject, item, noises) for subject, item in work if item not in context.done]
    finished = len(work) - len(jobs)
    context.tell(Progress(stage, finished, len(work), ""))
    workers = min(context.jobs, len(jobs))
    for evidence in evidences(context.work, jobs, workers=workers, limits=context.limits, logs=context.folder.logs) if jobs else ():
        item = evidence.item
        if item.mutant:
            evidence = own_forms(evidence, context.done.get(replace(item, mutant="")))  # noqa: PLW2901 - the same, less what is no evidence
        context.done.keep(evidence, context.folder.append(evidence, _outcome(subjects[item.kernel], evidence, noises)))
        finished += 1
        context.tell(Progress(stage, finished, len(work), f"{item.kernel} {item.mutant or item.check} {item.case}"))
        if context.spent:
            break  # which closes the iterator, and so ends the workers
    if jobs:
        _unchanged(context)


def _unchanged(context: _Context) -> None:
    """Refuse to go on with evidence that may be of two different texts: what a worker loads later is what then lies on disk.

    Raises:
        UsageError: a source has changed since the run began.
    """
    for once in (op_digest, own_digest):
        once.cache_clear()
    try:
        now = store.digest_of((), _sources(context.plan, context.suite, context.request, Path(context.source.cwd)))
    except OSError:  # one of them is gone
        now = ""
    if now != context.folder.plan.sources:
        raise UsageError(
            f"the suite, a kernel or gradcheck itself changed while it ran, so run {context.folder.id} would be about two different things. "
            "No verdict is given: start a new run."
        )


def _second_look(context: _Context, noises: Noises) -> dict[str, Seen]:
    """Why kernels failed, by name. Not while calibrating, where a false alarm must stay one."""
    if not context.request.published:
        return {}
    found = {}
    with workshop(context.suite, context.source, context.limits) as shop:
        for subject in context.plan.subjects:
            failed = [verdict for verdict in _judged(context, subject, noises) if verdict.outcome is Outcome.FAILED]
            if not failed:
                continue
            dtype = Case.parse(failed[0].item.case).dtype
            job = replace(_job(context, subject, failed[0].item, noises), tolerances=tolerances(noise_for(subject, dtype, noises)))
            found[subject.kernel.name] = shop.look(subject, job, [v for v in failed if Case.parse(v.item.case).dtype == dtype])
    return found


def _mutants(context: _Context, sound: Sequence[Subject], noises: Noises) -> None:
    """Run the mutants wave by wave; those that have been seen in every form need no further wave, unless they are the weakest."""
    waves = {subject.kernel.name: subject.waves() for subject in sound}
    rates = kill_rates(context.folder.path.parents[1], context.plan.op.name) if any(subject.mutants for subject in sound) else {}
    for number in range(max(map(len, waves.values()), default=0)):
        work = []
        for subject in sound:
            limits = limits_of(subject, noises)
            over = set() if context.request.matrix else settled(subject, context.done.values(), limits)
            wave = waves[subject.kernel.name][number : number + 1]
            work += [(subject, item) for items in wave for item in items if item in context.done or group_of(item) not in over]
        work.sort(key=lambda pair: -rates.get(pair[1].case, -1.0))  # stable: cases that are not known come last, as planned
        clean = {replace(item, mutant=""): subject for subject, item in work if item not in context.done}
        if beside := [(subject, item) for item, subject in clean.items() if item not in context.done]:  # another shard's, see `own_forms`
            _stage(context, "kernels", beside, noises)
        _stage(context, "mutants", work, noises)
    while context.request.weakest:
        evidence = list(context.done.values())
        known = [one for one in evidence if one.item.mutant not in context.request.newcomers]
        more = [
            (subject, item)
            for subject in sound
            for item in dict.fromkeys((*weakest_items(subject, evidence, noises), *weakest_items(subject, known, noises)))
            if item not in context.done
        ]
        if not more or context.spent:
            break
        _stage(context, "mutants", more, noises)


def _job(context: _Context, subject: Subject, item: WorkItem, noises: Noises) -> Job:
    """The item with all that it needs."""
    job = job_of(subject, item, context.source, context.folder.path / "mutants", forward_only=context.request.forward_only)
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
