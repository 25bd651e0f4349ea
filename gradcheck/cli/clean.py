"""`gradcheck clean`: take old runs away."""

from __future__ import annotations

import click

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode
from gradcheck._words import count
from gradcheck.cli.output import emit
from gradcheck.cli.run import FOLDER
from gradcheck.cli.shared import finite

UNITS = ("B", "KiB", "MiB", "GiB")


def bytes_text(size: float) -> str:
    """A number of bytes for people."""
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


@click.command("clean", short_help="Take old runs away.")
@click.option("--keep", metavar="N", type=click.IntRange(min=0), help="The N newest finished runs stay.")
@click.option(
    "--older-than", metavar="DAYS", type=click.FloatRange(min=0), callback=finite, help="Runs that began less than DAYS ago stay."
)
@click.option("--unfinished", is_flag=True, help="Runs that can still be resumed may go too; --keep does not count them.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and take nothing away.")
def command(*, keep: int | None, older_than: float | None, unfinished: bool, dry_run: bool) -> int:
    """Take runs of this folder away that neither --keep nor --older-than holds back.

    A run that a process works on stays, and one that can be resumed unless --unfinished is given. Caches are left as they are.
    """
    from gradcheck.engine.prune import old_runs, remove

    if keep is None and older_than is None:
        raise UsageError("nothing says which runs may go: give --keep N, --older-than DAYS or both; --dry-run shows what would")
    old = old_runs(FOLDER, keep=keep, older_than=older_than, unfinished=unfinished)
    gone = old if dry_run else remove(old)
    rows = [f"{run.path.name}  {bytes_text(run.size)}{'' if run.finished else '  unfinished'}" for run in gone]
    what = "would be freed" if dry_run else "freed"
    emit("\n".join([*rows, f"{count(len(gone), 'run')}, {bytes_text(sum(run.size for run in gone))} {what}"]))
    if len(gone) < len(old):
        left = [run.path.name for run in old if run not in gone]
        raise UsageError(f"{len(left)} of them could not be taken away, first {left[0]}: it is in use, or its folder cannot be written")
    return ExitCode.OK
