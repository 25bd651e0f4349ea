"""The kill table: which mutant was seen, on which kernel and branch, in full and diluted; and the diffs of those that were not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradcheck import MutantVerdict, Outcome, Run

from ._facts import replay
from ._text import brief, command, count, line, number, safe, say, words

CONTROLS = ("canary", "null")
FORMS = ("full", "last step", "one head")
_STYLE = {
    Outcome.KILLED: "green",
    Outcome.SURVIVED: "bold red",
    Outcome.HARMLESS: "dim",
    Outcome.EQUIVALENT: "dim",
    Outcome.STALE: "bold red",
    Outcome.UNVIABLE: "bold red",
}


def mutants(run: Run) -> tuple[MutantVerdict, ...]:
    """The kill table without canary and null mutant, which stand outside every count."""
    return tuple(row for row in run.kills if row.mutant not in CONTROLS)


def score(run: Run, kernel: str = "") -> str:
    """`5 of 5 mutants killed`: killed in every kernel and branch in which it was run in full; declared survivors are not counted.

    Of those, the ones that survive in a diluted form somewhere are counted too: `5 of 5 mutants killed in full, 2 survive diluted`.
    """
    rows = [row for row in mutants(run) if not kernel or row.kernel == kernel]
    whole = [row for row in rows if row.form == "full" and row.outcome not in (Outcome.HARMLESS, Outcome.EQUIVALENT)]
    names = {row.mutant for row in whole}
    killed = names - {row.mutant for row in whole if row.outcome is not Outcome.KILLED}
    diluted = killed & {row.mutant for row in rows if row.form != "full" and row.outcome is Outcome.SURVIVED}
    but = f" in full, {len(diluted)} {'survives' if len(diluted) == 1 else 'survive'} diluted" if diluted else ""
    return f"{len(killed)} of {count(len(names), 'mutant')} killed{but}" if names else ""


def holds(row: MutantVerdict) -> bool:
    """Whether a control did as it must: the canary is killed, the null mutant is left alone."""
    if row.mutant == "canary":
        return row.outcome is Outcome.KILLED
    return row.outcome in (Outcome.SURVIVED, Outcome.HARMLESS, Outcome.EQUIVALENT)


def unexpected(run: Run) -> list[list[MutantVerdict]]:
    """The rows of each mutant that did not end as declared, together where kernel and outcome are the same."""
    groups: dict[tuple[str, str, Outcome], list[MutantVerdict]] = {}
    for row in mutants(run):
        if row.outcome not in (Outcome.HARMLESS, Outcome.EQUIVALENT) and (row.outcome is not Outcome.KILLED or row.why):
            groups.setdefault((row.kernel, row.mutant, row.outcome), []).append(row)
    return list(groups.values())


def whereabouts(rows: Sequence[MutantVerdict]) -> str:
    """`mamba1 in full and mamba1 last step`: the branches and forms of these rows."""
    return words(f"{line(row.variant)} {_form(row) or 'in full'}".strip() for row in rows)


def kill_table(run: Run, width: int) -> Iterator[RenderableType]:
    """Mutants by kernel; then canary and null mutant, on their own."""
    rows = mutants(run)
    kernels = dict.fromkeys(row.kernel for row in rows)
    for kernel in kernels:
        yield say(
            "\n",
            ("mutants", "bold"),
            f" of {line(kernel)}{_on(rows, kernel)} · {score(run, kernel) or 'all declared harmless or equivalent'}",
        )
        yield _draw([row for row in rows if row.kernel == kernel], width)
    if rows:
        caption = (
            "Cases in which the defect was seen, of those run; the gradient that saw it best, and by what multiple of its tolerance. "
            "Where the branches agree they share a row, with the smaller multiple."
        )
        yield Padding(say((caption, "dim")), (0, 0, 0, 2))
    elif run.kills:
        yield ""
    for kernel, control in dict.fromkeys((row.kernel, row.mutant) for row in run.kills if row.mutant in CONTROLS):
        yield _control([row for row in run.kills if (row.kernel, row.mutant) == (kernel, control)])


def _on(rows: Sequence[MutantVerdict], kernel: str) -> str:
    """Where the Metal kernels of these mutants ran."""
    where = dict.fromkeys(row.place for row in rows if row.kernel == kernel and row.place)
    return f" on {words(map(line, where))}" if where else ""


def _draw(rows: Sequence[MutantVerdict], width: int) -> Table:
    forms = [form for form in FORMS if any(row.form == form for row in rows)]
    branches = any(row.variant for row in rows)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim", border_style="dim")
    table.add_column("mutant", overflow="ellipsis", no_wrap=True)
    if branches:
        table.add_column("branch", no_wrap=True, style="dim")
    for form in forms:
        table.add_column(form, no_wrap=True)
    for mutant in dict.fromkeys(row.mutant for row in rows):
        shown = line(mutant)
        for own in _shared([row for row in rows if row.mutant == mutant]):
            cells = [Text(shown), *([Text(line(next(iter(own.values())).variant))] if branches else [])]
            table.add_row(*cells, *(_cell(own.get(form), width) for form in forms))
            shown = ""
    return table


def _shared(rows: Sequence[MutantVerdict]) -> list[dict[str, MutantVerdict]]:
    """The rows of one mutant by form: one group for all branches where they end alike, else one for each branch."""
    branches = list(dict.fromkeys(row.variant for row in rows))
    by_branch = [{row.form: row for row in rows if row.variant == branch} for branch in branches]
    ends = [{form: row.outcome for form, row in own.items()} for own in by_branch]
    if len(branches) == 1 or any(end != ends[0] for end in ends):
        return by_branch
    merged = {}
    for form in by_branch[0]:
        alike = [own[form] for own in by_branch]
        least = min(alike, key=lambda row: math.inf if row.margin is None else row.margin)
        merged[form] = replace(
            least, variant=" ".join(branches), kills=sum(row.kills for row in alike), cases=sum(row.cases for row in alike)
        )
    return [merged]


def _cell(row: MutantVerdict | None, width: int) -> Text:
    if row is None:
        return say(("–", "dim"))
    style = _STYLE.get(row.outcome, "yellow")
    tally = f"{row.kills}/{row.cases}"
    if row.outcome is Outcome.KILLED:
        best = f"  {line(row.quantity or row.metric)} " if width >= 100 or row.form == "full" else " "
        return say((tally, style), best, ("×∞" if row.margin is None else f"×{number(row.margin)}", "dim"))
    return say((f"{row.outcome.name} {tally if row.cases else ''}".rstrip(), style))


def _control(rows: Sequence[MutantVerdict]) -> Padding:
    """One line for the canary (must die) or the null mutant (must survive) of a kernel, over its branches."""
    must_die = rows[0].mutant == "canary"
    bad = [row for row in rows if not holds(row)]
    what = "canary (gradients of zeros)" if must_die else "null mutant (an edit that changes nothing)"
    tallies = ", ".join(" ".join(filter(None, (line(row.variant), _form(row), f"{row.kills}/{row.cases}"))) for row in rows)
    good = "seen, as it must be" if must_die else "left alone, as it must be"
    end = f"{words(dict.fromkeys(row.outcome.name for row in bad))}: these results cannot be trusted" if bad else good
    mark = ("✗ ", "bold red") if bad else ("✓ ", "green")
    return Padding(say(mark, f"{what} of {line(rows[0].kernel)} ", (end, "bold red" if bad else ""), (f"  {tallies}", "dim")), (0, 0, 0, 2))


def _form(row: MutantVerdict) -> str:
    return "" if row.form == "full" else row.form


def unseen(run: Run, width: int) -> Iterator[RenderableType]:
    """Every mutant that did not end as declared: where, why it matters, its diff and how to try it again."""
    for rows in unexpected(run):
        kernel, mutant, outcome = rows[0].kernel, rows[0].mutant, rows[0].outcome
        where = whereabouts(rows)
        style = _STYLE.get(outcome, "bold yellow")
        yield say("\n", (f"{outcome.name} ", style), (line(mutant), "bold"), f" on {line(kernel)}, {where}: {outcome.value}")
        for why in dict.fromkeys(brief(row.why) for row in rows if row.why):
            yield Padding(Text(why), (0, 0, 0, 2))
        diff = next((row.diff for row in rows if row.diff), "")
        if diff:
            yield Padding(_diff(diff), (0, 0, 0, 4))
        case = next((row.case for row in rows if row.case), "")
        if case:
            again = command([line(word) for word in replay(run, kernel, case, mutant)], width - 10)
            yield Padding(say(("replay  ", "dim"), again.replace("\n", "\n        ")), (0, 0, 0, 2))


def _diff(diff: str) -> Text:
    """A unified diff in the usual colours."""
    text = Text(overflow="fold")
    for row in safe(diff).rstrip("\n").split("\n"):
        head = row.startswith(("+++", "---"))
        style = "dim" if head else {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
        text.append(row + "\n", style=style)
    text.right_crop(1)
    return text
