"""From evidence to a finished run: bands, verdicts, kill table, gate. Pure: what lies in the run folder gives the same run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gradcheck._case import Case
from gradcheck._verdict import Band, Evidence, ExitCode, Measurement, MutantVerdict, Outcome, Run, Verdict, WorkItem, fault
from gradcheck.calibrate.bands import bands, tolerances_of
from gradcheck.calibrate.gate import gate, has_room
from gradcheck.calibrate.judge import FORMS, Tolerances, judge, kill_table
from gradcheck.calibrate.noise import Table, tolerances
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
    lacking: int = 0,
    seconds: float,
    forward_only: bool,
    published: Sequence[Band] = (),
    excused: Mapping[WorkItem, str] | None = None,
    causes: Mapping[WorkItem, str] | None = None,
    part: bool = False,
) -> Run:
    """The run that this evidence makes.

    At least `lacking` items of the plan are still to be done, though they may decide nothing. What is `excused` is undecided instead of failed, with this reason; `causes` has what a second look found at the items it was made of. Of a `part` of a plan nothing is asked that only the whole can tell.
    """
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
        judged = [_excused(judge(one, limits[Case.parse(one.item.case).dtype]), excused or {}, causes or {}) for one in clean]
        verdicts += judged
        checked = [judge(one, {}) for one in evidence if one.item.kernel == name and one.item.check]
        checks += checked
        if not subject.kernel.deterministic or any(DECLARED in verdict.why for verdict in checked):
            said.append(f"{name} is {DECLARED}: checks that compare bits judged it within noise")
        if not_running(judged) and subject.checks:
            skipped += len(subject.checks) - len(checked)
            said.append(f"the checks of {name} were not made: it does not run")
        diffs = {(name, mutant): text for mutant, text in subject.diffs.items()}
        rows = kill_table(mutated, subject.mutants, limits, diffs, clean)
        kills += rows
        run = {one.item for one in mutated}
        if not_sound([*judged, *checked]) and subject.mutant_items():
            skipped += sum(item not in run for item in subject.mutant_items())
            if subject.mutants:
                wrong = any(verdict.outcome in {Outcome.FAILED, Outcome.CRASHED} for verdict in (*judged, *checked))
                said.append(
                    f"the mutants of {name} were not run: the kernel itself {fault([*judged, *checked]) if wrong else 'came to no verdict'}"
                )
        else:
            over = _over(row for row in rows if row.mutant in subject.mutants)
            skipped += sum(item not in run and group_of(item) in over for item in subject.mutant_items())
    done = len(evidence)
    wanted = max(planned - skipped, done + lacking)
    code, reasons = gate(
        verdicts,
        kills,
        all_bands,
        missing=wanted - done,
        absent=plan.absent,
        rotten=[text for subject in plan.subjects for text in subject.stale.values()],
        forward_only=forward_only,
        checks=checks,
        part=part,
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
        planned=wanted,
        done=done,
        seconds=seconds,
        exit_code=code,
        reasons=reasons,
        checks=tuple(checks),
    )


def _excused(verdict: Verdict, excused: Mapping[WorkItem, str], causes: Mapping[WorkItem, str]) -> Verdict:
    """The verdict, undecided where its failure is explained by its case."""
    if verdict.outcome is not Outcome.FAILED:
        return verdict
    verdict = replace(verdict, cause=causes.get(verdict.item, ""))
    if verdict.item in excused:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, why=excused[verdict.item])
    return verdict


def settled(subject: Subject, evidence: Iterable[Evidence], limits: Mapping[str, Tolerances]) -> set[tuple[str, str]]:
    """(mutant, branch) of those whose verdict no further case can change, or need change.

    A mutant has been seen in every form of the defect, and with room; one that is declared equivalent or harmless has not been, at the
    first cases. A form that a single case does not have may be there in the next one.
    """
    mine = [one for one in evidence if one.item.kernel == subject.kernel.name]
    mutated = [one for one in mine if one.item.mutant in subject.mutants]
    clean = [one for one in mine if not one.item.mutant and not one.item.check]
    return _over(kill_table(mutated, subject.mutants, limits, {}, clean))


def _over(kills: Iterable[MutantVerdict]) -> set[tuple[str, str]]:
    groups: dict[tuple[str, str], list[MutantVerdict]] = {}
    for row in kills:
        groups.setdefault((row.mutant, row.variant), []).append(row)
    return {group for group, rows in groups.items() if all(map(_seen, rows)) and (len(rows) == len(FORMS) or rows[0].cases > 1)}


def _seen(row: MutantVerdict) -> bool:
    return row.outcome in {Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS} and has_room(row)


def due(plan: Plan, evidence: Mapping[WorkItem, Evidence], noises: Noises, *, matrix: bool) -> list[WorkItem]:
    """The items that a run of this plan comes to, given what they yield, as far as that is known.

    No checks of a kernel that does not run, no mutants of one that is wrong, and none of a mutant that was seen in earlier waves.
    """
    found: list[WorkItem] = []
    for subject in plan.subjects:
        limits = limits_of(subject, noises)
        done = [evidence[item] for item in subject.clean_items() if item in evidence]
        judged = [judge(one, limits[Case.parse(one.item.case).dtype]) for one in done]
        found += subject.clean_items()
        if not_running(judged):
            continue
        found += subject.checks
        judged += [judge(evidence[item], {}) for item in subject.checks if item in evidence]
        if not_sound(judged):
            continue
        for wave in subject.waves():
            over = set() if matrix else settled(subject, done, limits)
            more = [item for item in wave if group_of(item) not in over]
            done += [evidence[item] for item in more if item in evidence]
            found += more
    return found


def own_forms(evidence: Evidence, clean: Evidence | None) -> Evidence:
    """The evidence of a mutant without the slices that it leaves as the clean kernel has them: they are no diluted form of it.

    Told once, on the machine that has both: another machine's last bits would make every slice look changed.
    """
    if clean is None:
        return evidence
    before = {m.quantity: m.diluted for m in clean.measurements}
    return replace(evidence, measurements=tuple(_changed(m, before.get(m.quantity, {})) for m in evidence.measurements))


def _changed(measurement: Measurement, before: Mapping[str, float | None]) -> Measurement:
    kept = {form: ratio for form, ratio in measurement.diluted.items() if form not in before or ratio != before[form]}
    return measurement if len(kept) == len(measurement.diluted) else replace(measurement, diluted=kept)


def limits_of(subject: Subject, noises: Noises) -> dict[str, Tolerances]:
    """The tolerances of a kernel by dtype, before any defect is known."""
    return {dtype: tolerances(noise_for(subject, dtype, noises)) for dtype in dict.fromkeys(case.dtype for case in subject.cases)}


def group_of(item: WorkItem) -> tuple[str, str]:
    """(mutant, branch) of an item: a row of the kill table."""
    return item.mutant, Case.parse(item.case).variant


def not_sound(verdicts: Sequence[Verdict]) -> bool:
    """Whether a kernel is so wrong that its mutants would mean nothing."""
    sound = {Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.UNINFORMATIVE, Outcome.BUG}
    return any(verdict.outcome not in sound for verdict in verdicts) or any(
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
