"""The gate: run what a change needs, judged by the bands of what it goes to, and decide."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode, Outcome, Run
from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.environment import DEVICES, lacking
from gradcheck.engine.gate_base import Base, changed_since, find_base, repository, text_at
from gradcheck.engine.gate_judge import Finding, loosened, shrunk, survivors, too_small, unfinished, without_survivors
from gradcheck.engine.gate_patch import Files, mismatch, parse_diff
from gradcheck.engine.gate_stale import Stale, stale_of
from gradcheck.engine.gate_terms import Terms, terms
from gradcheck.engine.gate_weaker import Weaker, weaker
from gradcheck.engine.plan import Request
from gradcheck.engine.published import file_of, parse_published
from gradcheck.engine.run import Tell, run
from gradcheck.engine.touched import Touched, everything, touched
from gradcheck.engine.truth import sources_of
from gradcheck.suite import Config, Gate, Suite, load, parse_config, read_config


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


@dataclass(frozen=True, slots=True)
class _Change:
    """What is compared: the files, and the commit where there is one."""

    root: Path
    files: Files
    compared: str
    base: Base | None = None
    whole: bool = False


def gate(asked: Asked, *, folder: Path, tell: Tell) -> Gated:
    """Run what a change needs, in run folders under `folder`, and decide.

    Raises:
        GradcheckError: the base, the diff, the suite or the terms cannot be used.
    """
    began = time.perf_counter()
    cwd = Path.cwd()
    change = _change(asked, cwd)
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
    runs: list[Run] = []
    stale: dict[str, tuple[Stale, ...]] = {}
    for op in found.bands:
        findings += _own_bands(op, suite, change, rules)
    for op in found.ops:
        left = None if rules.time_budget is None else rules.time_budget - (time.perf_counter() - began)
        if left is not None and left <= 0:
            findings.append((ExitCode.INCONCLUSIVE, f"op {op} was not run: the time budget of {rules.time_budget:g} s was spent"))
            continue
        bands, said = _bands(op, suite, change, found, folder)
        request = Request(
            op,
            mutants="all",
            jobs=asked.jobs,
            timeout=asked.timeout,
            memory=asked.memory,
            suites=asked.suites,
            weakest=bands is not None or rules.fail_under is not None,
            bands=said.file,
            budget=left or 0.0,
        )
        ran = run(request, folder=folder, tell=tell)
        runs.append(_judged(ran, request, bands, rules, less, found, (*said.notes, *_told(op, found)), folder))
        stale[op] = stale_of(suite, suite.ops[op], dict.fromkeys(v.item.kernel for v in ran.verdicts))
    return _decided(change, rules, found, less, findings, runs, stale, notes)


def _decided(
    change: _Change,
    rules: Terms,
    found: Touched,
    less: Weaker,
    findings: Sequence[Finding],
    runs: Sequence[Run],
    stale: Mapping[str, tuple[Stale, ...]],
    notes: Sequence[str],
) -> Gated:
    """The worst of all. Mutants that are planted no more count as survivors: nothing says that they would be seen."""
    said = list(findings)
    lost = list(dict.fromkeys((op, mutant) for op, mutant, _ in less.mutants))
    alive = [(one.op, *row) for one in runs for row in survivors(one)]
    if lost:
        names = ", ".join(f"{op}/{mutant} on {kernel}" for op, mutant, kernel in less.mutants)
        said += [
            (ExitCode.SURVIVORS, f"the base plants mutants that this change takes out, so nothing says that they would be seen: {names}")
        ]
    kept = tuple(runs)
    more = list(notes)
    if 0 < len(alive) + len(lost) <= rules.max_survivors:
        more.append(f"{len(alive)} mutants survive and {len(lost)} were taken out; {rules.max_survivors} are allowed")
        said = [(code, text) for code, text in said if not text.startswith("the base plants mutants")]
        kept = tuple(replace(one, exit_code=code, reasons=why) for one in runs for code, why in [without_survivors(one)])
    code = ExitCode.worst(*(one.exit_code for one in kept), *(code for code, _ in said))
    reasons = tuple(dict.fromkeys(text for _, text in said))
    return Gated(code, reasons, change.compared, found, change.files, kept, stale, tuple(dict.fromkeys(more)), rules, change.root)


@dataclass(frozen=True, slots=True)
class _Bands:
    """What a run is told of bands: the file to judge by, as `Request.bands` has it, and what a reader must know."""

    file: str
    notes: tuple[str, ...] = ()


def _change(asked: Asked, cwd: Path) -> _Change:
    if asked.base and asked.in_diff:
        raise UsageError("--base and --in-diff both say what changed; give one of them")
    if asked.base:
        base = find_base(cwd, asked.base)
        return _Change(base.root, changed_since(base), f"base {base}", base)
    root = repository(cwd) or cwd
    if asked.in_diff is None:
        return _Change(root, {}, "nothing: all is run", whole=True)
    try:
        text = asked.in_diff.read_text("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read the diff {asked.in_diff}: {error.strerror or error}") from error
    try:
        files = parse_diff(text)
    except UsageError as error:
        raise UsageError(f"{asked.in_diff}: {error}") from error
    if wrong := mismatch(files, root):
        raise UsageError(f"the diff {asked.in_diff} does not lead to the tree at {root}: {wrong}. Apply it first, or make it anew")
    return _Change(root, files, f"diff {asked.in_diff}")


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


def _bands(op: str, suite: Suite, change: _Change, found: Touched, folder: Path) -> tuple[Published | None, _Bands]:
    """(bands to compare separations with, those to judge by): the base's, whatever the change says of its own."""
    path = file_of(suite, op)
    fresh = "noise is measured in this run"
    if change.base and path.resolve().is_relative_to(change.root.resolve()):
        content = text_at(change.base, path)
        if content is None:
            return None, _Bands("none", (f"the base publishes no bands of {op}: {fresh}",))
        bands = parse_published(content, path)
        if bands.sources != sources_of(suite.ops[op]):
            return bands, _Bands("none", (f"the base's bands of {op} are of another reference or gradcheck than this: {fresh}",))
        copy = folder.absolute() / "gate" / f"{op}-{change.base.commit[:12]}.json"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        return bands, _Bands(str(copy), (f"judged by the bands of {op} at the base {change.base}",))
    if op in found.bands:
        return None, _Bands("none", (f"the diff changes the published bands of {op}, so they are not used: {fresh}",))
    return (parse_published(path.read_bytes(), path) if path.is_file() else None), _Bands("")


def _own_bands(op: str, suite: Suite, change: _Change, rules: Terms) -> list[Finding]:
    """What is wrong with bands that the change itself publishes: the next change would be judged by them."""
    path = file_of(suite, op)
    content = text_at(change.base, path) if change.base else None
    if content is None:
        return []
    if not path.is_file():
        return [(ExitCode.SURVIVORS, f"published bands: those of {op} are taken out")]
    return list(loosened(parse_published(content, path), parse_published(path.read_bytes(), path), rules.shrink))


def _told(op: str, found: Touched) -> list[str]:
    """What a reader must know of the change first."""
    return [f"the reference of {op} changed: what is right is what this change says it is"] if op in found.references else []


def _judged(
    ran: Run,
    request: Request,
    bands: Published | None,
    rules: Terms,
    less: Weaker,
    found: Touched,
    notes: Sequence[str],
    folder: Path,
) -> Run:
    """The run with what the gate asks for beyond it."""
    findings: list[Finding] = []
    code = ran.exit_code
    stored = store.read(folder, ran.id)
    evidence = [record.evidence for record in stored.records]
    if request.budget and ran.seconds >= request.budget:
        code = ExitCode.INCONCLUSIVE if code is ExitCode.NOTHING else code  # what was not compared may tell yet
        left = unfinished(stored.plan.items, {one.item for one in evidence}, _settled(ran)) if ran.done < ran.planned else []
        what = "; ".join(left) or "the size of the weakest defects"
        findings.append((ExitCode.INCONCLUSIVE, f"the time budget was spent; not measured: {what}"))
    elif ran.done >= ran.planned:
        findings += shrunk(ran, evidence, bands, less.new, rules.shrink) if bands else ()
        if rules.fail_under is not None and code is not ExitCode.WRONG:
            findings += too_small(ran, rules.fail_under)
    for kernel, why in ran.not_run.items():
        if kernel in found.kernels.get(ran.op, ()) and not why.startswith("forward only"):
            findings.append((ExitCode.INCONCLUSIVE, f"kernel {kernel}, which this change touches, was not run: it {why}"))
    for device in rules.devices:
        places = {verdict.evidence.place for verdict in ran.verdicts if verdict.evidence is not None}
        if any(place and device not in place.split(" + ") for place in places):
            findings.append((ExitCode.INCONCLUSIVE, f"a kernel of {ran.op} did not run on {device}, {DEVICES[device]}, which is required"))
    return replace(
        ran,
        exit_code=ExitCode.worst(code, *(code for code, _ in findings)),
        reasons=tuple(dict.fromkeys([*ran.reasons, *(text for _, text in findings)])),
        notes=(*notes, *ran.notes),
    )


def _settled(ran: Run) -> dict[str, set[str]]:
    """Kernel to the mutants that were seen, or are declared not to be, in every branch and form that was run."""
    done = {Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS}
    open_ = {(row.kernel, row.mutant) for row in ran.kills if row.outcome not in done}
    out: dict[str, set[str]] = {}
    for row in ran.kills:
        if (row.kernel, row.mutant) not in open_:
            out.setdefault(row.kernel, set()).add(row.mutant)
    return out
