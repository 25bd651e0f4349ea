"""What to run: a request, resolved against the suites into kernels, cases and work items, before any work starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradcheck._case import Case
from gradcheck._errors import StaleMutant, UsageError, unknown
from gradcheck._kernel import Kernel
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck._verdict import CANARY, NULL, WorkItem
from gradcheck.engine.checks import DTYPE
from gradcheck.engine.checks.cases import chosen as chosen_checks
from gradcheck.engine.checks.cases import items as check_items
from gradcheck.engine.environment import DEVICES, lacking
from gradcheck.engine.grid import select
from gradcheck.engine.mutate import diff
from gradcheck.engine.truth import cases_of
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.suite import Suite, find_op, kernel_package, mutants_of

SENTINEL_CASES = 2
"""Cases per branch and dtype on which canary and null mutant are run: they either work or they do not."""


WAVES = (4, 16)
"""Cases per branch after which a mutant that has been seen in every form is left alone: most defects show at once, and the grid
begins with cases that are spread over it. Half precision, which hides more, comes last. `--matrix` runs all of it."""

EARLY_WAVES = (1, 2, 3, *WAVES)
"""The same where bands are published: how large a defect is need not be measured, only that it is seen."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for. Plain data: it is written into the run folder, and a resumed run reads it back.

    Args:
        op: name of the op.
        kernels: names of its kernels, or targets; empty means all of its kernels that can run here.
        mutants: `none`, `all`, or names with commas.
        dims, dtypes, regimes, cases: choice of cases, see `grid.select`; empty means the whole covering grid.
        seed: of the grid: another one draws other numbers for the same sizes and regimes.
        jobs: worker processes; 0 means one per core.
        timeout: seconds that one item may take.
        memory: GiB that a worker may add to what it has after its start.
        suites: folders of suites beside the built-in one.
        forward_only: check outputs only.
        checks: of those that need no tolerance: `none`, `all`, or names with commas.
        oracle: who says the truth: `costate`, or `fast`, which is `costate` compiled.
        matrix: run every mutant at every case, instead of until it has been seen.
        weakest: run the mutants that are the weakest of some gradient at every case, so that bands have their true size.
        newcomers: mutants beside which the weakest of the others is run at every case too.
        published: judge by the published bands where there are any; `calibrate` does not.
        bands: a file of published bands to judge by instead of the suite's own, or `none` to use none; empty means the suite's own.
        budget: seconds after which no further item is begun; 0 means no limit.
        engine: who does the items: workers of this machine, or those of a dask cluster.
        scheduler: address of that cluster's scheduler; empty means a cluster on this machine.
        shard: `2/3` does the second of three parts of the plan, see `shard.part`; empty means all of it.
    """

    op: str
    kernels: tuple[str, ...] = ()
    mutants: str = "none"
    dims: str = ""
    dtypes: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    seed: int = 0
    jobs: int = 0
    timeout: float = 60.0
    memory: float = 8.0
    suites: tuple[str, ...] = ()
    forward_only: bool = False
    matrix: bool = False
    weakest: bool = False
    newcomers: tuple[str, ...] = ()
    published: bool = True
    checks: str = "all"
    oracle: Literal["costate", "fast"] = "costate"
    bands: str = ""
    budget: float = 0.0
    shard: str = ""
    engine: Literal["local", "dask"] = "local"
    scheduler: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to run, with its cases and mutants.

    Args:
        kernel: its declaration; a stranger's is made up from its target.
        package: folder of its package, and `module` the module in it; nothing for a stranger's.
        cases: the cases it is run at.
        mutants: by name; empty for a stranger's.
        diffs: the edit of each mutant.
        stale: mutants whose text no longer matches, with the error.
        forward_only: its gradients are left unchecked, so that mutants of them mean nothing.
        checks: what is checked of it beside the comparison with the truth.
        share: the items that are this shard's; None where all of them are.
        banded: whether bands of it are published.
    """

    kernel: Kernel
    package: str
    module: str
    cases: tuple[Case, ...]
    mutants: dict[str, Mutant]
    diffs: dict[str, str]
    stale: dict[str, str]
    forward_only: bool = False
    checks: tuple[WorkItem, ...] = ()
    share: frozenset[WorkItem] | None = None
    banded: bool = False

    @property
    def stranger(self) -> bool:
        """Whether it is a kernel that the suite does not know."""
        return not self.package

    def clean_items(self) -> list[WorkItem]:
        """The kernel as it is, at every case."""
        return self._mine([WorkItem(case.op, self.kernel.name, str(case)) for case in self.cases])

    def mutant_items(self) -> list[WorkItem]:
        """Every item of `waves`, one wave after the other."""
        return [item for wave in self.waves() for item in wave]

    def waves(self) -> list[list[WorkItem]]:
        """Canary and null mutant at a few cases and every mutant at the first cases; then every mutant at the others, in waves.

        A mutant is run at the cases of its branches and dtypes only. Nothing is run if no gradient is checked.
        """
        if self.forward_only:
            return []
        few = self._few()
        guards = (CANARY,) if self.stranger else (CANARY, NULL)
        waves = [[WorkItem(case.op, self.kernel.name, str(case), name) for name in guards for case in few]]
        by_wave = _in_waves(self.cases, EARLY_WAVES if self.banded else WAVES)
        waves += [[] for _ in range(max(by_wave.values(), default=0))]
        for case in self.cases:  # the mutants of one case one after the other: a worker then has its truth at hand
            text = str(case)  # held once
            for name, mutant in self.mutants.items():
                if case.variant in (mutant.variants or (case.variant,)) and case.dtype in (mutant.dtypes or (case.dtype,)):
                    waves[by_wave[case]].append(WorkItem(case.op, self.kernel.name, text, name))
        return [self._mine(wave) for wave in waves]

    def _mine(self, items: list[WorkItem]) -> list[WorkItem]:
        return items if self.share is None else [item for item in items if item in self.share]

    def _few(self) -> list[Case]:
        taken: dict[tuple[str, str], list[Case]] = {}
        for case in sorted(self.cases, key=lambda c: c.objective != "all"):
            group = taken.setdefault((case.variant, case.dtype), [])
            if len(group) < SENTINEL_CASES:
                group.append(case)
        return [case for group in taken.values() for case in group]


def _in_waves(cases: Sequence[Case], limits: Sequence[int]) -> dict[Case, int]:
    """The wave of each case: in float32 by its rank among those of its branch, else the last."""
    ranks: Counter[str] = Counter()
    out = {}
    for case in cases:
        if case.dtype != DTYPE:
            out[case] = len(limits)
            continue
        out[case] = sum(ranks[case.variant] >= limit for limit in limits)
        ranks[case.variant] += 1
    return out


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a run does.

    Args:
        op: what is checked.
        subjects: the kernels.
        not_run: kernels of the op that cannot run here, or have no backward to check, with the reason.
        absent: those of them that were asked for by name.
        notes: what a reader must know first.
    """

    op: Op
    subjects: tuple[Subject, ...]
    not_run: dict[str, str]
    absent: dict[str, str]
    notes: tuple[str, ...]


def make_plan(request: Request, suite: Suite) -> Plan:
    """Resolve a request.

    Raises:
        UsageError: a name in it does not exist, or does not fit.
    """
    op = find_op(suite, request.op)
    for dtype in request.dtypes:
        if dtype not in DTYPES:
            raise unknown("dtype", dtype, DTYPES)
    subjects, not_run, absent = [], {}, {}
    chosen = _mutants(request, suite)
    for kernel in _kernels(request, op):
        why = "" if request.engine == "dask" and request.kernels and kernel.requires in DEVICES else _missing(kernel)
        if why:
            not_run[kernel.name] = why
            if request.kernels:
                absent[kernel.name] = why
        elif kernel.forward_only and not request.forward_only and not request.kernels:
            not_run[kernel.name] = "forward only: it has no gradient to check; compare its outputs with --forward-only"
        elif kernel.metal and not request.kernels and lacking("metal"):
            not_run[kernel.name] = f"Metal, and no Apple GPU here: --kernel {kernel.name} runs it on the CPU, which takes longer"
        else:
            subjects.append(_subject(request, suite, op, kernel, chosen))
    applied = {name for subject in subjects for name in (*subject.mutants, *subject.stale)}
    if request.mutants not in {"all", "none"} and subjects and (idle := [name for name in chosen if name not in applied]):
        names = ", ".join(subject.kernel.name for subject in subjects)
        raise UsageError(f"mutant {idle[0]!r} has no edit for the kernel {names}; `gradcheck list mutants --op {op.name}` shows which have")
    return Plan(op, tuple(subjects), not_run, absent, (*suite.notes, *_notes(request, op, subjects)))


def _kernels(request: Request, op: Op) -> list[Kernel]:
    if not request.kernels:
        return list(op.kernels)
    known = {kernel.name: kernel for kernel in op.kernels}
    out = []
    for name in dict.fromkeys(request.kernels):
        if name in known:
            out.append(known[name])
        elif ":" in name:
            out.append(Kernel(name=name, target=name, dtypes=request.dtypes or ("f32",)))
        else:
            raise unknown(
                f"kernel of {op.name}", name, known, "A kernel elsewhere is named as package.module:attr or path/to/file.py:attr."
            )
    return out


def _missing(kernel: Kernel) -> str:
    lacks = lacking(kernel.requires)
    if not lacks or kernel.requires in DEVICES:
        return f"needs {lacks}" if lacks else ""
    return f"needs {lacks}: pip install '{kernel.install or kernel.requires}'"


def _mutants(request: Request, suite: Suite) -> dict[str, Mutant]:
    known = {mutant.name: mutant for mutant in mutants_of(suite, request.op)}
    if request.mutants == "none":
        return {}
    if request.mutants == "all":
        return known
    names = [name.strip().removeprefix(f"{request.op}/") for name in request.mutants.split(",") if name.strip()]
    if not names:
        raise unknown(f"mutant of {request.op}", request.mutants, known, "`all` and `none` are understood too.")
    for name in names:
        if name not in known:
            raise unknown(f"mutant of {request.op}", name, known, "`all` and `none` are understood too.")
    return {name: known[name] for name in names}


def _subject(request: Request, suite: Suite, op: Op, kernel: Kernel, chosen: dict[str, Mutant]) -> Subject:
    stranger = kernel not in op.kernels
    dtypes = [dtype for dtype in kernel.dtypes if dtype in (request.dtypes or kernel.dtypes)]
    pool = [case for case in cases_of(op, dtypes, request.seed) if case.variant in (kernel.variants or (case.variant,))]
    # A dtype that is asked for by name is run: a number of cases is then one of each.
    groups = [[dtype] for dtype in dtypes] if request.dtypes else [dtypes] if dtypes else []
    cases = tuple(
        case for group in groups for case in select(op, pool, dims=request.dims, dtypes=group, regimes=request.regimes, cases=request.cases)
    )
    named = bool(request.cases) and not request.cases[0].isdecimal()
    asked = [check for check in chosen_checks(request.checks) if not (check.backward and request.forward_only)]
    asked = [
        check for check in asked if not check.optional or stranger or kernel.chunks
    ]  # what a stranger declares shows once it is loaded
    checks = tuple(check_items(op, kernel.name, cases, asked, dims=request.dims, named=named))
    if stranger:
        return Subject(kernel, "", "", cases, {}, {}, {}, request.forward_only, checks)
    package, _, module = kernel_package(kernel.target, suite.homes[op.name].path)
    mutants, diffs, stale = {}, {}, {}
    for name, mutant in chosen.items():
        edit = mutant.edits.get(kernel.name)
        if edit is None:
            continue
        try:
            diffs[name] = diff(package, edit, mutant.id)
        except StaleMutant as error:
            stale[name] = str(error)
        else:
            mutants[name] = mutant
    return Subject(kernel, str(package), module, cases, mutants, diffs, stale, request.forward_only, checks)


def _notes(request: Request, op: Op, subjects: Sequence[Subject]) -> list[str]:
    notes = []
    for subject in subjects:
        notes += _left_out(request, subject)
        if request.checks != "none" and not subject.checks:
            notes.append(f"no check was made of {subject.kernel.name}: checks are made in {DTYPE}, and at cases of the run")
        if subject.stranger:
            notes.append(
                f"band: op-level for {subject.kernel.name}: judged by the model noise of {op.name}; "
                "its separation comes from defects spliced into its gradients"
            )
            if request.mutants == "all":
                notes.append(f"no mutants apply to {subject.kernel.name}: the suite does not know its source")
    return notes


def _left_out(request: Request, subject: Subject) -> list[str]:
    """The dtypes that a reader may take for checked: asked for and not claimed, or claimed and beyond the number of cases."""
    name, claimed = subject.kernel.name, subject.kernel.dtypes
    notes = [f"{name} was not run in {dtype}: it claims {' '.join(claimed)}" for dtype in request.dtypes if dtype not in claimed]
    asked = [dtype for dtype in claimed if dtype in (request.dtypes or claimed)]
    cut = [dtype for dtype in asked if dtype not in {case.dtype for case in subject.cases}]
    if subject.cases and cut and request.cases[:1] and request.cases[0].isdecimal():
        notes.append(f"{name} was not run in {' '.join(cut)}: --cases {request.cases[0]} takes the first of the grid; name them by --dtype")
    return notes
