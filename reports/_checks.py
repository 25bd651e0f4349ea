"""The checks that need no tolerance: one line of tallies per kernel, and what was violated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradcheck import Outcome, Run, Verdict

from ._facts import GOOD, kernels, replay
from ._text import brief, command, line, say


def broken(run: Run, kernel: str) -> list[str]:
    """Names of the checks that the kernel fails."""
    bad = (Outcome.FAILED, Outcome.CRASHED)
    return list(dict.fromkeys(line(v.item.check) for v in run.checks if v.item.kernel == kernel and v.outcome in bad))


def tallies(run: Run, kernel: str) -> Text | None:
    """`taint 4/4 · scaling 4/4`: cases that hold of those that could tell; nothing where no check was made."""
    by_check = _by_check(run, kernel)
    if not by_check:
        return None
    parts: list[str | tuple[str, str]] = [(line(kernel), "bold"), ": "]
    for number, (check, group) in enumerate(by_check.items()):
        told = [verdict for verdict in group if verdict.outcome is not Outcome.UNINFORMATIVE]
        held = sum(verdict.outcome in GOOD for verdict in told)
        style = "bold red" if held < len(told) else "yellow" if not told else ""
        parts += [" · "] if number else []
        parts.append((f"{line(check)} {f'{held}/{len(told)}' if told else line(group[0].why) or 'nothing to compare'}", style))
    return say(*parts)


def violations(run: Run, width: int) -> Iterator[RenderableType]:
    """Per kernel and check the first case in which it does not hold, with what is violated there."""
    for kernel in kernels(run):
        for check, group in _by_check(run, kernel).items():
            bad = [verdict for verdict in group if verdict.outcome not in (*GOOD, Outcome.UNINFORMATIVE)]
            if not bad:
                continue
            first = bad[0]
            style = "bold yellow" if first.outcome is Outcome.TIMEOUT else "bold red"
            tally = f" of {line(kernel)} in {len(bad)} of {len(group)} cases; the first:"
            yield say("\n", (f"{first.outcome.name} ", style), (f"check {line(check)}", "bold"), tally)
            yield Padding(_facts(run, first, width), (0, 0, 0, 2))


def _facts(run: Run, verdict: Verdict, width: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    item = verdict.item
    grid.add_row("case", Text(line(item.case), overflow="fold"))
    for sentence in _sentences(verdict):
        grid.add_row("broken", say((brief(sentence), "red")))
    again = command([line(word) for word in replay(run, item.kernel, item.case, check=item.check)], width - 12)
    grid.add_row("again", Text(again, overflow="fold"))
    return grid


def _sentences(verdict: Verdict) -> Sequence[str]:
    notes = verdict.evidence.notes if verdict.evidence else ()
    return notes or (verdict.why or verdict.outcome.value,)


def _by_check(run: Run, kernel: str) -> dict[str, list[Verdict]]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in run.checks:
        if verdict.item.kernel == kernel:
            groups.setdefault(verdict.item.check, []).append(verdict)
    return groups
