"""`gradcheck doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from gradcheck._verdict import ExitCode
from gradcheck.cli.output import emit, emit_json, printable

_MARKS = {"ok": "✓", "optional": "–", "missing": "✗"}


@click.command("doctor", short_help="Say what this machine can run, and what is missing.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(suites: tuple[str, ...], *, as_json: bool) -> int:
    """Look at Python, MLX and its device, the kernels, the cache and the published bands, with the command for whatever is missing.

    Exit 0 if every op of the built-in suite can be checked here, else 6.
    """
    from gradcheck.engine.machine import examine

    found = examine(suites, Path.cwd())
    missing = [finding.name for finding in found if finding.state == "missing"]
    if as_json:
        emit_json([asdict(finding) for finding in found])
    else:
        width = max(len(finding.name) for finding in found)
        for finding in found:
            emit(printable(f"{_MARKS[finding.state]} {finding.name:<{width}}  {finding.what}"))
            if finding.mend:
                emit(printable(f"  {'':<{width}}  → {finding.mend}"))
        emit(
            f"\nThe built-in suite cannot be checked here: {', '.join(missing)}."
            if missing
            else "\nThe built-in suite can be checked here."
        )
    return ExitCode.INCONCLUSIVE if missing else ExitCode.OK
