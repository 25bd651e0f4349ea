"""A run from request to result: load, plan, prepare the truths, run the kernels, run the mutants, judge."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gradcheck._errors import GradcheckError, UsageError
from gradcheck._verdict import Band, Run
from gradcheck.engine import store
from gradcheck.engine.assemble import Noises, assemble, due, not_running, not_sound
from gradcheck.engine.execute import source_of
from gradcheck.engine.files import FULL, StoreError
from gradcheck.engine.finished import finished_run
from gradcheck.engine.manifest import command_of, planned, published_for
from gradcheck.engine.plan import Request
from gradcheck.engine.probe import probe_strangers
from gradcheck.engine.progress import Progress, Tell
from gradcheck.engine.shard import parse_shard
from gradcheck.engine.stages import Context, judged, mutants, prepare, second_look, stage
from gradcheck.engine.truth import refusals
from gradcheck.engine.unreached import unreached
from gradcheck.engine.workers import hired, passing
from gradcheck.suite import load


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
            return _go(Context(request, source, suite, plan, opened, tell, published_for(request, suite), opened.ledger()[0]))
        except GradcheckError:
            opened.discard()
            raise


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
        opened.plan = replace(now, environment=opened.plan.environment)  # the same, in less memory: its items share their texts
        done, damage = opened.ledger()
        finished = None if judging else finished_run(opened.path)
        if finished is not None and sum(item in done for item in now.items) >= finished.done:  # no line of it has been damaged since
            return finished
        for sentence in damage:
            tell(Progress("truth", 0, 0, "", sentence))
        noise = store.noise_of(opened.path) or {}
        return _go(Context(request, source, suite, plan, opened, tell, published_for(request, suite), done, noise, judging, tuple(notes)))


def _go(context: Context) -> Run:
    if context.judging:
        return _done(context)
    try:
        with hired(context.request, context.suite, Path(context.source.cwd), jobs=context.jobs) as work:
            return _done(replace(context, work=work))
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = error.filename or context.folder.path
        raise StoreError(
            f"cannot write to {where}: {error.strerror}. What is done is kept; make room or make it writable, then go on with "
            f"--resume {context.folder.id}"
        ) from error


def _done(context: Context) -> Run:
    began = time.perf_counter()
    if not context.judging:
        probe_strangers(context.plan.subjects, context.plan.op.name, context.source, limits=context.limits, logs=context.folder.logs)
    noises = prepare(context)
    stage(context, "kernels", [(subject, item) for subject in context.plan.subjects for item in subject.clean_items()], noises)
    running = [subject for subject in context.plan.subjects if not not_running(judged(context, subject, noises))]
    stage(context, "checks", [(subject, item) for subject in running for item in subject.checks], noises)
    seen = second_look(context, noises)
    sound = [subject for subject in context.plan.subjects if not not_sound(judged(context, subject, noises, checks=True))]
    mutants(context, sound, noises)
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
        lacking=_lacking(context, noises),
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


def _lacking(context: Context, noises: Noises) -> int:
    """How many items are still to be done, where no more are done here."""
    if not context.judging:
        return 0
    return sum(item not in context.done for item in due(context.plan, context.done, noises, matrix=context.request.matrix))


def _bands(context: Context) -> tuple[Band, ...]:
    """The published bands. A run that has measured its defects in full, or the weakest of them, shows its own."""
    bands = context.published.bands if context.published else ()
    return tuple(replace(band, defect=None) for band in bands) if context.request.matrix or context.request.weakest else bands


def _told(context: Context) -> dict[str, str]:
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


def _refusals(context: Context) -> list[str]:
    cases = dict.fromkeys(case for subject in context.plan.subjects for case in subject.cases)
    said = refusals(context.plan.op, cases, context.request.oracle)
    return [said] if said else []
