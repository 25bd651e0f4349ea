"""The gate in words: a few lines below the terminal reports, and the pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gradcheck._verdict import ExitCode, Run
from gradcheck.engine.gate import Gated
from gradcheck.engine.gate_stale import Stale

MARKER = "<!-- gradcheck gate -->"
"""First line of the comment: by it the next one finds and replaces it."""

LIMIT = 65_000
"""Bytes: GitHub takes 65,536 characters of a comment."""

MEANING = {
    ExitCode.OK: "nothing is wrong",
    ExitCode.WRONG: "a kernel is wrong",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.SURVIVORS: "mutants survive, or noise and defect are too close",
    ExitCode.ROTTEN: "the suite is rotten",
    ExitCode.NOTHING: "nothing was checked",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.BUG: "a bug in gradcheck",
    ExitCode.INTERRUPTED: "interrupted",
}
_SIGN = {ExitCode.OK: "✅", ExitCode.INCONCLUSIVE: "⚠️"}
_SHOWN = 20  # reasons, files, stale mutants
_IN_A_LINE = 4  # files in a line of the terminal


def headline(found: Gated) -> str:
    """The verdict in one line."""
    if found.exit_code is ExitCode.OK and not found.runs:
        return (
            f"has nothing to check: of the files that changed, {len(found.files)}, none is of a kernel, reference or mutant of this suite"
        )
    return f"{'passed' if found.exit_code is ExitCode.OK else 'FAILED'}: {MEANING[found.exit_code]} (exit {int(found.exit_code)})"


def lines(found: Gated) -> Iterator[str]:
    """The gate for a terminal."""
    yield f"gate {headline(found)}"
    yield f"  compared with {found.compared}"
    for op, why in found.touched.ops.items():
        yield f"  {op}: {'; '.join(_few(why, _IN_A_LINE))}"
    if found.touched.other:
        yield f"  of no op: {', '.join(_few(found.touched.other, _IN_A_LINE))}"
    yield from (f"  note: {note}" for note in found.notes)
    yield from (f"  {reason}" for reason in found.reasons)
    yield from (f"  {run.op}, exit {int(run.exit_code)}: {reason}" for run in found.runs for reason in run.reasons)
    for each in _stale(found):
        yield f"  {each}"
        yield from (f"    {row}" for row in each.diff.splitlines())


def markdown(found: Gated, tell: Callable[[Run, int], str]) -> str:
    """The gate as a comment: its verdict, then stale mutants with both texts, then each run as `tell` has it within so many bytes."""
    head = "\n".join(_head(found)) + "\n"
    head = _cut(head, LIMIT // 2)
    room = (LIMIT - len(head.encode())) // max(len(found.runs), 1)
    told = [tell(run, room - 2) for run in found.runs] if room > _LEAST else [f"{len(found.runs)} runs, too many to be told here\n"]
    return "\n".join([head, *told])


_LEAST = 2000  # bytes in which a run can be told


def _head(found: Gated) -> Iterator[str]:
    yield MARKER
    yield f"## {_SIGN.get(found.exit_code, '❌')} gradcheck gate {_prose(headline(found))}"
    yield ""
    for run in found.runs:
        yield f"- {_code(run.op)}: {MEANING[run.exit_code]} (exit {int(run.exit_code)})"
    yield from (f"- {_prose(reason)}" for reason in _few(found.reasons))
    stale = list(_stale(found))
    if stale:
        yield "\n### Stale mutants\n\nThe kernel's text changed under them: write each edit anew against what is there now."
    for each in stale[:_SHOWN]:
        yield f"\n**STALE** {_code(each.mutant)} on {_code(each.kernel)} matches {each.hits} places in {_code(each.file.name)}, need exactly 1\n"
        yield _fence(each.diff)
    if len(stale) > _SHOWN:
        yield f"\nand {len(stale) - _SHOWN} more"
    yield "\n<details><summary>What was compared</summary>\n"
    yield f"- compared with {_prose(found.compared)}"
    for op, why in found.touched.ops.items():
        yield f"- {_code(op)}: {_prose('; '.join(_few(why)))}"
    if found.touched.other:
        yield f"- of no op: {', '.join(_code(path) for path in _few(found.touched.other))}"
    yield from (f"- {_prose(note)}" for note in found.notes)
    yield "\n</details>\n"


def _stale(found: Gated) -> Iterator[Stale]:
    return (each for group in found.stale.values() for each in group)


def _few(texts: tuple[str, ...], limit: int = _SHOWN) -> list[str]:
    return [*texts[:limit], *([f"and {len(texts) - limit} more"] if len(texts) > limit else [])]


def _prose(text: str) -> str:
    """Text in which nothing is markup, and nobody is notified."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", plain.replace("&", "&amp;")).replace("@", "@\N{ZERO WIDTH SPACE}")


def _code(text: str) -> str:
    plain = " ".join("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text).split())
    marks = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    return f"{marks}{' ' if '`' in plain else ''}{plain}{' ' if '`' in plain else ''}{marks}"


def _fence(text: str) -> str:
    marks = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{marks}diff\n{text}\n{marks}"


def _cut(text: str, limit: int) -> str:
    """Whole lines within so many bytes. A block of code or a fold that is cut open is closed."""
    if len(text.encode()) <= limit:
        return text
    kept, size = [], 0
    for line in text.split("\n"):
        size += len(line.encode()) + 1
        if size > limit:
            break
        kept.append(line)
    fences = [line for line in kept if line.startswith("```")]
    close = [re.match("`+", fences[-1])[0]] if len(fences) % 2 else []  # type: ignore[index]  # it starts with some
    return "\n".join([*kept, *close, "", "and more, which the log has", ""])
