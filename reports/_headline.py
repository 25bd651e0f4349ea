"""The verdict in one line, as every report begins: a badge, what can be said of each kernel, and the score of the mutants."""

from __future__ import annotations

from gradcheck import ExitCode, Outcome, Run

from ._checks import broken
from ._facts import GOOD, WRONG, gradients, kernels, place, seen
from ._kills import score
from ._text import count, line, words

_GATE = {
    ExitCode.OK: ("PASS", "the kernels agree with the truth and the gate is met"),
    ExitCode.WRONG: ("FAIL", "a kernel is wrong"),
    ExitCode.USAGE: ("USAGE", "usage or configuration"),
    ExitCode.SURVIVORS: ("FAIL", "mutants survived beyond the gate"),
    ExitCode.ROTTEN: ("ROTTEN", "the suite is rotten: a mutant is stale, ambiguous or unviable, or a control went wrong"),
    ExitCode.NOTHING: ("NOTHING CHECKED", "nothing was checked"),  # or something, see `_partly`
    ExitCode.INCONCLUSIVE: ("INCONCLUSIVE", "no room for a tolerance, a time limit, a missing device, or an unfinished run"),
    ExitCode.BUG: ("BUG", "a bug in gradcheck"),
    ExitCode.INTERRUPTED: ("INTERRUPTED", "interrupted; the run can be resumed"),
}


def badge(run: Run) -> str:
    """The verdict in a word or two: `PASS`, `FAIL`. A shard that passed is not a run that did."""
    if run.exit_code is ExitCode.OK and _shard(run):
        return "PART PASSED"
    return "NOT ALL CHECKED" if _partly(run) else _GATE[run.exit_code][0]


def meaning(run: Run) -> str:
    """What the exit code says."""
    if run.exit_code is ExitCode.OK and _shard(run):
        return "nothing is wrong in this part of the plan; gradcheck merge says what the whole comes to"
    return "some gradient was not checked" if _partly(run) else _GATE[run.exit_code][1]


def _shard(run: Run) -> str:
    """`2 of 3`, where this is a part of a plan."""
    return run.environment.get("shard", "")


def _partly(run: Run) -> bool:
    """Whether the gate found something that was not checked, beside gradients that were."""
    return run.exit_code is ExitCode.NOTHING and any(gradients(list(seen(run, kernel))) for kernel in kernels(run))


def sentence(run: Run) -> str:
    """What can be said of each kernel, and how many mutants were killed."""
    parts = [judgement(run, kernel) for kernel in kernels(run)] or ["no kernel was compared with the truth"]
    if killed := score(run):
        parts.append(killed)
    shard = f", shard {line(_shard(run))}" if _shard(run) else ""
    return f"{line(run.op)}{shard}: {'; '.join(parts)}"


def judgement(run: Run, kernel: str) -> str:
    """What can be said of one kernel. Only one whose every case passed agrees with the truth."""
    outcomes = [verdict.outcome for verdict in run.verdicts if verdict.item.kernel == kernel]
    where = place(run, kernel)
    name = f"{line(kernel)} on {line(where)}" if where else line(kernel)
    failed = f"fails the check{'s' if len(broken(run, kernel)) > 1 else ''} {words(broken(run, kernel))}" if broken(run, kernel) else ""
    if any(outcome in WRONG for outcome in outcomes):
        bad = dict.fromkeys(line(s.measurement.quantity) for s in seen(run, kernel) if s.failed)
        crashed = Outcome.CRASHED in outcomes
        raised = any(v.evidence is not None and v.evidence.status == "raised" for v in run.verdicts if v.item.kernel == kernel)
        died = "crashes" if crashed else "raises" if raised else ""
        said = f"{run.fault(kernel)} in {words(bad)}{f', and {died}' if died else ''}" if bad else died or "is wrong"
        return f"{name} {said}{' and ' if failed else ''}{failed}"
    if failed:
        return f"{name} {failed}"
    if any(v.evidence is not None and v.evidence.status == "no-backward" for v in run.verdicts if v.item.kernel == kernel):
        return f"{name} has no backward, 0 gradients checked"
    mute = outcomes.count(Outcome.UNINFORMATIVE)
    unclear = len(outcomes) - mute - sum(outcome in GOOD for outcome in outcomes)
    if unclear or mute == len(outcomes):
        return f"{name} is undecided in {unclear or mute} of {count(len(outcomes), 'case')}"
    agrees = f"{name} agrees with the truth{' so far' if run.done < run.planned else ''}"
    if mute:
        agrees += f" in the {len(outcomes) - mute} of {count(len(outcomes), 'case')} that can tell"
    measured = list(seen(run, kernel))
    if not (told := gradients(measured)):
        return f"{agrees} in its outputs, 0 gradients checked"
    names = dict.fromkeys(s.measurement.quantity for s in measured if s.measurement.quantity.startswith("d "))
    silent = [line(name) for name in names if name.removeprefix("d ") not in told]
    return f"{agrees}, but no case says anything of {words(silent)}" if silent else agrees
