"""From evidence to a finished run: bands, verdicts, kill table, gate. Pure: what lies in the run folder gives the same run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradcheck._case import Case
from gradcheck._verdict import Band, Evidence, ExitCode, MutantVerdict, Outcome, Run, Verdict, WorkItem
from gradcheck.calibrate.bands import bands, tolerances_of
from gradcheck.calibrate.gate import gate
from gradcheck.calibrate.judge import Tolerances, judge, kill_table
from gradcheck.calibrate.noise import Table
from gradcheck.engine.checks.alike import DECLARED
from gradcheck.engine.plan import Plan, Subject

Noises = Mapping[tuple[str, str], Table]
"""(dtype, dtype in which the state is carried) to noise."""


def noise_for(subject: Subject, dtype: str, noises: Noises) -> Table:
    """The noise that a kernel is allowed on inputs of `dtype`."""
    return noises[dtype, carried(subject, dtype)]


def carried(subject: Subject, dtype: str) -> str:
    """The dtype in which a kernel carries its state between steps."""
    return dtype if subject.kernel.carry == "input" else subject.kernel.carry


def assemble(  # noqa: PLR0913 - all that a run is made of
    plan: Plan,
    evidence: Sequence[Evidence],
    noises: Noises,
    *,
    id_: str,
    command: str,
    environment: Mapping[str, str],
    notes: Sequence[str],
    planned: int,
    seconds: float,
    forward_only: bool,
    published: Sequence[Band] = (),
    excused: Mapping[WorkItem, str] | None = None,
) -> Run:
    """The run that this evidence makes. What is `excused` is undecided instead of failed, with this reason."""
    all_bands: list[Band] = []
    verdicts: list[Verdict] = []
    kills: list[MutantVerdict] = []
    checks: list[Verdict] = []
    said = list(notes)
    skipped = 0
    for subject in plan.subjects:
        name = subject.kernel.name
        clean = [one for one in evidence if one.item.kernel == name and not one.item.mutant and not one.item.check]
        mutated = [one for one in evidence if one.item.kernel == name and one.item.mutant]
        limits: dict[str, Tolerances] = {}
        for dtype in dict.fromkeys(case.dtype for case in subject.cases):
            known = {(b.quantity, b.metric): b for b in published if (b.kernel, b.dtype) == (name, dtype)}
            mine = bands(plan.op.name, name, dtype, noise_for(subject, dtype, noises), _of(clean, dtype), _of(mutated, dtype), known)
            all_bands += mine
            limits[dtype] = tolerances_of(mine)
        judged = [_excused(judge(one, limits[Case.parse(one.item.case).dtype]), excused or {}) for one in clean]
        verdicts += judged
        checked = [judge(one, {}) for one in evidence if one.item.kernel == name and one.item.check]
        checks += checked
        if not subject.kernel.deterministic or any(DECLARED in verdict.why for verdict in checked):
            said.append(f"{name} is {DECLARED}: checks that compare bits judged it within noise")
        if not_running(judged) and subject.checks:
            skipped += len(subject.checks) - len(checked)
            said.append(f"the checks of {name} were not made: it does not run")
        diffs = {(name, mutant): text for mutant, text in subject.diffs.items()}
        kills += kill_table(mutated, subject.mutants, limits, diffs, clean)
        if not_sound([*judged, *checked]) and subject.mutant_items():
            skipped += len(subject.mutant_items())
            if subject.mutants:
                wrong = any(verdict.outcome in {Outcome.FAILED, Outcome.CRASHED} for verdict in (*judged, *checked))
                said.append(f"the mutants of {name} were not run: the kernel itself {'is wrong' if wrong else 'came to no verdict'}")
        else:
            run = {one.item for one in mutated}
            over = settled(subject, [*clean, *mutated], limits)
            skipped += sum(item not in run and group_of(item) in over for item in subject.mutant_items())
    done = len(evidence)
    code, reasons = gate(
        verdicts,
        kills,
        all_bands,
        missing=planned - skipped - done,
        absent=plan.absent,
        rotten=[text for subject in plan.subjects for text in subject.stale.values()],
        forward_only=forward_only,
        checks=checks,
    )
    if excused:
        code = ExitCode.worst(code, ExitCode.INCONCLUSIVE)
        reasons = (*reasons, *(f"kernel {item.kernel} is undecided at {item.case}: {why}" for item, why in excused.items()))
    return Run(
        id=id_,
        command=command,
        op=plan.op.name,
        environment=environment,
        not_run=plan.not_run,
        verdicts=tuple(verdicts),
        kills=tuple(kills),
        bands=tuple(all_bands),
        notes=tuple(said),
        planned=planned - skipped,
        done=done,
        seconds=seconds,
        exit_code=code,
        reasons=reasons,
        checks=tuple(checks),
    )


def _excused(verdict: Verdict, excused: Mapping[WorkItem, str]) -> Verdict:
    """The verdict, undecided where its failure is explained by its case."""
    if verdict.outcome is Outcome.FAILED and verdict.item in excused:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, why=excused[verdict.item])
    return verdict


def settled(subject: Subject, evidence: Sequence[Evidence], limits: Mapping[str, Tolerances]) -> set[tuple[str, str]]:
    """(mutant, branch) of those whose verdict no further case can change, or need change.

    A mutant has been seen in every form of the defect; one that is declared equivalent or harmless has not been, at the first cases.
    """
    mine = [one for one in evidence if one.item.kernel == subject.kernel.name]
    mutated = [one for one in mine if one.item.mutant in subject.mutants]
    clean = [one for one in mine if not one.item.mutant and not one.item.check]
    rows = kill_table(mutated, subject.mutants, limits, {}, clean)
    done = {Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS}
    return {(row.mutant, row.variant) for row in rows} - {(row.mutant, row.variant) for row in rows if row.outcome not in done}


def group_of(item: WorkItem) -> tuple[str, str]:
    """(mutant, branch) of an item: a row of the kill table."""
    return item.mutant, Case.parse(item.case).variant


def not_sound(verdicts: Sequence[Verdict]) -> bool:
    """Whether a kernel is so wrong that its mutants would mean nothing."""
    return any(verdict.outcome not in {Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.UNINFORMATIVE} for verdict in verdicts) or any(
        verdict.evidence is not None and verdict.evidence.status == "no-backward" for verdict in verdicts
    )


def not_running(verdicts: Sequence[Verdict]) -> bool:
    """Whether a kernel does not come to a result somewhere, so that checks would only say so again."""
    return any(verdict.evidence is not None and verdict.evidence.status != "measured" for verdict in verdicts)


def planned_items(plan: Plan) -> tuple[WorkItem, ...]:
    """Every item in the order in which it is done: all clean kernels first, with their checks."""
    clean = [item for subject in plan.subjects for item in subject.clean_items()]
    clean += [item for subject in plan.subjects for item in subject.checks]
    return (*clean, *(item for subject in plan.subjects for item in subject.mutant_items()))


def interrupted(run: Run) -> Run:
    """The run as it stands when it was stopped."""
    return replace(run, exit_code=ExitCode.worst(run.exit_code, ExitCode.INTERRUPTED))


def _of(evidence: Sequence[Evidence], dtype: str) -> list[Evidence]:
    return [one for one in evidence if Case.parse(one.item.case).dtype == dtype]
