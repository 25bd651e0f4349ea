"""The items of a run, done: by workers of this machine or of a cluster, and a death is believed once it has come twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from gradcheck._verdict import Evidence
from gradcheck.engine.execute import Job, evidence_of, execute, loaded
from gradcheck.engine.plan import Request
from gradcheck.process import Died, Done, Limits, Team, retire
from gradcheck.suite import Suite

Item = TypeVar("Item")

KERNELS = 256
"""Kernels that a worker loads until it retires: MLX and the Metal executor never let go of a library that they have compiled."""

DOUBTED = frozenset({"timeout", "crashed", "memory"})
"""Statuses that may be the doing of whatever else ran on the machine."""

ALONE = "at first; run again, alone, it ended by itself"


class Work(Protocol):
    """How functions are called on items elsewhere: `process.run_all`, or a cluster's."""

    def __call__(
        self, function: Callable[[Item], object], items: Iterable[Item], *, jobs: int, limits: Limits, logs: Path
    ) -> Iterator[tuple[Item, Done | Died]]:
        """Yield each item with what became of it, as they come."""


@contextmanager
def hired(request: Request, suite: Suite, cwd: Path, *, jobs: int) -> Iterator[Work]:
    """Who does the items of this request, for as long as the block lasts.

    Raises:
        UsageError: a cluster that was asked for cannot be had.
    """
    if request.engine == "local":
        team = Team()
        try:
            yield team.run_all
        finally:
            team.close()
        return
    from gradcheck.engine.dask import cluster

    with cluster(request.scheduler, suite, cwd, jobs=jobs) as found:
        yield found.work


def perform(job: Job) -> Evidence:
    """In a worker: the evidence of one item. A worker that has loaded many kernels steps down afterwards."""
    evidence = execute(job)
    if loaded() >= KERNELS:
        retire()
    return evidence


def evidences(work: Work, jobs: Sequence[Job], *, workers: int, limits: Limits, logs: Path) -> Iterator[Evidence]:
    """The evidence of each job, as it comes.

    An item that hung, or took its process down, is done once more at the end, with no other item beside it, and that is what counts: the
    machine may have been busy, or short of memory. Once that has confirmed one such end of a kernel or mutant, others of the same kind
    are believed at once, so that a kernel that always hangs costs its time limit once more and not at every case.
    """
    doubted: list[tuple[Job, Evidence]] = []
    for job, got in work(perform, jobs, jobs=workers, limits=limits, logs=logs):
        evidence = evidence_of(job.item, got)
        if evidence.status in DOUBTED:
            doubted.append((job, evidence))
        else:
            yield evidence
    confirmed: set[tuple[str, ...]] = set()
    for job, evidence in doubted:
        kind = (job.item.kernel, job.item.mutant, job.item.check, evidence.status)
        if kind in confirmed:
            yield evidence
            continue
        ((_, got),) = work(perform, [job], jobs=1, limits=limits, logs=logs)
        again = evidence_of(job.item, got)
        if again.status == evidence.status:
            confirmed.add(kind)
        yield again if again.status in DOUBTED else replace(again, detail=_both(evidence, again))


def _both(first: Evidence, again: Evidence) -> str:
    """What a reader must know of an end that did not come again, behind what was said of the second time."""
    said = f"{first.status} ({first.detail.partition(chr(10))[0]}) {ALONE}"
    return f"{again.detail}; {said}" if again.detail else said


def passing(evidence: Iterable[Evidence]) -> list[str]:
    """A sentence for each kernel that died where it then did not: that it may do so again is no verdict, but must be known."""
    found: dict[tuple[str, str], list[Evidence]] = {}
    for one in evidence:
        if one.detail.endswith(ALONE):
            found.setdefault((one.item.kernel, one.item.mutant), []).append(one)
    return [
        f"{kernel}{f' with {mutant}' if mutant else ''} did not end by itself in {len(all_)} items until run again alone, "
        f"first at {all_[0].item.case}: {all_[0].detail}"
        for (kernel, mutant), all_ in found.items()
    ]
