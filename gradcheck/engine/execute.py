"""One work item, done in a worker: find the kernel, call it, compare it with the truth. Returns evidence, whatever happens."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as once
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._kernel import Kernel
from gradcheck._op import Op
from gradcheck._truth import Truth
from gradcheck._verdict import CANARY, NULL, Evidence, WorkItem
from gradcheck.calibrate.judge import Tolerances
from gradcheck.engine.call import Call, NoBackward, call, canary
from gradcheck.engine.checks import CHECKS, KernelRaised, bench_of
from gradcheck.engine.launches import launches, placed
from gradcheck.engine.measure import Sticks, measure, sticks_of
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.plan import Subject
from gradcheck.engine.problem import Problem, draw
from gradcheck.engine.target import load_package, load_target
from gradcheck.engine.truth import Oracle, know
from gradcheck.process import Died, Done
from gradcheck.suite import Suite, find_op, load

T = TypeVar("T")

RECENT = 4
"""Cases whose truths a worker keeps at hand."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a worker finds things. Plain data, the same for all items of a run.

    Args:
        suites: folders of the suites, as the run was told.
        cwd: folder the run was started in, for suites and relative kernel files.
        oracle: who says the truth.
    """

    suites: tuple[str, ...]
    cwd: str
    oracle: Oracle = "costate"


def source_of(suites: Sequence[str], cwd: Path, oracle: Oracle = "costate") -> Source:
    """The source of a run that was told these folders of suites, in this folder."""
    return Source(tuple(str(Path(cwd, path).resolve()) for path in suites), str(cwd), oracle)


@dataclass(frozen=True, slots=True)
class Job:
    """A work item with all a worker needs to do it.

    Args:
        item: what to do.
        source: where things are.
        kernel: the kernel's declaration.
        package: folder of the kernel's package to load (the clean one, or a mutant's copy); empty for a plain target.
        module: the module in that package.
        forward_only: leave the gradients unchecked.
        tolerances: of the comparison with the truth, which a check may need too.
        sound: whether that comparison found nothing wrong.
    """

    item: WorkItem
    source: Source
    kernel: Kernel
    package: str = ""
    module: str = ""
    forward_only: bool = False
    tolerances: Tolerances = field(default_factory=dict, hash=False)
    sound: bool = True


def job_of(subject: Subject, item: WorkItem, source: Source, into: Path, *, forward_only: bool = False) -> Job:
    """The item with the package it needs: a mutant's is a copy, in a folder of its own below `into`."""
    package = subject.package
    if item.mutant not in {"", CANARY}:
        edit = None if item.mutant == NULL else subject.mutants[item.mutant].edits[subject.kernel.name]
        package = str(copy_with_edit(Path(package), edit, item.mutant, into.absolute() / item.mutant))
    return Job(item, source, subject.kernel, package, subject.module, forward_only)


def execute(job: Job) -> Evidence:
    """The evidence of one item. What the kernel raises is part of it; what it does to the process is for the pool to say."""
    began = time.perf_counter()
    with launches() as places:
        evidence = _checked(job) if job.item.check else _compared(job)
    return replace(placed(evidence, job.kernel, places), seconds=time.perf_counter() - began)


def evidence_of(item: WorkItem, got: Done | Died) -> Evidence:
    """The evidence that a worker returned, or of how it died over the item."""
    if isinstance(got, Died):
        return Evidence(item, got.kind, detail=got.detail, log=got.log, seconds=got.seconds)
    assert isinstance(got.value, Evidence)
    return got.value


def attempt(job: Job, problem: Problem) -> Call | Evidence:
    """What the kernel of a job returns at its case, or evidence of how it failed to."""
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)

    def called() -> Call:
        kernel = kernel_of(job)
        return call(
            canary(kernel) if job.item.mutant == CANARY else kernel,
            problem.inputs,
            problem.cotangents,
            dtype=case.dtype,
            output_shapes=tuple(op.output_shapes(case.sizes).values()),
            differentiable=op.recurrence(case.variant).differentiable,
            forward_only=job.forward_only,
        )

    return trial(job.item, called)


def trial(item: WorkItem, use: Callable[[], T]) -> T | Evidence:
    """What `use`, which loads or calls a kernel, returns; or evidence of how the kernel failed in it."""
    try:
        return use()
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything, and that is its outcome
        return _of_kernel(item, error)


def _of_kernel(item: WorkItem, error: Exception) -> Evidence:
    """Evidence of what loading or calling a kernel raised."""
    if isinstance(error, UsageError):
        return Evidence(item, "unviable", detail=str(error))
    if isinstance(error, NoBackward):
        return Evidence(item, "no-backward", detail=str(error))
    return _of_metal(item, error) or Evidence(item, "raised", detail=describe(error))


def _of_metal(item: WorkItem, error: Exception) -> Evidence | None:
    """Evidence of what only a Metal kernel can raise: its checker's findings, its end, or that nothing here can run it."""
    errors = sys.modules.get("gradcheck.metal.errors")  # loaded, if anything here can have raised one of them
    if errors is None:
        return None
    if isinstance(error, errors.KernelFault):
        found = "\n".join(f"{error.kernel}: {finding}" for finding in error.findings if not finding.benign)
        late = all(finding.kind == "out of time" for finding in error.findings if not finding.benign)
        return Evidence(item, "timeout" if late else "fault", detail=found)
    if isinstance(error, errors.KernelDied):
        return Evidence(item, "crashed", detail=str(error))
    return Evidence(item, "no-device", detail=str(error)) if isinstance(error, errors.NoCompilerError) else None


def _compared(job: Job) -> Evidence:
    """The evidence of a comparison with the truth."""
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    truth, problem, sticks = _at(job.source, job.item.op, job.item.case)
    got = attempt(job, problem)
    if isinstance(got, Evidence):
        return got
    found = measure(op, case.variant, case.dtype, truth, got.outputs, got.gradients, sticks, brief=bool(job.item.mutant))
    return Evidence(job.item, "measured", found, notes=got.notes)


@lru_cache(maxsize=RECENT)
def _at(source: Source, name: str, text: str) -> tuple[Truth, Problem, Sticks]:
    """All that is known of a case. Mutants of one case follow each other, so a worker needs it again at once."""
    op, case = op_of(source, name), Case.parse(text)
    known, problem = know(op, case, source.oracle)
    return known.truth, problem, sticks_of(op, case.variant, case.dtype, known.truth)


def _checked(job: Job) -> Evidence:
    """The evidence of a check: what it found is in the notes, for each of them is a failure by itself.

    What the kernel raises within a check is the kernel's; what the check itself raises is ours.
    """
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    (check,) = (one for one in CHECKS if one.name == job.item.check)
    problem = draw(op, case)
    bench = trial(
        job.item,
        lambda: bench_of(kernel_of(job), job.kernel, op, case, problem, job.tolerances, forward_only=job.forward_only, sound=job.sound),
    )
    if isinstance(bench, Evidence):
        return bench
    try:
        found = check.find(bench)
    except KernelRaised as raised:
        return _of_kernel(job.item, raised.error)
    except Exception as error:  # noqa: BLE001 - no kernel is charged with it, and the other items go on
        return Evidence(job.item, "bug", detail=describe(error))
    if not (found.compared or found.broken):
        return Evidence(job.item, "idle", detail=found.remark or "nothing to compare at this case")
    return Evidence(job.item, "measured", notes=found.broken, detail=found.remark)


def describe(error: BaseException) -> str:
    """The exception and the last frames of its traceback."""
    frames = traceback.format_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__}: {error}\n{''.join(frames)}".rstrip()


@once
def suite_of(source: Source) -> Suite:
    """The suite, as a worker finds it."""
    return load([Path(path) for path in source.suites], cwd=Path(source.cwd))


@once
def op_of(source: Source, name: str) -> Op:
    """The op of this name, as a worker finds it."""
    return find_op(suite_of(source), name)


def kernel_of(job: Job) -> object:
    """The kernel of a job, or its mutant's copy, loaded once in a worker."""
    return _load(job.kernel.target, job.package, job.module, job.source.cwd)


def loaded() -> int:
    """How many kernels this process has loaded, the copies of mutants counted."""
    return _load.cache_info().currsize


@once
def _load(target: str, package: str, module: str, cwd: str) -> object:
    if not package:
        return load_target(target, folder=Path(cwd))
    return load_package(Path(package), module, target.rpartition(":")[2])
