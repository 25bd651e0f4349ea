"""`gradcheck diff`: what changed between two runs, or between the published bands and a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError
from gradcheck.cli.output import columns, emit, emit_json, printable
from gradcheck.cli.run import FOLDER

if TYPE_CHECKING:
    from gradcheck.engine.change import Change, Side

PUBLISHED = "published"
_SHOWN = 20


@click.command("diff", short_help="What changed between two runs, or from the published bands.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--factor",
    metavar="X",
    type=click.FloatRange(min=1, min_open=True),
    default=2.0,
    show_default=True,
    help="Mention a number that moved by more than this.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, and all of it.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(old: str, new: str, *, factor: float, as_json: bool, suites: tuple[str, ...]) -> int:
    """Compare two runs, by id as `gradcheck list runs` has them; `published` stands for the published bands of the other's op.

    Exit 0 where nothing is worse; 1 where a kernel newly fails; 3 where a separation shrank by more than --factor or a mutant newly survives; 6
    where something that was compared is not any more.
    """
    if old == new:
        raise UsageError(f"both sides are {old}; name two runs, or one run and `{PUBLISHED}`")
    from gradcheck.engine.change import change

    before, after = _sides(old, new, suites)
    found = change(before, after, factor)
    if as_json:
        emit_json({**asdict(found), "exit_code": int(found.exit_code)})
    else:
        emit(printable("\n".join(_text(found))))
    return found.exit_code


def _sides(old: str, new: str, suites: tuple[str, ...]) -> tuple[Side, Side]:
    from gradcheck.engine.change import of_run
    from gradcheck.engine.finished import read_run

    runs = {name: of_run(read_run(FOLDER, name)) for name in (old, new) if name != PUBLISHED}
    if len(runs) == 1:
        (run,) = runs.values()
        runs[PUBLISHED] = _published(run.op, suites)
    return runs[old], runs[new]


def _published(op: str, suites: tuple[str, ...]) -> Side:
    from gradcheck.engine.change import of_published
    from gradcheck.engine.published import file_of, read_published
    from gradcheck.suite import find_op, load

    suite = load([Path(suite) for suite in suites])
    find_op(suite, op)
    bands = read_published(suite, op)
    if bands is None:
        path = file_of(suite, op)
        why = f"{path} is of other sources than these" if path.is_file() else f"there is no {path}"
        raise UsageError(f"no published bands of {op}: {why}. Make them: gradcheck calibrate --op {op}")
    return of_published(bands)


def _text(found: Change) -> Iterator[str]:
    yield f"{found.old} → {found.new}: {'nothing is worse' if not found.worse else 'worse'}"
    yield from (f"  {text}" for text in found.worse)
    for title, flips in {
        f"of {found.common} verdicts on the same case, changed": [flip for flip in found.flips if not flip.mutant],
        "mutants that end otherwise": [flip for flip in found.flips if flip.mutant],
    }.items():
        rows: list[dict[str, object]] = [{k: v for k, v in asdict(flip).items() if k != "mutant" or v} for flip in flips]
        yield from _section(f"{title}: {len(flips)}", rows)
    moved: list[dict[str, object]] = [
        {
            "kernel": move.kernel,
            "dtype": move.dtype,
            "": move.quantity,
            "metric": move.metric,
            "what": move.what,
            "old": _short(move.old),
            "new": _short(move.new),
            "factor": _short(move.new / move.old if move.old and move.new else None),
        }
        for move in found.moved
    ]
    yield from _section(f"numbers that moved by more than a factor of {found.factor:g}: {len(moved)}", moved)


def _section(title: str, rows: list[dict[str, object]]) -> Iterator[str]:
    yield ""
    yield title
    if rows:
        yield from (f"  {line}" for line in columns(rows[:_SHOWN]).splitlines())
    if len(rows) > _SHOWN:
        yield f"  … and {len(rows) - _SHOWN} more; --json has them all"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
