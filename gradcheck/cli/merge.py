"""`gradcheck merge`: the parts of a plan, run on several machines, as one run."""

from __future__ import annotations

import click

from gradcheck.cli.progress import progress
from gradcheck.cli.run import FOLDER, show

ALLOW = ("plans", "seeds", "sources", "versions", "results")  # engine.merge.DIFFERENCES, which `--help` need not import


@click.command("merge", short_help="Put the shards of a run together.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--allow", metavar="KIND", type=click.Choice(ALLOW), multiple=True,
    help=f"Merge runs of different {', '.join(ALLOW[:-1])} or {ALLOW[-1]} all the same; may be repeated.",
)  # fmt: skip
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="The run as JSON on stdout; everything for people goes to stderr.")
def command(runs: tuple[str, ...], *, allow: tuple[str, ...], suites: tuple[str, ...], as_json: bool) -> int:
    """Put the parts of one plan together: ids of runs, or folders that are one or have some below them.

    The result is a run of its own, judged as one that did the whole plan. Exit 6 where something is missing.
    """
    from gradcheck.engine.merge import find_runs, merge

    with progress() as tell:
        finished = merge(find_runs(FOLDER, runs), folder=FOLDER, tell=tell, suites=suites, allow=allow)
    show(finished, suites, as_json=as_json)
    return finished.exit_code
