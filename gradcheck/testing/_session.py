"""Work items one at a time, for pytest: which there are, and what became of each. One worker process stays for all of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import unknown
from gradcheck._verdict import CANARY, NULL, Evidence, MutantVerdict, Outcome, Verdict, WorkItem
from gradcheck.calibrate.judge import Tolerances, judge, kill_table
from gradcheck.engine.assemble import carried, settled
from gradcheck.engine.execute import Source, evidence_of, execute, job_of, source_of
from gradcheck.engine.plan import Plan, Request, Subject, make_plan
from gradcheck.process import GIB, Limits, Standing
from gradcheck.suite import Suite, find_op, load, mutants_of
from gradcheck.testing._tolerances import tolerances_for


@dataclass(frozen=True, slots=True)
class Wanted:
    """What pytest was asked to check; the fields are those of `Request`, but for `ops`, of which an empty one means your own."""

    ops: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    mutants: str = "all"
    checks: str = "all"
    cases: str = ""
    timeout: float = 60.0
    memory: float = 8.0


@dataclass(frozen=True, slots=True)
class Task:
    """One item of pytest.

    Args:
        op, kernel: what it is about.
        name: unique within them.
        items: the comparisons: one, or those that a mutant is run at, in waves.
        not_run: why the kernel cannot run here, or what makes the mutant stale; then there are no comparisons.
    """

    op: str
    kernel: str
    name: str
    items: tuple[tuple[WorkItem, ...], ...] = ()
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a task.

    Args:
        outcome: `passed`, `failed` or `skipped`.
        why: the reason, for a reader.
        compared: elements that were compared.
        item: the comparison that failed, for a closer look; None where a look would say no more.
    """

    outcome: str
    why: str = ""
    compared: int = 0
    item: WorkItem | None = None


@dataclass(slots=True)
class Session:
    """The plans of all ops, and a worker that is started when the first comparison is made. `close` ends it."""

    suite: Suite
    source: Source
    plans: dict[str, Plan]
    limits: Limits
    _folder: Path | None = None
    _worker: Standing | None = None
    _seen: dict[WorkItem, Evidence] = field(default_factory=dict)
    _tolerances: dict[tuple[str, str, str], Tolerances] = field(default_factory=dict)

    def run(self, task: Task) -> Done:
        """Make the comparisons of a task, and judge them."""
        if task.not_run:
            return Done("skipped", task.not_run)
        subject = next(one for one in self.plans[task.op].subjects if one.kernel.name == task.kernel)
        first = task.items[0][0]
        if first.mutant:
            return self._mutant(subject, task)
        verdict = self._verdict(subject, first)
        compared = _compared([verdict.evidence] if verdict.evidence else [])
        if first.check and verdict.outcome is Outcome.PASSED:
            compared = 1  # a check counts no elements
        if verdict.outcome in {Outcome.PASSED, Outcome.PASSED_ZERO}:
            return Done("passed", "", compared)
        skipped = verdict.outcome in {Outcome.NO_DEVICE, Outcome.UNINFORMATIVE} and _status(verdict) != "no-backward"
        look = None if skipped or first.check else first
        return Done("skipped" if skipped else "failed", _sentence(verdict), compared, look)

    def close(self) -> None:
        """End the worker and remove what it left."""
        if self._worker is not None:
            self._worker.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._worker = self._folder = None

    def _mutant(self, subject: Subject, task: Task) -> Done:
        """Run a mutant at its cases until it has been seen in every form, and so that the kernel itself is right at each of them."""
        mutated: list[Evidence] = []
        clean: list[Evidence] = []
        limits: dict[str, Tolerances] = {}
        for wave in task.items:
            over = settled(subject, [*clean, *mutated], limits)
            for item in wave:
                case = Case.parse(item.case)
                if (item.mutant, case.variant) in over:
                    continue
                limits[case.dtype] = self._limits(subject, case.dtype)
                bare = replace(item, mutant="")
                verdict = self._verdict(subject, bare)
                if verdict.outcome not in {Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.UNINFORMATIVE}:
                    return Done("failed", f"the kernel itself came to no good end, so a mutant of it means nothing\n{_sentence(verdict)}")
                assert verdict.evidence is not None
                clean.append(verdict.evidence)
                mutated.append(self._evidence(subject, item))
        rows = kill_table(mutated, subject.mutants, limits, {}, clean)
        wrong = [row for row in rows if not _good(row)]
        compared = _compared(mutated)
        if not wrong:
            return Done("passed", "", compared)
        look = next(item for wave in task.items for item in wave if item.case == wrong[0].case or not wrong[0].case)
        return Done("failed", "\n".join(_row(row) for row in wrong), compared, look)

    def _verdict(self, subject: Subject, item: WorkItem) -> Verdict:
        return judge(self._evidence(subject, item), self._limits(subject, Case.parse(item.case).dtype))

    def _evidence(self, subject: Subject, item: WorkItem) -> Evidence:
        if item in self._seen:
            return self._seen[item]
        if self._worker is None or self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gradcheck-pytest-"))
            self._worker = Standing(self.limits, self._folder / "logs")
        job = job_of(subject, item, self.source, self._folder / "mutants")
        if item.check:
            bare = replace(item, check="")
            clean = self._seen.get(bare)
            limits = self._limits(subject, Case.parse(item.case).dtype)
            sound = clean is None or judge(clean, limits).outcome in {Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.UNINFORMATIVE}
            job = replace(job, tolerances=limits, sound=sound)
        evidence = evidence_of(item, self._worker.call(execute, job))
        if not item.mutant:
            self._seen[item] = evidence
        return evidence

    def _limits(self, subject: Subject, dtype: str) -> Tolerances:
        op = self.plans[next(name for name, plan in self.plans.items() if subject in plan.subjects)].op
        key = op.name, subject.kernel.name, dtype
        if key not in self._tolerances:
            self._tolerances[key], _ = tolerances_for(self.suite, op, self.source, dtype, carried(subject, dtype), subject.kernel.name)
        return self._tolerances[key]


def open_session(wanted: Wanted, cwd: Path) -> Session:
    """Load the suites that `cwd` stands for, and plan what is wanted of them.

    Raises:
        UsageError: a name does not exist.
        SuiteError: a suite cannot be loaded.
    """
    suite = load(cwd=cwd)
    mine = [name for name in suite.ops if suite.homes[name].origin != "built-in"]
    names = [find_op(suite, name).name for name in wanted.ops] or mine or list(suite.ops)
    if wanted.mutants not in {"all", "none"}:
        _known_mutants(suite, names, wanted.mutants)
    plans = {}
    for name in dict.fromkeys(names):
        request = Request(
            name,
            kernels=wanted.kernels,
            mutants=_mutants_of(suite, name, wanted.mutants),
            checks=wanted.checks,
            cases=(wanted.cases,) if wanted.cases else (),
            timeout=wanted.timeout,
            memory=wanted.memory,
        )
        plans[name] = make_plan(request, suite)
    return Session(suite, source_of((), cwd), plans, Limits(wanted.timeout, int(wanted.memory * GIB)))


def tasks(session: Session) -> Iterator[Task]:
    """Every task, in an order that is the same in every process."""
    for op, plan in session.plans.items():
        for subject in plan.subjects:
            kernel = subject.kernel.name
            for item in (*subject.clean_items(), *subject.checks):
                yield Task(op, kernel, f"check:{item.check}@{item.case}" if item.check else item.case, ((item,),))
            waves = subject.waves()
            for name in dict.fromkeys(item.mutant for wave in waves for item in wave):
                mine = tuple(own for wave in waves if (own := tuple(item for item in wave if item.mutant == name)))
                yield Task(op, kernel, f"mutant:{name}", mine)
            for name, why in subject.stale.items():
                yield Task(op, kernel, f"mutant:{name}", not_run=f"stale: {why}")
        for kernel, why in plan.not_run.items():
            yield Task(op, kernel, "not run here", not_run=f"{kernel} of {op} {why}")


def _known_mutants(suite: Suite, ops: Iterable[str], text: str) -> None:
    """Refuse a mutant that none of the ops has."""
    known = {mutant.id for op in ops for mutant in mutants_of(suite, op)}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if not any(name in {one, one.partition("/")[2]} for one in known):
            raise unknown("mutant", name, known, "`all` and `none` are understood too.")


def _mutants_of(suite: Suite, op: str, text: str) -> str:
    """What of a choice of mutants is about this op."""
    if text in {"all", "none"}:
        return text
    known = {mutant.name for mutant in mutants_of(suite, op)}
    names = [part.strip().removeprefix(f"{op}/") for part in text.split(",")]
    return ",".join(name for name in names if name in known) or "none"


def _compared(evidence: Iterable[Evidence]) -> int:
    return sum(m.checked for one in evidence for m in one.measurements)


def _status(verdict: Verdict) -> str:
    return verdict.evidence.status if verdict.evidence is not None else ""


def _sentence(verdict: Verdict) -> str:
    if _status(verdict) == "idle":
        return verdict.why
    log = verdict.evidence.log.strip() if verdict.evidence is not None else ""
    return f"{verdict.outcome.name}  {verdict.ending}{': ' + verdict.why if verdict.why else ''}" + (f"\nlog: {log[-500:]}" if log else "")


def _good(row: MutantVerdict) -> bool:
    if row.mutant == NULL:
        return row.outcome is Outcome.SURVIVED
    if row.mutant == CANARY:
        return row.outcome is Outcome.KILLED
    declared = {Outcome.EQUIVALENT, Outcome.HARMLESS}
    return row.outcome in declared or (row.outcome is Outcome.KILLED and not row.why)


def _row(row: MutantVerdict) -> str:
    where = f"{row.form}{', ' + row.variant if row.variant else ''}"
    near = f"; at most {row.margin:.3g} times the tolerance, in {row.quantity}" if row.margin is not None else ""
    return f"{row.outcome.name}  {row.mutant} in {row.kernel} ({where}): {row.outcome.value}{near}{'; ' + row.why if row.why else ''}"
