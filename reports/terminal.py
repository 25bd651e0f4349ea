"""The report for a terminal: headline, calibration, kill table, failures, survivors."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradcheck import Case, ExitCode, Outcome, Run, Verdict, report

from ._bands import calibration
from ._checks import broken, tallies, violations
from ._facts import GOOD, WRONG, gradients, kernels, seen
from ._failures import failures
from ._kills import kill_table, score, unseen
from ._text import count, line, say, words

_GATE = {
    ExitCode.OK: ("PASS", "bold green", "the kernels agree with the truth and the gate is met"),
    ExitCode.WRONG: ("FAIL", "bold red", "a kernel is wrong"),
    ExitCode.USAGE: ("USAGE", "bold red", "usage or configuration"),
    ExitCode.SURVIVORS: ("FAIL", "bold red", "mutants survived beyond the gate"),
    ExitCode.ROTTEN: ("ROTTEN", "bold red", "the suite is rotten: a mutant is stale, ambiguous or unviable, or a control went wrong"),
    ExitCode.NOTHING: ("NOTHING CHECKED", "bold red", "nothing was checked"),
    ExitCode.INCONCLUSIVE: ("INCONCLUSIVE", "bold yellow", "no room for a tolerance, a time limit, a missing device, or an unfinished run"),
    ExitCode.BUG: ("BUG", "bold red", "a bug in gradcheck"),
    ExitCode.INTERRUPTED: ("INTERRUPTED", "bold yellow", "interrupted; the run can be resumed"),
}


@report(suffix=".txt")
def terminal(run: Run, *, width: int = 110, colour: bool = False) -> str:
    """`run` as an expert would screenshot it: the verdict first, then what it rests on, then every failure with its replay line."""
    paper = StringIO()
    console = Console(
        file=paper, width=width, height=100, force_terminal=colour, color_system="standard" if colour else None,
        no_color=False, force_jupyter=False, highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip  # everything that rich would otherwise ask the environment for
    for block in _blocks(run, width):
        console.print(block)
    return "\n".join(row.rstrip() for row in paper.getvalue().split("\n"))


def _blocks(run: Run, width: int) -> Iterator[RenderableType]:
    yield _sentence(run)
    yield ""
    yield _headline(run)
    yield from calibration(run, width)
    yield from kill_table(run, width)
    yield from failures(run, width)
    yield from violations(run, width)
    yield from unseen(run, width)
    yield _footer(run)


def _sentence(run: Run) -> Text:
    badge, style, _ = _GATE[run.exit_code]
    parts = [_judgement(run, kernel) for kernel in kernels(run)]
    if not parts:
        parts.append("no kernel was compared with the truth")
    if killed := score(run):
        parts.append(killed)
    return say((f"{badge}  ", style), (f"{line(run.op)}: {'; '.join(parts)}", "bold"))


def _judgement(run: Run, kernel: str) -> str:
    """What can be said of one kernel. Only one whose every case passed agrees with the truth."""
    outcomes = [verdict.outcome for verdict in run.verdicts if verdict.item.kernel == kernel]
    name = line(kernel)
    failed = f"fails the check{'s' if len(broken(run, kernel)) > 1 else ''} {words(broken(run, kernel))}" if broken(run, kernel) else ""
    if any(outcome in WRONG for outcome in outcomes):
        bad = dict.fromkeys(line(s.measurement.quantity) for s in seen(run, kernel) if s.failed)
        crashed = Outcome.CRASHED in outcomes
        said = f"is wrong in {words(bad)}{', and crashes' if crashed else ''}" if bad else "crashes" if crashed else "is wrong"
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
    return agrees if gradients(list(seen(run, kernel))) else f"{agrees} in its outputs, 0 gradients checked"


def _headline(run: Run) -> Table:
    """What the sentence rests on, one aligned line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    shown = ""
    for label, text in _statements(run):
        grid.add_row(label if label != shown else "", text)
        shown = label
    return grid


def _statements(run: Run) -> Iterator[tuple[str, Text]]:
    for reason in run.reasons:
        yield "because", say((line(reason), "red" if run.exit_code is ExitCode.WRONG else "yellow"))
    yield from (("checked", _checked(run, kernel)) for kernel in kernels(run))
    yield from (("checks", tally) for kernel in kernels(run) if (tally := tallies(run, kernel)) is not None)
    for kernel, reason in run.not_run.items():
        yield "not run", say((f"{line(kernel)}: {line(reason)}", "yellow"))
    endings = [(verdict.outcome, _ending(verdict)) for verdict in run.verdicts]
    if any(outcome is not Outcome.PASSED for outcome, _ in endings):
        for outcome, ending in dict.fromkeys(sorted(endings, key=lambda e: list(Outcome).index(e[0]))):
            text = f"{count(endings.count((outcome, ending)), 'case')} {outcome.name}: {ending}"
            yield "of these", say((text, "" if outcome in GOOD else "yellow"))
    if run.done < run.planned:
        left = f"{run.done:,} of {count(run.planned, 'item')} done; go on with: gradcheck run --resume {line(run.id)}"
        yield "unfinished", say((left, "yellow"))
    for note in run.notes:
        yield "note", Text(line(note))
    if here := " · ".join(f"{line(key)} {line(value)}" for key, value in run.environment.items() if value and key != "folder"):
        yield "on", say((here, "dim"))


def _ending(verdict: Verdict) -> str:
    """What the outcome means; a kernel without a backward is not what its outcome usually stands for."""
    if verdict.evidence is not None and verdict.evidence.status == "no-backward":
        return "the kernel has no backward, only its outputs were compared"
    return verdict.outcome.value


def _checked(run: Run, kernel: str) -> Text:
    cases = [Case.parse(verdict.item.case) for verdict in run.verdicts if verdict.item.kernel == kernel]
    measured = list(seen(run, kernel))
    names = gradients(measured)
    branches = [f"{sum(case.variant == v for case in cases)} {line(v)}" for v in dict.fromkeys(case.variant for case in cases) if v]
    listed = f" ({' '.join(map(line, names))})" if names else ""
    parts = (
        count(len(cases), "case") + (f" ({', '.join(branches)})" if branches else ""),
        " ".join(dict.fromkeys(case.dtype for case in cases)),
        f"{count(len(names), 'gradient')} checked{listed}",
        f"{count(sum(s.measurement.checked for s in measured), 'element')} compared",
    )
    return say((line(kernel), "bold"), f": {', '.join(parts)}")


def _footer(run: Run) -> Text:
    _, style, meaning = _GATE[run.exit_code]
    folder = run.environment.get("folder", f".gradcheck/runs/{run.id}")
    return say(
        (f"\n{line(folder)} · {count(run.done, 'item')} · {run.seconds:.1f} s\n", "dim"),
        (f"exit {int(run.exit_code)}", style),
        (f": {meaning}", "dim"),
    )
