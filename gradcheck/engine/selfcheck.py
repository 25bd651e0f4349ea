"""`--oracle self`: a kernel's gradients against float32 differences of its own forward, as ggml's tests do, and beside the truth.

There to be compared with: what such a test can and cannot see, in numbers. It keeps nothing but copies of mutants and cannot be resumed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from gradcheck._case import Case, parse_dims
from gradcheck._errors import UsageError, unknown
from gradcheck._op import Op
from gradcheck._verdict import ExitCode
from gradcheck.engine.environment import environment
from gradcheck.engine.execute import job_of, source_of
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.engine.probe import probe_strangers
from gradcheck.engine.progress import Progress
from gradcheck.engine.published import file_of
from gradcheck.engine.selfrows import SelfRow, Separation, gate, rows, separations
from gradcheck.engine.selfwork import SelfEvidence, SelfJob, measure_self
from gradcheck.numerics.selfdiff import STENCILS
from gradcheck.process import GIB, Done, Limits, run_all
from gradcheck.suite import Suite, find_op, load, mutants_of

DTYPE = "f32"  # ggml's differences are of float32 forwards

SEEDS = 20
"""As many runs as the table has that is to be compared with."""

TOLERANCE = 5e-2
"""Where an op has no published table: that of the only one there is. ggml's own default of 1e-4 rejects correct gradients of a scan."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How to difference, and where: sizes (and perhaps the branch), regime of the inputs, points, step."""

    dims: str = ""
    regime: str = ""
    stencil: int = 2
    step: float = 0.25


@dataclass(frozen=True, slots=True)
class SelfTable:
    """Somebody else's results of this method, `reports/published/<op>.self.json`, to be printed beside ours.

    Args:
        source: where they were published; runs: over how many runs.
        gradients: inputs whose gradients they are about.
        tolerance, noise, defects: MAA; defects by mutant.
        setting: with which *we* come to the same level, found by measurement; theirs may not be known.
    """

    source: str
    runs: int
    gradients: tuple[str, ...]
    tolerance: float
    noise: float
    defects: Mapping[str, float] = field(hash=False)
    setting: Setting


@dataclass(frozen=True, slots=True)
class SelfRequest:
    """What a user asks for. Whatever is None or empty comes from the op's published table, or else from `Setting` and the op's sizes.

    Args:
        op, kernels, mutants, jobs, timeout, memory, suites: as in `Request`; without a kernel the op's first.
        dims: sizes that differ from the setting's, and perhaps a branch.
        regime, stencil, step: see `Setting`.
        seed, seeds: the first seed, and how many.
    """

    op: str
    kernels: tuple[str, ...] = ()
    mutants: str | None = None
    dims: str = ""
    regime: str = ""
    stencil: int | None = None
    step: float | None = None
    seed: int = 0
    seeds: int = SEEDS
    jobs: int = 0
    timeout: float = 60.0
    memory: float = 8.0
    suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelfResult:
    """All that was found. `setting` is what was used; `table` is what it is compared with, if the op has one."""

    op: str
    setting: Setting
    seed: int
    seeds: int
    gradients: tuple[str, ...]
    apart: tuple[str, ...]
    tolerance: float
    table: SelfTable | None
    rows: tuple[SelfRow, ...]
    separations: tuple[Separation, ...]
    notes: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)
    seconds: float
    exit_code: ExitCode
    reasons: tuple[str, ...]


def self_check(request: SelfRequest, *, folder: Path, tell: Callable[[Progress], None]) -> SelfResult:
    """Do what `request` asks; copies of mutants and logs go under `folder`.

    Raises:
        GradcheckError: the request names something that does not exist or does not fit, or a suite cannot be used.
    """
    began = time.perf_counter()
    cwd = Path.cwd()
    source = source_of(request.suites, cwd)
    suite = load([Path(path) for path in source.suites], cwd=cwd)
    op = find_op(suite, request.op)
    table = read_table(suite, op.name)
    setting = _setting(request, op, table)
    differentiable = op.recurrence(next(iter(op.variants), "")).differentiable
    gradients = differentiable if table is None else table.gradients
    tolerance = TOLERANCE if table is None else table.tolerance
    plan = _plan(request, suite, op, setting, table)
    limits, own = Limits(request.timeout, int(request.memory * GIB)), folder / "self"
    probe_strangers(plan.subjects, op.name, source, limits=limits, logs=own / "logs")
    work = [(subject, item) for subject in plan.subjects for item in (*subject.clean_items(), *subject.mutant_items())]
    jobs = [SelfJob(job_of(subject, item, source, own / "mutants"), setting.stencil, setting.step) for subject, item in work]
    evidence = list(_measured(jobs, request.jobs or os.cpu_count() or 1, limits, own / "logs", tell))
    order = {item: number for number, (_, item) in enumerate(work)}
    evidence.sort(key=lambda one: order[one.item])
    found = rows(evidence, {name: mutant for subject in plan.subjects for name, mutant in subject.mutants.items()}, gradients, tolerance)
    stale = [text for subject in plan.subjects for text in subject.stale.values()]
    code, reasons = gate(found, stale, plan.absent, tolerance)
    return SelfResult(
        op=op.name,
        setting=setting,
        seed=request.seed,
        seeds=request.seeds,
        gradients=gradients,
        apart=tuple(name for name in differentiable if name not in gradients),
        tolerance=tolerance,
        table=table,
        rows=found,
        separations=separations(found),
        notes=suite.notes,
        environment=environment(cwd),
        seconds=time.perf_counter() - began,
        exit_code=code,
        reasons=reasons,
    )


def read_table(suite: Suite, op: str) -> SelfTable | None:
    """The published table of an op, if there is one.

    Raises:
        UsageError: the file cannot be read.
    """
    path = file_of(suite, op).with_suffix(".self.json")
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=SelfTable)
    except msgspec.DecodeError as error:
        raise UsageError(f"published table {path}: {error}. Mend the file, or remove it.") from error


def _setting(request: SelfRequest, op: Op, table: SelfTable | None) -> Setting:
    """What was asked for, and the rest from the table.

    Raises:
        UsageError: a stencil, step or number of seeds that cannot be.
    """
    given = Setting() if table is None else table.setting
    base = parse_dims(given.dims or _smallest(op))
    wanted = parse_dims(request.dims, op.variants)
    sizes = {**dict(base[0]), **dict(wanted[0])}
    for axis in sizes:
        if axis not in op.dims:
            raise unknown(f"axis of {op.name}", axis, op.dims)
    variant = wanted[1] or base[1]
    if variant and variant not in op.variants:
        raise unknown(f"variant of {op.name}", variant, op.variants)
    setting = Setting(
        dims=",".join([*(f"{axis}{size}" for axis, size in sizes.items()), *([variant] if variant else [])]),
        regime=request.regime or given.regime or next(iter(op.regimes)),
        stencil=given.stencil if request.stencil is None else request.stencil,
        step=given.step if request.step is None else request.step,
    )
    if setting.stencil not in STENCILS:
        raise UsageError(f"the stencil has {setting.stencil} points; it can have {' or '.join(map(str, STENCILS))}")
    if not 0 < setting.step < math.inf:
        raise UsageError(f"the step is {setting.step}: give a positive number, in the units of the inputs")
    if request.seeds < 1:
        raise UsageError(f"{request.seeds} seeds: give at least 1")
    return setting


def _smallest(op: Op) -> str:
    """The smallest sizes above 1; an axis that groups another one has that one's size."""
    sizes = {axis: min((size for size in choices if size > 1), default=1) for axis, choices in op.dims.items()}
    sizes |= {coarse: sizes[fine] for coarse, fine in op.groups.items()}
    return ",".join(f"{axis}{size}" for axis, size in sizes.items())


def _plan(request: SelfRequest, suite: Suite, op: Op, setting: Setting, table: SelfTable | None) -> Plan:
    """Each kernel at every seed of each of its branches, then the canary, the null mutant and the mutants there."""
    kernels = request.kernels or tuple(kernel.name for kernel in op.kernels[:1])
    cases = tuple(_cases(op, setting, range(request.seed, request.seed + request.seeds)))
    mutants = request.mutants
    if mutants is None:
        edited = {mutant.name for mutant in mutants_of(suite, op.name) if set(kernels) & set(mutant.edits)}
        mutants = ",".join(name for name in (table.defects if table else ()) if name in edited) or "none"
    asked = Request(op.name, kernels=kernels, mutants=mutants, dtypes=(DTYPE,), cases=tuple(map(str, cases)), checks="none")
    plan = make_plan(asked, suite)
    return replace(plan, subjects=tuple(_within_branches(subject, cases) for subject in plan.subjects))


def _cases(op: Op, setting: Setting, seeds: Sequence[int]) -> Iterator[Case]:
    dims, wanted = parse_dims(setting.dims)
    for variant in op.variants or ("",):
        if wanted in ("", variant):
            recurrence = op.recurrence(variant)
            used = {axis for names in (*recurrence.inputs.values(), recurrence.output, *recurrence.terms) for axis in names}
            here = tuple((axis, size) for axis, size in dims if axis in used)
            yield from (Case(op.name, here, DTYPE, setting.regime, seed, variant) for seed in seeds)


def _within_branches(subject: Subject, cases: Sequence[Case]) -> Subject:
    return replace(subject, cases=tuple(case for case in cases if case.variant in (subject.kernel.variants or (case.variant,))))


def _measured(
    jobs: Sequence[SelfJob], workers: int, limits: Limits, logs: Path, tell: Callable[[Progress], None]
) -> Iterator[SelfEvidence]:
    """The evidence of each job as it comes; a worker that died is one."""
    outcomes = run_all(measure_self, jobs, jobs=min(workers, len(jobs)), limits=limits, logs=logs) if jobs else ()
    for done, (ask, got) in enumerate(outcomes, start=1):
        item = ask.job.item
        tell(Progress("kernels", done, len(jobs), f"{item.kernel} {item.mutant} {item.case}"))
        if isinstance(got, Done):
            assert isinstance(got.value, SelfEvidence)
            yield got.value
        else:
            yield SelfEvidence(item, got.kind, detail=got.detail, seconds=got.seconds)
