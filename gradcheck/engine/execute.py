"""One work item, done in a worker: find the kernel, call it, compare it with the truth. Returns evidence, whatever happens."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from functools import cache as once
from functools import lru_cache
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import StaleMutant, UsageError
from gradcheck._kernel import Kernel
from gradcheck._op import Op
from gradcheck._truth import Truth
from gradcheck._verdict import CANARY, Evidence, WorkItem
from gradcheck.calibrate.judge import Tolerances
from gradcheck.engine.arrays import arrays_of, is_object
from gradcheck.engine.call import NoBackward, call, canary
from gradcheck.engine.checks import CHECKS, Bench
from gradcheck.engine.measure import Sticks, measure, sticks_of
from gradcheck.engine.problem import Problem, draw
from gradcheck.engine.target import load_package, load_target
from gradcheck.engine.truth import know
from gradcheck.suite import find_op, load

RECENT = 4
"""Cases whose truths a worker keeps at hand."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a worker finds things. Plain data, the same for all items of a run.

    Args:
        suites: folders of the suites, as the run was told.
        cwd: folder the run was started in, for suites and relative kernel files.
    """

    suites: tuple[str, ...]
    cwd: str


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


def execute(job: Job) -> Evidence:
    """The evidence of one item. What the kernel raises is part of it; what it does to the process is for the pool to say."""
    if job.item.check:
        return _check(job)
    began = time.perf_counter()
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    truth, problem, sticks = _at(job.source, job.item.op, job.item.case)
    try:
        kernel = kernel_of(job)
    except UsageError as error:
        return Evidence(job.item, "unviable", detail=str(error), seconds=time.perf_counter() - began)
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
        return Evidence(job.item, "no-backward", detail=str(error), seconds=time.perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything, and that is its outcome
        return Evidence(job.item, "raised", detail=describe(error), seconds=time.perf_counter() - began)
    found = measure(op, case.variant, case.dtype, truth, got.outputs, got.gradients, sticks, brief=bool(job.item.mutant))
    return Evidence(job.item, "measured", found, notes=got.notes, seconds=time.perf_counter() - began)


@lru_cache(maxsize=RECENT)
def _at(source: Source, name: str, text: str) -> tuple[Truth, Problem, Sticks]:
    """All that is known of a case. Mutants of one case follow each other, so a worker needs it again at once."""
    op, case = op_of(source, name), Case.parse(text)
    known, problem = know(op, case)
    return known.truth, problem, sticks_of(op, case.variant, case.dtype, known.truth)


def _check(job: Job) -> Evidence:
    """The evidence of a check: what it found is in the notes, for each of them is a failure by itself."""
    began = time.perf_counter()
    op, case = op_of(job.source, job.item.op), Case.parse(job.item.case)
    (check,) = (one for one in CHECKS if one.name == job.item.check)
    try:
        bench = Bench(kernel_of(job), op, case, draw(op, case), job.tolerances, job.forward_only, job.sound)
        found = check.find(bench)
    except UsageError as error:
        return Evidence(job.item, "unviable", detail=str(error), seconds=time.perf_counter() - began)
    except NoBackward as error:
        return Evidence(job.item, "no-backward", detail=str(error), seconds=time.perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything, and that is its outcome
        return Evidence(job.item, "raised", detail=describe(error), seconds=time.perf_counter() - began)
    seconds = time.perf_counter() - began
    if not (found.compared or found.broken):
        return Evidence(job.item, "idle", detail="nothing to compare at this case", seconds=seconds)
    return Evidence(job.item, "measured", notes=found.broken, detail=found.remark, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask a worker for what can be known of one case without a kernel."""

    source: Source
    op: str
    case: str


def prepare(ask: Prepare) -> None:
    """Compute the truth of a case and the model noise there, into the cache."""
    know(op_of(ask.source, ask.op), Case.parse(ask.case))


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a worker whether a target can be loaded at all."""

    source: Source
    op: str
    target: str
    dtypes: tuple[str, ...] = ()


def probe(ask: Probe) -> str:
    """Nothing if the target loads and is a kernel of its own; else what is wrong with it."""
    try:
        kernel = load_target(ask.target, folder=Path(ask.source.cwd))
    except (UsageError, StaleMutant) as error:
        return str(error)
    if not (callable(kernel) or is_object(kernel) or isinstance(kernel, Op)):
        return f"kernel {ask.target!r} is of type {type(kernel).__name__}: neither a callable nor an object with `forward` and `vjp`"
    op = op_of(ask.source, ask.op)
    if isinstance(kernel, Op) or kernel is op.step or _code(kernel) == _code(op.step):
        return f"kernel {ask.target!r} is the reference itself: an oracle cannot check itself. Name an implementation of {op.name} instead."
    arrays = arrays_of(kernel)
    if alien := [dtype for dtype in ask.dtypes if dtype not in arrays.DTYPES]:
        return (
            f"kernel {ask.target!r} works on {arrays.NAME} arrays, which have no {alien[0]}; leave it out, or give a kernel on MLX arrays"
        )
    return ""


def describe(error: BaseException) -> str:
    """The exception and the last frames of its traceback."""
    frames = traceback.format_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__}: {error}\n{''.join(frames)}".rstrip()


def _code(thing: object) -> object:
    return getattr(thing, "__code__", thing)


@once
def op_of(source: Source, name: str) -> Op:
    """The op of this name, as a worker finds it."""
    return find_op(load([Path(path) for path in source.suites], cwd=Path(source.cwd)), name)


def kernel_of(job: Job) -> object:
    """The kernel of a job, or its mutant's copy, loaded once in a worker."""
    return _load(job.kernel.target, job.package, job.module, job.source.cwd)


@once
def _load(target: str, package: str, module: str, cwd: str) -> object:
    if not package:
        return load_target(target, folder=Path(cwd))
    return load_package(Path(package), module, target.rpartition(":")[2])
