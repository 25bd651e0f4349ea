"""`gradcheck lint`: what is rotten in the suites, found without running a kernel."""

from __future__ import annotations

from pathlib import Path

import click

from gradcheck._verdict import ExitCode
from gradcheck.cli.output import emit, printable


@click.command("lint", short_help="Find what is rotten in the suites, without running a kernel.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(suites: tuple[str, ...]) -> int:
    """Find stale or ambiguous mutants, missing files and declarations that break a rule. Exit 4 if there are any, 5 without ops."""
    from gradcheck.suite import lint, load

    suite = load([Path(path) for path in suites])
    problems = lint(suite)
    for problem in problems:
        emit(printable(f"{problem.kind}: {problem}"))
    emit(f"problems: {len(problems)}; looked at: {len(suite.ops)} ops, {len(suite.mutants)} mutants, {len(suite.reports)} reports")
    if problems:
        return ExitCode.ROTTEN
    return ExitCode.OK if suite.ops else ExitCode.NOTHING
