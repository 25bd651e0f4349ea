"""The run as one page that opens from disk: the noise-versus-defect picture first. No network, no script, no picture library.

The pictures are inline SVG made by the template, not a charting library's: a strip is a few hundred marks, a browser draws them without a line of
JavaScript, they follow the reader's light or dark mode, and the page forbids all scripts (its Content-Security-Policy), so a name that were to slip
through the escaping could still do nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck import MutantVerdict, Outcome, Run, report

from ._facts import dtypes, kernels, mute, over, replay, separation
from ._headline import badge, judgement, meaning
from ._kills import CONTROLS, FORMS, holds, mutants, score, unexpected, whereabouts
from ._picture import curves, scale, strips
from ._rows import Row, rows, spliced, weakest
from ._text import count, line, number, safe
from ._troubles import tallies, troubles

if TYPE_CHECKING:
    from jinja2 import Environment

_ACCEPTED = (Outcome.HARMLESS, Outcome.EQUIVALENT)
_GLYPH = {Outcome.KILLED: "●", Outcome.SURVIVED: "✗", Outcome.HARMLESS: "○", Outcome.EQUIVALENT: "○"}
_ROOM = (3.0, 100.0, 1e4)  # multiples of the tolerance at which a kill gets a stronger colour; below the first there is no room


@report(suffix=".html")
def html(run: Run) -> str:
    """`run` as one HTML page, complete in itself."""
    across = scale(run)
    names = kernels(run)
    return (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            badge=badge(run),
            tone="good" if not run.exit_code else "unclear" if run.exit_code in (6, 130) else "bad",
            meaning=meaning(run),
            said=[judgement(run, kernel) for kernel in names] or ["no kernel was compared with the truth"],
            score=score(run),
            scale=across,
            pictures=[(line(kernel), strips(run, kernel, across), curves(run, kernel)) for kernel in names],
            failures=list(_failures(run)),
            tables=[(line(kernel), dtype, list(_table(rows(run, kernel, dtype)))) for kernel in names for dtype in dtypes(run, kernel)],
            checks=[(line(kernel), tallies(run, kernel)) for kernel in names if tallies(run, kernel)],
            silent=[(line(kernel), counts) for kernel in names if (counts := mute(run, kernel))],
            columns=_columns(run),
            matrix=list(_matrix(run)),
            mutants=_mutants(run),
            facts={key: text for key, text in run.environment.items() if text},
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda shown: safe(shown) if isinstance(shown, str) else shown,  # nothing that reorders or hides what is read
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _failures(run: Run) -> Iterator[Mapping[str, str]]:
    """What is wrong, facts in words, and the command that shows it again."""
    for trouble in troubles(run):
        what = {
            "gradient": f"{trouble.name} of {trouble.kernel}",
            "end": f"{trouble.kernel} {trouble.ending}",
            "check": f"check {trouble.name} of {trouble.kernel}",
        }[trouble.kind]
        text = f"in {count(trouble.cases, 'case')}: {trouble.text}"
        yield {"what": what, "text": text, "case": trouble.case, "replay": shlex.join(trouble.replay)}


def _table(group: Sequence[Row]) -> Iterator[Sequence[str]]:
    """Mark, then the cells of the calibration table."""
    for row in group:
        band = row.band
        if band is None:
            yield [row.mark, row.quantity, *["–"] * 9]
            continue
        error, decades = row.error(band), separation(band)
        worst = row.worst.measurement if row.worst else None
        yield [
            row.mark,
            row.quantity,
            band.metric,
            number(band.noise),
            ("invalid" if error is None else number(error)) if row.told else "–",
            number(band.tolerance),
            "–" if band.defect is None else number(band.defect),
            "–" if decades is None else f"{decades:.1f}",
            f"{weakest(band)}{' (spliced in)' if spliced(band) else ''}" if band.weakest else "–",
            (worst.where if worst else "") or "–",
            "–" if worst is None or worst.worst_step is None else str(worst.worst_step),
        ]


def _columns(run: Run) -> list[tuple[str, str]]:
    """Kernel and branch of each column of the matrix."""
    return list(dict.fromkeys((row.kernel, row.variant) for row in run.kills))


def _matrix(run: Run) -> Iterator[tuple[str, bool, Sequence[Sequence[Mapping[str, str]]]]]:
    """Per mutant its name, whether it is a control, and per column its forms; controls come last."""
    cells: dict[str, dict[tuple[str, str], list[MutantVerdict]]] = {}
    for row in run.kills:
        cells.setdefault(row.mutant, {}).setdefault((row.kernel, row.variant), []).append(row)
    for name in sorted(cells, key=lambda name: name in CONTROLS):
        own = cells[name]
        yield name, name in CONTROLS, [_forms(own.get(column, [])) for column in _columns(run)]


def _forms(rows: Sequence[MutantVerdict]) -> Sequence[Mapping[str, str]]:
    """A slot for each form, so that they stand below each other; nothing where the mutant was not run."""
    by_form = {row.form: row for row in rows}
    empty = {"glyph": "·", "tone": "dim", "text": "has no such form"}
    return [_form(by_form[form]) if form in by_form else empty for form in FORMS] if rows else []


def _form(row: MutantVerdict) -> Mapping[str, str]:
    """A glyph, its colour, and what it stands for."""
    glyph = _GLYPH.get(row.outcome, "!")
    if row.outcome is Outcome.KILLED:
        tone = f"k{sum(over(row.margin, 1.0) >= room for room in _ROOM)}"
    else:
        tone = "accepted" if row.outcome in _ACCEPTED else "lost"
    if row.mutant in CONTROLS:
        glyph, tone = ("●" if row.mutant == "canary" else "○", "k3") if holds(row) else ("✗", "lost")
    best = f", {row.quantity} {'×∞' if row.margin is None else f'×{number(row.margin)}'}" if row.quantity else ""
    text = f"{row.form}: {row.outcome.name} {row.kills}/{row.cases}{best}"
    return {"glyph": glyph, "tone": tone, "text": text}


def _mutants(run: Run) -> list[Mapping[str, object]]:
    """Each mutant with its verdict on each kernel and its diffs; those that did not end as declared first, and open."""
    odd = {(group[0].kernel, group[0].mutant) for group in unexpected(run)}
    groups: dict[str, list[MutantVerdict]] = {}
    for row in mutants(run):
        groups.setdefault(row.mutant, []).append(row)
    out = [_mutant(run, name, own, odd) for name, own in groups.items()]
    return sorted(out, key=lambda told: not told["odd"])


def _mutant(run: Run, name: str, own: Sequence[MutantVerdict], odd: set[tuple[str, str]]) -> Mapping[str, object]:
    diffs: dict[str, list[str]] = {}
    ends: dict[tuple[str, Outcome], list[MutantVerdict]] = {}
    for row in own:
        ends.setdefault((row.kernel, row.outcome), []).append(row)
        if row.diff and row.kernel not in diffs.get(row.diff, []):
            diffs.setdefault(row.diff, []).append(row.kernel)
    return {
        "name": name,
        "odd": any((row.kernel, name) in odd for row in own),
        "outcome": next(
            (row.outcome for row in own if (row.kernel, name) in odd and (row.outcome is not Outcome.KILLED or row.why)), own[0].outcome
        ).name,
        "ends": [_end(run, group, odd) for group in ends.values()],
        "diffs": [(", ".join(on), _lines(diff)) for diff, on in diffs.items()],
    }


def _end(run: Run, group: Sequence[MutantVerdict], odd: set[tuple[str, str]]) -> Mapping[str, str]:
    first = group[0]
    why = "; ".join(dict.fromkeys(line(row.why) for row in group if row.why))
    case = next((row.case for row in group if row.case), "")
    again = shlex.join(replay(run, first.kernel, case, first.mutant)) if case and (first.kernel, first.mutant) in odd else ""
    return {"text": f"{first.outcome.name} on {first.kernel}, {whereabouts(group)}", "why": why, "replay": again}


def _lines(diff: str) -> list[tuple[str, str]]:
    """Class and text of each line of a diff."""
    kinds = {"+": "added", "-": "removed", "@": "hunk"}
    return [
        ("head" if text.startswith(("+++", "---")) else kinds.get(text[:1], "same"), text) for text in safe(diff).strip("\n").split("\n")
    ]
