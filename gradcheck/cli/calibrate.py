"""`gradcheck calibrate`: measure the bands of an op over many seeds, and write them where `run` finds them."""

from __future__ import annotations

from pathlib import Path

import click

from gradcheck._verdict import ExitCode
from gradcheck.cli.progress import progress
from gradcheck.cli.run import FOLDER


def _seeds(_: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """`0,1,5-7` as numbers."""
    out: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.BadParameter(f"{part!r} is neither a seed nor a range like 2-4", param=parameter)
        out += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(out))


@click.command("calibrate", short_help="Measure the bands of an op and publish them.")
@click.option("--op", metavar="NAME", required=True, help="The op; `gradcheck list` names them.")
@click.option("--kernel", "kernels", metavar="NAME", multiple=True, help="Only these kernels of the op.")
@click.option(
    "--seeds", metavar="LIST", default="0-2", show_default=True, callback=_seeds, help="Seeds on which noise and defects are found."
)
@click.option(
    "--held", metavar="LIST", default="10-11", show_default=True, callback=_seeds, help="Seeds on which the bands are then tried."
)
@click.option("--mutants", metavar="all|none|NAME,…", default="all", show_default=True, help="Which defects to plant.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=0), default=0, help="Workers; without it: one per core.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(
    op: str, kernels: tuple[str, ...], seeds: tuple[int, ...], held: tuple[int, ...], mutants: str, jobs: int, suites: tuple[str, ...]
) -> int:
    """Measure noise and defects on --seeds, try the bands on --held, and write reports/published/OP.json and the page beside it."""
    from gradcheck.engine.calibrate import calibrate
    from gradcheck.engine.plan import Request
    from gradcheck.engine.published import write_page, write_published
    from gradcheck.suite import load

    request = Request(op, kernels=kernels, mutants=mutants, jobs=jobs, suites=suites)
    with progress() as tell:
        made = calibrate(op, seeds=seeds, held=held, request=request, folder=FOLDER, tell=tell)
    path = write_published(load([Path(suite) for suite in suites]), made)
    held_out = made.held
    click.echo(f"wrote {path} and {write_page(path.parent)}")
    click.echo(
        f"k = {made.factor:g}: the largest error of a clean kernel is {made.ratio:.3g} times the model noise, over seeds {list(made.seeds)}"
    )
    click.echo(
        f"held out, seeds {list(held_out.seeds)}: {held_out.alarms} in {held_out.clean} clean runs "
        f"(largest error {held_out.worst:.3g} of its tolerance), {held_out.missed} of {held_out.rows} rows of the kill table missed"
    )
    return ExitCode.OK if not held_out.false_alarms and not held_out.missed else ExitCode.INCONCLUSIVE
