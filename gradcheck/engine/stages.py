"""The stages of a run: the truths, the kernels, the checks, the mutants; each does what has not been done."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._verdict import Evidence, Outcome, Verdict, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.calibrate.noise import tolerances
from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.assemble import Noises, carried, due, group_of, limits_of, noise_for, not_sound, own_forms, settled
from gradcheck.engine.execute import Job, Source, job_of
from gradcheck.engine.ledger import Ledger
from gradcheck.engine.manifest import sources_of
from gradcheck.engine.order import kill_rates
from gradcheck.engine.plan import Plan, Request, Subject
from gradcheck.engine.prepare import prepare_all, table_of
from gradcheck.engine.progress import Progress, Tell
from gradcheck.engine.secondlook import Seen, workshop
from gradcheck.engine.truth import cases_of
from gradcheck.engine.weakest import weakest_items
from gradcheck.engine.workers import Work, evidences
from gradcheck.process import GIB, Limits, run_all
from gradcheck.suite import Suite


@dataclass(frozen=True, slots=True)
class Context:
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
        """How many workers there are."""
        return self.request.jobs or os.cpu_count() or 1

    @property
    def limits(self) -> Limits:
        """What one item may take."""
        return Limits(self.request.timeout, int(self.request.memory * GIB))


def prepare(context: Context) -> Noises:
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


def _to_come(context: Context, noises: Noises | None) -> list[Case]:
    """The cases at which a comparison is still to be made, as far as that is known."""
    if context.judging:
        return []
    items = context.folder.plan.items if noises is None else due(context.plan, context.done, noises, matrix=context.request.matrix)
    texts = dict.fromkeys(item.case for item in items if not item.check and item not in context.done)
    return [Case.parse(text) for text in texts]


def stage(context: Context, name: Literal["kernels", "checks", "mutants"], work: list[tuple[Subject, WorkItem]], noises: Noises) -> None:
    """Run the items that have no evidence yet, and write down what each yields."""
    subjects = {subject.kernel.name: subject for subject, _ in work}
    jobs = [] if context.spent else [_job(context, subject, item, noises) for subject, item in work if item not in context.done]
    finished = len(work) - len(jobs)
    context.tell(Progress(name, finished, len(work), ""))
    workers = min(context.jobs, len(jobs))
    for evidence in evidences(context.work, jobs, workers=workers, limits=context.limits, logs=context.folder.logs) if jobs else ():
        item = evidence.item
        if item.mutant:
            evidence = own_forms(evidence, context.done.get(replace(item, mutant="")))  # noqa: PLW2901 - the same, less what is no evidence
        context.done.keep(evidence, context.folder.append(evidence, _outcome(subjects[item.kernel], evidence, noises)))
        finished += 1
        context.tell(Progress(name, finished, len(work), f"{item.kernel} {item.mutant or item.check} {item.case}"))
        if context.spent:
            break  # which closes the iterator, and so ends the workers
    if jobs:
        _unchanged(context)


def _unchanged(context: Context) -> None:
    """Refuse to go on with evidence that may be of two different texts: what a worker loads later is what then lies on disk.

    Raises:
        UsageError: a source has changed since the run began.
    """
    try:
        now = store.digest_of((), sources_of(context.plan, context.suite, context.request, Path(context.source.cwd)))
    except OSError:  # one of them is gone
        now = ""
    if now != context.folder.plan.sources:
        raise UsageError(
            f"the suite, a kernel or gradcheck itself changed while it ran, so run {context.folder.id} would be about two different things. "
            "No verdict is given: start a new run."
        )


def second_look(context: Context, noises: Noises) -> dict[str, Seen]:
    """Why kernels failed, by name. Not while calibrating, where a false alarm must stay one."""
    if not context.request.published:
        return {}
    found = {}
    with workshop(context.suite, context.source, context.limits) as shop:
        for subject in context.plan.subjects:
            failed = [verdict for verdict in judged(context, subject, noises) if verdict.outcome is Outcome.FAILED]
            if not failed:
                continue
            dtype = Case.parse(failed[0].item.case).dtype
            job = replace(_job(context, subject, failed[0].item, noises), tolerances=tolerances(noise_for(subject, dtype, noises)))
            found[subject.kernel.name] = shop.look(subject, job, [v for v in failed if Case.parse(v.item.case).dtype == dtype])
    return found


def mutants(context: Context, sound: Sequence[Subject], noises: Noises) -> None:
    """Run the mutants wave by wave; those that have been seen in every form need no further wave, unless they are the weakest."""
    waves = {subject.kernel.name: subject.waves() for subject in sound}
    rates = kill_rates(context.folder.path.parents[1], context.plan.op.name) if any(subject.mutants for subject in sound) else {}
    for number in range(max(map(len, waves.values()), default=0)):
        work = []
        for subject in sound:
            limits = limits_of(subject, noises)
            over = set() if context.request.matrix else settled(subject, _before(context, waves[subject.kernel.name][:number]), limits)
            wave = waves[subject.kernel.name][number : number + 1]
            work += [(subject, item) for items in wave for item in items if item in context.done or group_of(item) not in over]
        work.sort(key=lambda pair: -rates.get(pair[1].case, -1.0))  # stable: cases that are not known come last, as planned
        clean = {replace(item, mutant=""): subject for subject, item in work if item not in context.done}
        if beside := [(subject, item) for item, subject in clean.items() if item not in context.done]:  # another shard's, see `own_forms`
            stage(context, "kernels", beside, noises)
        stage(context, "mutants", work, noises)
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
        stage(context, "mutants", more, noises)


def _before(context: Context, waves: Sequence[Sequence[WorkItem]]) -> list[Evidence]:
    """What the clean kernels and these waves have shown.

    Of the wave to come nothing counts, though a run that was stopped in the midst of it knows some of it: it would leave out items that a
    run that was not stopped does.
    """
    earlier = {item for wave in waves for item in wave}
    return [one for one in context.done.values() if not one.item.mutant or one.item in earlier]


def _job(context: Context, subject: Subject, item: WorkItem, noises: Noises) -> Job:
    """The item with all that it needs."""
    job = job_of(subject, item, context.source, context.folder.path / "mutants", forward_only=context.request.forward_only)
    if not item.check:
        return job
    limits = tolerances(noise_for(subject, Case.parse(item.case).dtype, noises))
    return replace(job, tolerances=limits, sound=not not_sound(judged(context, subject, noises)))


def _outcome(subject: Subject, evidence: Evidence, noises: Noises) -> str:
    """The outcome as it looks now, before all defects are known; reports judge again with the final bands."""
    dtype = Case.parse(evidence.item.case).dtype
    verdict = judge(evidence, tolerances(noise_for(subject, dtype, noises)))
    if not evidence.item.mutant or evidence.status != "measured":
        return verdict.outcome.name
    return "KILLED" if verdict.outcome.name == "FAILED" else "SURVIVED"


def judged(context: Context, subject: Subject, noises: Noises, *, checks: bool = False) -> list[Verdict]:
    """What is known of the kernel as it is, by the noise of the model; with `checks` what they say as well."""
    items = (*subject.clean_items(), *(subject.checks if checks else ()))
    evidence = [context.done[item] for item in items if item in context.done]
    return [judge(one, tolerances(noise_for(subject, Case.parse(one.item.case).dtype, noises))) for one in evidence]
