"""Several runs of one plan as one: the parts that several machines did, or what an unfinished run has so far.

What is merged is evidence. The result is judged anew, by what is in this folder now, as a run of the whole plan would be.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from gradcheck._errors import UsageError
from gradcheck._verdict import Evidence, Run, WorkItem
from gradcheck.calibrate.published import pooled
from gradcheck.engine import store
from gradcheck.engine.assemble import carried, due
from gradcheck.engine.journal import Record
from gradcheck.engine.manifest import planned, published_for
from gradcheck.engine.plan import Plan, Request
from gradcheck.engine.progress import Tell
from gradcheck.engine.run import resume
from gradcheck.engine.shard import parse_shard, share, shares
from gradcheck.engine.store import Manifest, Noise, Stored
from gradcheck.suite import Suite, load

Difference = Literal["plans", "seeds", "sources", "versions", "results"]
DIFFERENCES: tuple[Difference, ...] = ("plans", "seeds", "sources", "versions", "results")

_VERSIONS = ("gradcheck", "numpy", "mlx")
_BESIDE_THE_PLAN = frozenset({"shard", "jobs", "timeout", "memory", "budget", "suites", "cwd", "seed", "engine", "scheduler"})
"""What two requests for the same plan may differ in; the seed is named by itself."""

_SHOWN = 3
"""Differences of a kind that are named."""


def find_runs(folder: Path, names: Sequence[str]) -> list[Path]:
    """The run folders that these names mean: ids of runs in `folder`, or folders that are one or have some below them.

    Raises:
        UsageError: there is none of such a name.
    """
    found: dict[Path, None] = {}
    for name in names:
        here = folder / "runs" / name
        place = here if (here / "plan.json").is_file() else Path(name)
        below = sorted(plan.parent for plan in place.glob("**/plan.json")) if place.is_dir() else []
        if not below:
            raise UsageError(
                f"no run {name!r}: it is neither an id that `gradcheck list runs` has, nor a folder with a plan.json in or below it"
            )
        found |= dict.fromkeys(path.resolve() for path in below)
    return list(found)


def merge(paths: Sequence[Path], *, folder: Path, tell: Tell, suites: Sequence[str] = (), allow: Iterable[str] = ()) -> Run:
    """The run of the whole plan that these runs are parts of, in a run folder of its own under `folder`.

    Evidence that a run of the whole would not have is left out: that of mutants of a kernel that is wrong in another part.

    Args:
        paths: their folders.
        folder: where the merged run is written.
        tell: told what is missing and what was let through.
        suites: folders of suites, as `run` was told; without any, those that the first run was told.
        allow: the `DIFFERENCES` that are let through.

    Raises:
        UsageError: they differ in something that is not let through, or one has not come to its first item.
        StoreError: one cannot be read, or the merged run not be written.
    """
    runs, allowed, cwd = [store.read_folder(path) for path in paths], frozenset(allow), Path.cwd()
    asked = _request(runs[0])
    request = replace(asked, shard="", suites=tuple(suites) or asked.suites)
    suite = load([Path(path) for path in request.suites], cwd=cwd)
    plan, manifest = planned(request, suite, cwd)
    notes = _let_through(_differences(runs, manifest), allowed)
    union, more = _union(runs, plan, manifest.items, allowed)
    noise = _noise(runs, plan, request, suite)
    evidence = {item: record.evidence for item, record in union.items()}
    wanted = due(plan, evidence, {(dtype, carry): noise[f"{dtype}/{carry}"] for dtype, carry in _asked(plan)}, matrix=request.matrix)
    notes += [*more, *(sentence for run in runs for sentence in run.damage)]
    notes += _missing(runs, plan, [item for item in wanted if item not in union])
    kept = [union[item] for item in wanted if item in union]
    return _judged(replace(manifest, environment=_environment(runs)), kept, noise, folder=folder, tell=tell, notes=notes)


def so_far(folder: Path, run_id: str, tell: Tell) -> Run:
    """What an unfinished run has so far, judged as if it had been stopped now. The run itself is left as it is.

    Raises:
        UsageError: there is no such run, it has not come to its first item, or what it is of has changed since.
    """
    stored = store.read(folder, run_id)
    if stored.noise is None:
        raise UsageError(f"run {run_id} has not come to its first item, so there is nothing to tell: gradcheck run --resume {run_id}")
    with tempfile.TemporaryDirectory(prefix="gradcheck-") as scratch:
        run = _judged(stored.plan, stored.records, stored.noise, folder=Path(scratch), tell=tell, notes=stored.damage)
    return replace(run, id=run_id, environment={**run.environment, "folder": str(folder / "runs" / run_id)})


def _judged(plan: Manifest, records: Iterable[Record], noise: Noise, *, folder: Path, tell: Tell, notes: Sequence[str]) -> Run:
    """A run folder with these records, and the run that they make."""
    with store.create(folder, plan) as opened:
        opened.keep_noise(noise)
        for record in records:
            opened.append(record.evidence, record.outcome)
    return resume(opened.id, folder=folder, tell=tell, judging=True, notes=notes)


def _request(run: Stored) -> Request:
    return msgspec.convert({name: value for name, value in run.plan.request.items() if name != "cwd"}, Request)


def _differences(runs: Sequence[Stored], here: Manifest) -> dict[Difference, list[str]]:
    """What the runs differ in from each other and from what is in this folder, by kind."""
    first = runs[0]
    found: dict[Difference, list[str]] = {}

    def unlike(kind: Difference, run: Stored, what: str, one: object, other: object, where: str = first.id) -> None:
        if one != other:
            found.setdefault(kind, []).append(f"{what} is {one!r} in {run.id} and {other!r} in {where}")

    for run in runs:
        plan = run.plan
        unlike("seeds", run, "seed", plan.request.get("seed"), first.plan.request.get("seed"))
        for name in sorted({*plan.request, *first.plan.request} - _BESIDE_THE_PLAN):
            unlike("plans", run, name, plan.request.get(name), first.plan.request.get(name))
        for name in _VERSIONS:
            unlike("versions", run, name, plan.environment.get(name), first.plan.environment.get(name))
        if plan.sources != here.sources:
            found.setdefault("sources", []).append(
                f"{run.id} is of other sources (op, kernels, mutants or gradcheck itself) than this folder has"
            )
    for run in runs:
        if not found and run.plan.whole != here.whole:
            text = (
                f"what {run.id} was asked for comes to another plan here, where other kernels can run: name them by --kernel when you run"
            )
            found.setdefault("plans", []).append(text)
    return found


def _let_through(found: Mapping[Difference, Sequence[str]], allowed: frozenset[str]) -> list[str]:
    """What was let through, as notes.

    Raises:
        UsageError: something is not.
    """
    for kind, sentences in found.items():
        if kind not in allowed:
            raise UsageError(
                f"these runs are of different {kind}: {'; '.join(sentences[:_SHOWN])}. To merge them all the same: --allow {kind}"
            )
    return [f"merged although of different {kind}: {text}" for kind, sentences in found.items() for text in sentences[:_SHOWN]]


def _union(
    runs: Sequence[Stored], plan: Plan, items: Iterable[WorkItem], allowed: frozenset[str]
) -> tuple[dict[WorkItem, Record], list[str]]:
    """(one record of each planned item, notes).

    What a shard did of the clean kernel in another's stead, to compare its mutants with, is its own affair. Of an item that was done twice
    the first run's counts.
    """
    known = frozenset(items)
    union: dict[WorkItem, tuple[str, Record]] = {}
    strays: Counter[str] = Counter()
    clashes = []
    for run in runs:
        shard = str(run.plan.request.get("shard") or "")
        mine = share(plan, parse_shard(shard)) if shard else known
        for record in run.records:
            item = record.evidence.item
            if item not in known:
                strays[run.id] += 1
            elif item not in mine:
                continue
            elif item not in union:
                union[item] = run.id, record
            elif _essence(record) != _essence(union[item][1]):
                clashes.append(f"{item.id} in {union[item][0]} and {run.id}")
    notes = [f"{count} items of {run} are not in the plan, and are left out" for run, count in strays.items()]
    notes += _let_through({"results": [f"{len(clashes)} items were done twice, first {clashes[0]}"]} if clashes else {}, allowed)
    return {item: record for item, (_, record) in union.items()}, notes


def _essence(record: Record) -> Evidence:
    """What an item yielded, without what differs each time."""
    return replace(record.evidence, seconds=0.0, log="")


def _asked(plan: Plan) -> list[tuple[str, str]]:
    """(dtype, dtype in which the state is carried) of all kernels."""
    return list(dict.fromkeys((case.dtype, carried(subject, case.dtype)) for subject in plan.subjects for case in subject.cases))


def _noise(runs: Sequence[Stored], plan: Plan, request: Request, suite: Suite) -> Noise:
    """What rounding explains: the published noise, else the largest that a run has found."""
    published = published_for(request, suite)
    found = dict(published.noise) if published else {}
    for dtype, carry in _asked(plan):
        name = f"{dtype}/{carry}"
        tables = [run.noise[name] for run in runs if run.noise and name in run.noise]
        if name not in found and not tables:
            raise UsageError(f"no run has come to its first item, so nothing is known of {name}: gradcheck run --resume {runs[0].id}")
        found.setdefault(name, pooled(tables))
    return found


def _missing(runs: Sequence[Stored], plan: Plan, items: Sequence[WorkItem]) -> list[str]:
    """Where the items are that no run has; which of them are wanted may depend on what the others show, hence "at most"."""
    if not items:
        return []
    by_shard = {str(run.plan.request.get("shard") or ""): run for run in runs}
    counts = {parse_shard(shard).count for shard in by_shard if shard}
    if len(counts) != 1 or "" in by_shard:
        return [f"{len(items)} items are in none of these runs, first {items[0].id}"]
    (count,) = counts
    notes = []
    for number, mine in enumerate(shares(plan, count), 1):
        left, run = sum(item in mine for item in items), by_shard.get(f"{number}/{count}")
        if left and (run is None or mine.isdisjoint(run.plan.items)):  # what is there may be of another seed
            notes.append(f"shard {number} of {count} is missing: at most {left} items")
        elif left and run:
            notes.append(f"shard {number} of {count} is not finished, at most {left} items are missing: gradcheck run --resume {run.id}")
    return notes


def _environment(runs: Sequence[Stored]) -> dict[str, str]:
    """Facts about the machines, by name; all values where they differ."""
    names = dict.fromkeys(name for run in runs for name in run.plan.environment)
    facts = {name: " + ".join(dict.fromkeys(run.plan.environment.get(name, "") for run in runs)) for name in names}
    return {**facts, "merged": ", ".join(run.id for run in runs)}
