"""The report for a terminal: headline, calibration, kill table, failures, survivors."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradcheck import Case, ExitCode, Outcome, Run, report

from ._bands import calibration
from ._checks import tallies, violations
from ._facts import GOOD, GPU, gradients, kernels, mute, place, seen
from ._failures import failures
from ._headline import badge, meaning, sentence
from ._kills import kill_table, unseen
from ._text import count, line, say


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
    return say((f"{badge(run)}  ", _style(run)), (sentence(run), "bold"))


def _style(run: Run) -> str:
    unclear = run.exit_code in (ExitCode.INCONCLUSIVE, ExitCode.INTERRUPTED)
    return "bold green" if run.exit_code is ExitCode.OK else "bold yellow" if unclear else "bold red"


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
    yield from (("no word", silence) for kernel in kernels(run) if (silence := _silent(run, kernel)) is not None)
    yield from (("checks", tally) for kernel in kernels(run) if (tally := tallies(run, kernel)) is not None)
    for kernel, reason in run.not_run.items():
        yield "not run", say((f"{line(kernel)}: {line(reason)}", "yellow"))
    endings = [(verdict.outcome, verdict.ending) for verdict in run.verdicts]
    if any(outcome is not Outcome.PASSED for outcome, _ in endings):
        for outcome, end in dict.fromkeys(sorted(endings, key=lambda e: list(Outcome).index(e[0]))):
            text = f"{count(endings.count((outcome, end)), 'case')} {outcome.name}: {end}"
            yield "of these", say((text, "" if outcome in GOOD else "yellow"))
    if run.done < run.planned:
        left = f"{run.done:,} of {count(run.planned, 'item')} done; go on with: gradcheck run --resume {line(run.id)}"
        yield "unfinished", say((left, "yellow"))
    for note in run.notes:
        yield "note", Text(line(note))
    if here := " · ".join(f"{line(key)} {line(value)}" for key, value in run.environment.items() if value and key != "folder"):
        yield "on", say((here, "dim"))


def _checked(run: Run, kernel: str) -> Text:
    cases = [Case.parse(verdict.item.case) for verdict in run.verdicts if verdict.item.kernel == kernel]
    measured = list(seen(run, kernel))
    names = gradients(measured)
    branches = [f"{sum(case.variant == v for case in cases)} {line(v)}" for v in dict.fromkeys(case.variant for case in cases) if v]
    listed = f" ({' '.join(map(line, names))})" if names else ""
    where = place(run, kernel)
    parts = (
        *((f"on {line(where)}{'' if where == GPU else ', which is no GPU'}",) if where else ()),
        count(len(cases), "case") + (f" ({', '.join(branches)})" if branches else ""),
        " ".join(dict.fromkeys(case.dtype for case in cases)),
        f"{count(len(names), 'gradient')} checked{listed}",
        f"{count(sum(s.measurement.checked for s in measured), 'element')} compared",
    )
    return say((line(kernel), "bold"), f": {', '.join(parts)}")


def _silent(run: Run, kernel: str) -> Text | None:
    """Which quantities were accepted unseen, and in how many cases."""
    counts = mute(run, kernel)
    if not counts:
        return None
    cases = sum(verdict.item.kernel == kernel for verdict in run.verdicts)
    told = ", ".join(f"{line(name)} in {number}" for name, number in counts.items())
    why = "uninformative, the truth is beyond float64 or below the oracle's own error"
    return say((line(kernel), "bold"), f": of {told} of {count(cases, 'case')} ({why})")


def _footer(run: Run) -> Text:
    folder = run.environment.get("folder", f".gradcheck/runs/{run.id}")
    return say(
        (f"\n{line(folder)} · {count(run.done, 'item')} · {run.seconds:.1f} s\n", "dim"),
        (f"exit {int(run.exit_code)}", _style(run)),
        (f": {meaning(run)}", "dim"),
    )
