"""`gradcheck cache`: what the caches hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode
from gradcheck.cli.clean import bytes_text
from gradcheck.cli.output import columns, emit
from gradcheck.cli.shared import finite

if TYPE_CHECKING:
    from gradcheck.engine.caches import Cache


@click.command("cache", short_help="Show, check or clear the caches.")
@click.argument("what", type=click.Choice(["show", "verify", "clear"]))
@click.argument("names", metavar="[truth|metal|lanes]...", nargs=-1)
@click.option(
    "--older-than", metavar="DAYS", type=click.FloatRange(min=0), callback=finite, help="Clear only what was written before that."
)
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(what: str, *, names: tuple[str, ...], older_than: float | None, suites: tuple[str, ...]) -> int:
    """Show how much the caches hold, verify their checksums (exit 6 if a file is damaged), or clear them; all, or those named.

    truth: what the oracles have answered. metal: kernels compiled for this CPU. lanes: compiled steps of ops. Whatever is missing or
    damaged is made anew when it is needed.
    """
    from gradcheck.engine.caches import caches, chosen
    from gradcheck.suite import load

    if older_than is not None and what != "clear":
        raise UsageError(f"--older-than {older_than:g} is for `gradcheck cache clear`: leave it out")
    picked = chosen(caches(load([Path(path) for path in suites])), names)
    if what == "show":
        emit(columns([_row(one) for one in picked]))
        return ExitCode.OK
    if what == "clear":
        emit("\n".join(_cleared(one, older_than) for one in picked))
        return ExitCode.OK
    said = [_verified(one) for one in picked]
    emit("\n".join(line for lines, _ in said for line in lines))
    return ExitCode.INCONCLUSIVE if any(damaged for _, damaged in said) else ExitCode.OK


def _row(one: Cache) -> dict[str, object]:
    from gradcheck.engine.caches import sizes

    found = sizes(one.files())
    return {"cache": one.name, "files": f"{len(found):,}", "size": bytes_text(sum(found.values())), "folder": [*map(str, one.folders)]}


def _cleared(one: Cache, older_than: float | None) -> str:
    from gradcheck.engine.caches import clear

    gone = clear(one, older_than)
    return f"{one.name}: {len(gone):,} files, {bytes_text(sum(gone.values()))} freed"


def _verified(one: Cache) -> tuple[list[str], int]:
    """(what to say, how many files are damaged)."""
    from gradcheck.engine.caches import verify

    right, silent, damaged = verify(one)
    rest = f", {silent:,} have no checksum" if silent else ""
    return [*damaged, f"{one.name}: {right:,} files are whole, {len(damaged):,} damaged{rest}"], len(damaged)
