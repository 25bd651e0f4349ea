"""The run as a pull-request comment or a step summary: the verdict, and what a reviewer must look at."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gradcheck import ExitCode, MutantVerdict, Outcome, Run, report

from ._facts import dtypes, kernels, mute, replay, separation
from ._headline import badge, judgement, meaning
from ._kills import score, unexpected, whereabouts
from ._markdown import Section, code, document, fence, prose, table
from ._rows import Row, rows, spliced, weakest
from ._since import key, new_survivors, since
from ._text import count, line, number
from ._troubles import tallies, troubles

COMMENT, SUMMARY = 65_536, 1 << 20  # what GitHub takes of a comment and of a step summary
_LINE = 500  # characters of one line of the verdict
_SIGN = {ExitCode.OK: "✅", ExitCode.INCONCLUSIVE: "⚠️", ExitCode.INTERRUPTED: "⚠️"}


@report(suffix=".md")
def markdown(run: Run, *, base: Run | None = None, limit: int = COMMENT) -> str:
    """`run` in GitHub's Markdown.

    Args:
        run: the run.
        base: a run to compare with, such as that of the branch a pull request goes to.
        limit: bytes. What exceeds it is left out from the end, by rows and paragraphs; the verdict stays.
    """
    rest = f"`gradcheck report {shlex.quote(run.id)}` tells it whole"
    sections = [*_wrong(run), *_unseen(run, base), *_changed(run, base), *_separations(run), *_checks(run), *_facts(run)]
    return document(_first(run), sections, limit, rest)


def _first(run: Run) -> str:
    """The verdict in one line, then one for each kernel."""
    lines = [f"## {_SIGN.get(run.exit_code, '❌')} {badge(run)}: {code(run.op)}, {meaning(run)} (exit {int(run.exit_code)})", ""]
    said = [prose(judgement(run, kernel)[:_LINE]) for kernel in kernels(run)] or ["no kernel was compared with the truth"]
    lines += [f"- {text}" for text in [*said[:20], *([score(run)] if score(run) else [])]]
    lines += [f"- not run: {code(kernel)}: {prose(why[:_LINE])}" for kernel, why in list(run.not_run.items())[:20]]
    return "\n".join(lines)


def _wrong(run: Run) -> Iterator[Section]:
    """What is wrong with the kernels themselves."""
    blocks = []
    for trouble in troubles(run):
        who = f"{code(trouble.name)} of {code(trouble.kernel)}" if trouble.kind == "gradient" else code(trouble.kernel)
        who += f", check {code(trouble.name)}" if trouble.kind == "check" else ""
        blocks.append(
            f"**{trouble.outcome.name}** {who} in {count(trouble.cases, 'case')}: {prose(trouble.text)}\n\n{_command(trouble.replay)}"
        )
    if blocks:
        yield Section("### Wrong", tuple(blocks))


def _unseen(run: Run, base: Run | None) -> Iterator[Section]:
    """Mutants that did not end as declared; those that survived in the base too come last."""
    fresh = new_survivors(run, base)
    groups = unexpected(run)
    new = [group for group in groups if group[0].outcome is not Outcome.SURVIVED or any(key(row) in fresh for row in group)]
    if new:
        yield Section(f"### {'New survivors' if base else 'Survivors'}", tuple(_mutant(run, group) for group in new))
    if old := [group for group in groups if group not in new]:
        yield Section("### Survivors that the base has too", tuple(_mutant(run, group) for group in old))


def _mutant(run: Run, group: list[MutantVerdict]) -> str:
    first = group[0]
    parts = [f"**{first.outcome.name}** {code(first.mutant)} on {code(first.kernel)}, {prose(whereabouts(group))}: {first.outcome.value}."]
    parts += [prose(why) for why in dict.fromkeys(row.why for row in group if row.why)]
    if diff := next((row.diff for row in group if row.diff), ""):
        parts.append(fence(diff, "diff"))
    if case := next((row.case for row in group if row.case), ""):
        parts.append(_command(replay(run, first.kernel, case, first.mutant)))
    return "\n\n".join(parts)


def _command(words: Sequence[str]) -> str:
    return fence(shlex.join(line(word) for word in words), "sh")


def _changed(run: Run, base: Run | None) -> Iterator[Section]:
    if base is None:
        return
    found = since(run, base)
    if not found:
        yield Section(f"### Since {code(base.id)}\n\nNothing changed: no verdict, no mutant, and no separation by a factor of two.")
        return
    sign = {True: "🔻", False: "🔺", None: ""}
    cells = [[sign[c.worse], code(c.what, cell=True), prose(c.before), prose(c.after)] for c in found]
    yield table(f"### Since {code(base.id)}", ("", "what", "before", "now"), cells)


def _separations(run: Run) -> Iterator[Section]:
    """One table per kernel: a row for each gradient and dtype."""
    for kernel in kernels(run):
        cells = [_cells(row, dtype) for dtype in dtypes(run, kernel) for row in rows(run, kernel, dtype)]
        heads = ("", "dtype", "gradient", "metric", "noise", "measured", "tolerance", "weakest defect", "at", "decades apart")
        if cells:
            foot = "In rounding units; decades = log10(defect / noise)."
            yield table(f"### Noise and defect: {code(kernel)}", heads, cells, right=(4, 5, 6, 8, 9), foot=foot)


def _cells(row: Row, dtype: str) -> list[str]:
    band = row.band
    name = code(row.quantity, cell=True)
    if band is None:
        return [row.mark, dtype, name, *["–"] * 7]
    error, decades = row.error(band), separation(band)
    return [
        row.mark,
        dtype,
        name,
        band.metric,
        number(band.noise),
        ("invalid" if error is None else number(error)) if row.told else "–",
        number(band.tolerance),
        code(weakest(band), cell=True) + (" (spliced in)" if spliced(band) else "") if band.weakest else "–",
        "–" if band.defect is None else number(band.defect),
        "–" if decades is None else f"{decades:.1f}",
    ]


def _checks(run: Run) -> Iterator[Section]:
    """One row per kernel: its checks that need no tolerance."""
    cells = [
        [code(kernel, cell=True), " · ".join(f"{code(check, cell=True)} {held}/{told}" for check, held, told in tallies(run, kernel))]
        for kernel in kernels(run)
        if tallies(run, kernel)
    ]
    if cells:
        yield table("### Checks that need no tolerance", ("kernel", "cases that hold, of those that can tell"), cells)


def _facts(run: Run) -> Iterator[Section]:
    lines = [f"- {prose(reason)}" for reason in run.reasons]
    for kernel in kernels(run):
        silent = ", ".join(f"{code(name)} in {cases}" for name, cases in mute(run, kernel).items())
        lines += (
            [f"- {code(kernel)}: no word of {silent} cases, where the truth is beyond float64 or below the oracle's own error"]
            if silent
            else []
        )
    lines += [f"- {prose(note)}" for note in run.notes]
    lines += [f"- {prose(key_)}: {prose(value_)}" for key_, value_ in run.environment.items() if value_ and key_ != "folder"]
    lines += [f"- {run.done:,} of {count(run.planned, 'item')} in {run.seconds:.0f} s, run {code(run.id)}", f"- {code(run.command)}"]
    yield Section("<details><summary>How this was found</summary>\n", tuple(lines), "</details>", tight=True)
