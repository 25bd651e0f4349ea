"""The gate: run what a change needs, judged by the bands of what it goes to, and decide."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradcheck._verdict import ExitCode, Outcome, Run
from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.environment import DEVICES, lacking
from gradcheck.engine.gate_bands import bands_for, own_bands
from gradcheck.engine.gate_base import Base, repository, text_at
from gradcheck.engine.gate_change import Change, find_change
from gradcheck.engine.gate_judge import Finding, shrunk, survivors, too_small, unfinished, without_survivors
from gradcheck.engine.gate_patch import Files
from gradcheck.engine.gate_stale import Stale, stale_of
from gradcheck.engine.gate_terms import Terms, terms
from gradcheck.engine.gate_weaker import Weaker, weaker
from gradcheck.engine.plan import Request
from gradcheck.engine.progress import Tell
from gradcheck.engine.run import run
from gradcheck.engine.touched import Touched, everything, touched
from gradcheck.suite import Config, Gate, load, parse_config, read_config


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks of the gate.

    Args:
        base: a git ref to compare with; empty if there is none.
        in_diff: a unified diff that led to this tree; at most one of the two.
        given: terms of the command line.
        suites: folders of suites beside the built-in one.
        jobs: worker processes; 0 means one per core.
        timeout: seconds that one item may take.
        memory: GiB that a worker may add to what it has after its start.
    """

    base: str = ""
    in_diff: Path | None = None
    given: Gate = field(default_factory=Gate)
    suites: tuple[str, ...] = ()
    jobs: int = 0
    timeout: float = 60.0
    memory: float = 8.0


@dataclass(frozen=True, slots=True)
class Gated:
    """What the gate found.

    Args:
        exit_code: the worst of all.
        reasons: why it is not 0, that of no single run.
        compared: what the change is taken against, in words.
        touched: what it touches.
        files: the changed files with their hunks.
        runs: one for each op that was run, judged by the terms of the gate.
        stale: op to its stale mutants.
        notes: what a reader must know.
        terms: what was asked for.
        root: the folder that paths of files are relative to.
    """

    exit_code: ExitCode
    reasons: tuple[str, ...]
    compared: str
    touched: Touched
    files: Files = field(hash=False)
    runs: tuple[Run, ...]
    stale: Mapping[str, tuple[Stale, ...]] = field(hash=False)
    notes: tuple[str, ...]
    terms: Terms
    root: Path


def gate(asked: Asked, *, folder: Path, tell: Tell) -> Gated:
    """Run what a change needs, in run folders under `folder`, and decide.

    Raises:
        GradcheckError: the base, the diff, the suite or the terms cannot be used.
    """
    began = time.perf_counter()
    cwd = Path.cwd()
    change = find_change(asked.base, asked.in_diff, cwd)
    suite = load([Path(path) for path in asked.suites])
    config = read_config(cwd)
    rules = terms(config.gate if config else Gate(), _base_gate(config, change.base), asked.given, os.environ)
    found = (
        everything(suite, repository(cwd))
        if change.whole
        else touched(suite, tuple(change.files), change.root, config.file if config else None)
    )
    less = weaker(change.base, suite, tuple(change.files), folder / "gate") if change.base else Weaker()
    findings = [*_devices(rules), *((ExitCode.INCONCLUSIVE, f"not compared any more: {text}") for text in less.gone)]
    notes = [*rules.notes, *less.notes]
    if asked.in_diff and found.ops:
        notes.append("a diff alone does not say which mutants it takes out; --base does")
    runs: list[_Ran] = []
    stale: dict[str, tuple[Stale, ...]] = {}
    for op in found.bands:
        findings += own_bands(op, suite, change, rules.shrink)
    for op in found.ops:
        left = None if rules.time_budget is None else rules.time_budget - (time.perf_counter() - began)
        if left is not None and left <= 0:
            findings.append((ExitCode.INCONCLUSIVE, f"op {op} was not run: the time budget of {rules.time_budget:g} s was spent"))
            continue
        bands, said = bands_for(op, suite, change, found, folder)
        request = Request(
            op,
            mutants="all",
            jobs=asked.jobs,
            timeout=asked.timeout,
            memory=asked.memory,
            suites=asked.suites,
            weakest=bands is not None or rules.fail_under is not None,
            newcomers=tuple(sorted({mutant.partition("/")[2] for mutant, _ in less.new if mutant.startswith(f"{op}/")})),
            bands=said.file,
            budget=left or 0.0,
        )
        ran = run(request, folder=folder, tell=tell)
        stale[op] = stale_of(suite, suite.ops[op], dict.fromkeys(v.item.kernel for v in ran.verdicts), change.before)
        told = replace(ran, notes=(*said.notes, *_told(op, found), *ran.notes))
        runs.append(_Ran(*_timed(told, request, folder)))
        if ran.done >= ran.planned and not runs[-1].findings:
            runs[-1].findings += _separations(ran, bands if not stale[op] else None, rules, less, folder)
        runs[-1].findings += _unseen(ran, rules, found)
    return _decided(change, rules, found, less, findings, runs, stale, notes)


@dataclass(slots=True)
class _Ran:
    """A run, and what the gate finds beyond it."""

    run: Run
    findings: list[Finding] = field(default_factory=list)


def _decided(
    change: Change,
    rules: Terms,
    found: Touched,
    less: Weaker,
    findings: Sequence[Finding],
    runs: Sequence[_Ran],
    stale: Mapping[str, tuple[Stale, ...]],
    notes: Sequence[str],
) -> Gated:
    """The worst of all. Mutants that are planted no more count as survivors: nothing says that they would be seen."""
    said = list(findings)
    lost = list(dict.fromkeys((op, mutant) for op, mutant, _ in less.mutants))
    alive = [(one.run.op, *row) for one in runs for row in survivors(one.run)]
    allowed = 0 < len(alive) + len(lost) <= rules.max_survivors
    more = list(notes)
    if allowed:
        more.append(f"{len(alive)} mutants survive and {len(lost)} were taken out; {rules.max_survivors} are allowed")
    elif lost:
        names = ", ".join(f"{op}/{mutant} on {kernel}" for op, mutant, kernel in less.mutants)
        said.append(
            (ExitCode.SURVIVORS, f"the base plants mutants that this change takes out: nothing says that they would be seen: {names}")
        )
    kept = tuple(_with(one, allowed=allowed) for one in runs)
    code = ExitCode.worst(*(one.exit_code for one in kept), *(code for code, _ in said))
    reasons = tuple(dict.fromkeys(text for _, text in said))
    return Gated(code, reasons, change.compared, found, change.files, kept, stale, tuple(dict.fromkeys(more)), rules, change.root)


def _with(ran: _Ran, *, allowed: bool) -> Run:
    """The run with what the gate finds; its survivors may be allowed."""
    code, reasons = without_survivors(ran.run) if allowed else (ran.run.exit_code, ran.run.reasons)
    worst = ExitCode.worst(code, *(code for code, _ in ran.findings))
    return replace(ran.run, exit_code=worst, reasons=tuple(dict.fromkeys([*reasons, *(text for _, text in ran.findings)])))


def _base_gate(config: Config | None, base: Base | None) -> Gate | None:
    """What the configuration of the base asks for."""
    if base is None:
        return None
    places = [config.file] if config else [base.root / "gradcheck.toml", base.root / "pyproject.toml"]
    for file in places:
        content = text_at(base, file)
        before = parse_config(file, content) if content is not None else None
        if before is not None:
            return before.gate
    return None


def _devices(rules: Terms) -> list[Finding]:
    return [
        (ExitCode.INCONCLUSIVE, f"required device missing: {device} needs {lacks}")
        for device in rules.devices
        if (lacks := lacking(device))
    ]


def _told(op: str, found: Touched) -> list[str]:
    """What a reader must know of the change first."""
    return [f"the reference of {op} changed: what is right is what this change says it is"] if op in found.references else []


def _timed(ran: Run, request: Request, folder: Path) -> tuple[Run, list[Finding]]:
    """The run, and what of it did not fit into the time."""
    if not request.budget or ran.seconds < request.budget:
        return ran, []
    stored = store.read(folder, ran.id)
    done = {record.evidence.item for record in stored.records}
    left = unfinished(stored.plan.items, done, _settled(ran)) if ran.done < ran.planned else []
    if ran.exit_code is ExitCode.NOTHING:  # what was not compared may tell yet
        ran = replace(ran, exit_code=ExitCode.INCONCLUSIVE)
    what = "; ".join(left) or "the size of the weakest defects"
    return ran, [(ExitCode.INCONCLUSIVE, f"the time budget was spent; not measured: {what}")]


def _separations(ran: Run, bands: Published | None, rules: Terms, less: Weaker, folder: Path) -> list[Finding]:
    """Separations that are smaller than the base's, or than what is asked for."""
    found: list[Finding] = []
    if bands is not None:
        evidence = [record.evidence for record in store.read(folder, ran.id).records]
        found += shrunk(ran, evidence, bands, less.new, rules.shrink)
    if rules.fail_under is not None and ran.exit_code is not ExitCode.WRONG:
        found += too_small(ran, rules.fail_under)
    return found


def _unseen(ran: Run, rules: Terms, found: Touched) -> list[Finding]:
    """Kernels that the change touches and that cannot run here; kernels that ran elsewhere than on the device that is required."""
    mine = found.kernels.get(ran.op, ())
    absent = [
        f"kernel {kernel}, which this change touches, was not run: it {why}"
        for kernel, why in ran.not_run.items()
        if kernel in mine and not why.startswith("forward only")
    ]
    places = {verdict.evidence.place for verdict in ran.verdicts if verdict.evidence is not None and verdict.evidence.place}
    elsewhere = [
        f"a kernel of {ran.op} ran on {place}, and {DEVICES[device]} is required"
        for device in rules.devices
        for place in sorted(places)
        if device not in place.split(" + ")
    ]
    return [(ExitCode.INCONCLUSIVE, text) for text in (*absent, *elsewhere)]


def _settled(ran: Run) -> dict[str, set[str]]:
    """Kernel to the mutants that were seen, or are declared not to be, in every branch and form that was run."""
    done = {Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS}
    open_ = {(row.kernel, row.mutant) for row in ran.kills if row.outcome not in done}
    out: dict[str, set[str]] = {}
    for row in ran.kills:
        if (row.kernel, row.mutant) not in open_:
            out.setdefault(row.kernel, set()).add(row.mutant)
    return out
