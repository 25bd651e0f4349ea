"""`gradcheck report`: tell a finished run once more, in any of the suite's ways."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError, unknown
from gradcheck._verdict import ExitCode
from gradcheck.cli.output import coloured, columns, emit, width
from gradcheck.cli.run import FOLDER, render, takes

if TYPE_CHECKING:
    from gradcheck._verdict import Run


@click.command("report", short_help="Tell a finished run once more, in any format of the suite.")
@click.argument("run", required=False)
@click.option("--format", "name", metavar="NAME", default="terminal", show_default=True, help="A report of the suite; --list names them.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it to this file instead of stdout.")
@click.option("--base", metavar="ID", help="A run to compare with, for a report that tells what changed (markdown).")
@click.option(
    "--limit", metavar="BYTES", type=click.IntRange(min=1000), help="Leave out what exceeds this, for a report that can (markdown)."
)
@click.option("--list", "as_list", is_flag=True, help="Name the reports there are.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(
    run: str | None, *, name: str, output: Path | None, base: str | None, limit: int | None, as_list: bool, suites: tuple[str, ...]
) -> int:
    """Render RUN, an id that `gradcheck list runs` has; without it, the newest finished run.

    Exit 0 whatever a finished run says; 6 where it is unfinished, of which there is what it has so far.
    """
    from gradcheck.engine.finished import is_unfinished, read_run
    from gradcheck.engine.places import places
    from gradcheck.suite import load

    suite = load([Path(path) for path in suites])
    if as_list:
        rows = [{"report": each.name, "suffix": each.suffix, "file": suite.files[each.name]} for each in suite.reports.values()]
        emit(columns(rows) or "There are no reports.")
        return ExitCode.OK
    if name not in suite.reports:
        raise unknown("report", name, suite.reports)
    unfinished = run is not None and is_unfinished(FOLDER, run)
    finished = _so_far(run) if run is not None and unfinished else read_run(FOLDER, run)
    code = ExitCode.INCONCLUSIVE if unfinished and finished.done < finished.planned else ExitCode.OK
    asked: dict[str, object] = {} if limit is None else {"limit": limit}
    if base is not None:
        asked["base"] = read_run(FOLDER, base)
    if untaken := [f"--{option}" for option in asked if not takes(suite.reports[name], option)]:
        raise UsageError(f"report {name} knows no {' and no '.join(untaken)}; leave it out, or choose another --format (markdown has both)")
    options: dict[str, object] = {"places": places(finished, suite, Path.cwd()), **asked}
    if output is None:
        options |= {"width": width(sys.stdout), "colour": coloured(sys.stdout)}
    try:
        text = render(suite.reports[name], finished, **options)
    except Exception as error:
        raise UsageError(f"report {name} ({suite.files[name]}) fails on run {finished.id}: {type(error).__name__}: {error}") from error
    if output is None:
        emit(text)
        return code
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}; name a file in a folder that exists") from error
    click.echo(f"wrote {output}: run {finished.id} as {name}", err=True)
    return code


def _so_far(run: str) -> Run:
    """An unfinished run, judged as if it had been stopped now."""
    from gradcheck.engine.merge import so_far

    return so_far(FOLDER, run, lambda _: None)
