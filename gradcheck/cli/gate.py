"""`gradcheck gate`: run what a pull request needs, and decide."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode
from gradcheck.cli import shared
from gradcheck.cli.output import coloured, emit_json, printable, width
from gradcheck.cli.progress import progress
from gradcheck.cli.run import FOLDER, render

if TYPE_CHECKING:
    from gradcheck.engine.gate import Gated
    from gradcheck.suite import Suite

NEEDS = {"markdown": "--markdown", "sarif": "--sarif", "junit": "--junit"}


@click.command("gate", short_help="Run what a pull request needs, and decide.")
@click.option("--base", metavar="REF", default="", help="The branch it goes to; what is compared is where the two histories parted.")
@click.option("--in-diff", metavar="FILE", type=click.Path(path_type=Path), help="A unified diff that led to this tree, instead of --base.")
@click.option(
    "--fail-under",
    metavar="DECADES",
    callback=shared.finite,
    type=click.FloatRange(min=0),
    help="Least separation of noise and defect of any gradient.",
)
@click.option("--max-survivors", metavar="N", type=click.IntRange(min=0), help="How many mutants may survive.  [default: 0]")
@click.option(
    "--shrink",
    metavar="FACTOR",
    callback=shared.finite,
    type=click.FloatRange(min=1),
    help="By how much a separation may be below the base's.  [default: 2]",
)
@click.option("--require-device", "devices", metavar="NAME", multiple=True, help="A device this machine must have: metal; may be repeated.")
@click.option(
    "--time-budget",
    metavar="SECONDS",
    callback=shared.finite,
    type=click.FloatRange(min=0, min_open=True),
    help="What does not fit is incomplete.",
)
@click.option("--markdown", metavar="FILE", type=click.Path(path_type=Path), help="Write a pull-request comment.")
@click.option("--sarif", metavar="FILE", type=click.Path(path_type=Path), help="Write SARIF 2.1.0, for code scanning.")
@click.option("--junit", metavar="FILE", type=click.Path(path_type=Path), help="Write JUnit XML.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout; everything for people goes to stderr.")
@shared.jobs
@shared.timeout
@shared.memory
@shared.suites
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    base: str,
    in_diff: Path | None,
    fail_under: float | None,
    max_survivors: int | None,
    shrink: float | None,
    devices: tuple[str, ...],
    time_budget: float | None,
    markdown: Path | None,
    sarif: Path | None,
    junit: Path | None,
    *,
    as_json: bool,
    jobs: int,
    timeout: float,
    memory: float,
    suites: tuple[str, ...],
) -> int:
    """Run the ops whose kernels, references or mutants a change touches, with all mutants, judged by the bands of what it goes to.

    Without --base and --in-diff all ops are run. Exit 0 where nothing is touched. GRADCHECK_FAIL_UNDER, GRADCHECK_MAX_SURVIVORS,
    GRADCHECK_SHRINK and GRADCHECK_REQUIRE_DEVICE tighten what is asked for, and never loosen it.
    """
    from gradcheck.engine.gate import Asked, gate
    from gradcheck.suite import Gate, load

    wanted = {name: path for name, path in {"markdown": markdown, "sarif": sarif, "junit": junit}.items() if path is not None}
    for name, path in wanted.items():
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{NEEDS[name]} {path}: there is no folder {path.absolute().parent}; make it first")
    asked = Asked(base, in_diff, Gate(fail_under, max_survivors, shrink, devices, time_budget), suites, jobs, timeout, memory)
    try:
        with progress() as tell:
            found = gate(asked, folder=FOLDER, tell=tell)
    except KeyboardInterrupt:
        click.echo("\ninterrupted; the gate has decided nothing", err=True)
        return ExitCode.INTERRUPTED
    _tell(found, load([Path(suite) for suite in suites]), wanted, as_json=as_json)
    return found.exit_code


def _tell(found: Gated, suite: Suite, wanted: Mapping[str, Path], *, as_json: bool) -> None:
    """Everywhere that was asked for; on GitHub also as annotations and as the summary of the step."""
    from gradcheck.cli import gate_files, gate_text
    from gradcheck.engine.places import places

    def told(name: str) -> Callable[..., str]:
        return lambda run, **options: render(suite.reports[name], run, places=places(run, suite, found.root), **options)

    stream = sys.stderr if as_json else sys.stdout
    shown = [told("terminal")(run, width=width(stream), colour=coloured(stream)) for run in found.runs]
    print("\n".join([*shown, *map(printable, gate_text.lines(found))]), file=stream, flush=True)
    logs = [told("sarif")(run) for run in found.runs]
    text = gate_text.markdown(found, lambda run, limit: told("markdown")(run, limit=limit))
    made = {
        "markdown": lambda: text,
        "sarif": lambda: gate_files.sarif(logs),
        "junit": lambda: gate_files.junit([told("junit")(run) for run in found.runs], found),
    }
    for name, path in wanted.items():
        try:
            path.write_text(made[name](), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}; name a file that can be written") from error
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in gate_files.marks(found, logs):
            print(line, file=stream, flush=True)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(text)
    if as_json:
        emit_json(gate_files.plain(found, [told("json")(run) for run in found.runs]))
