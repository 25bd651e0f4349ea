"""`gradcheck run`: check kernels against the truth, and mutants against the check."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck._verdict import ExitCode
from gradcheck.cli import shared
from gradcheck.cli.output import coloured, emit, width
from gradcheck.cli.progress import progress
from gradcheck.cli.selfcheck import SELF_ONLY, answer, refuse
from gradcheck.cli.signals import stoppable

if TYPE_CHECKING:
    from gradcheck._report import Report
    from gradcheck._verdict import Run

FOLDER = Path(".gradcheck")
WITH_RESUME = ("resume", "as_json")  # what may be said beside `--resume`: all else is in the plan of the run


def _names(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names of `--dtype f32,f16 --dtype bf16`. An option that is given but names nothing is a slip, not a wish for everything."""
    names = tuple(name for text in value for name in (part.strip() for part in text.split(",")) if name)
    if value and not names:
        raise click.BadParameter(f"{','.join(value)!r} names nothing; leave the option out to have all", param=parameter)
    return names


def _said(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """An option that is given and empty is a variable that was not set, not a wish for the whole."""
    if not value and parameter.name and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT:
        raise click.BadParameter("it is given, but empty; leave the option out or say what it is to be", param=parameter)
    return value


@click.command("run", short_help="Check kernels against the truth, and mutants against the check.")
@click.option("--op", metavar="NAME", help="The op to check; `gradcheck list` names them.")
@click.option(
    "--kernel",
    "kernels",
    metavar="NAME|TARGET",
    multiple=True,
    help="A kernel of the op, or `package.module:attr` or `path/file.py:attr`; may be repeated. Without it: all that can run here.",
)
@click.option("--mutants", metavar="all|none|NAME,…", default="none", show_default=True, help="Which defects to plant.")
@click.option("--checks", metavar="all|none|NAME,…", default="all", show_default=True, help="Which checks that need no tolerance to make.")
@click.option("--dims", metavar="TEXT", default="", help="Fix sizes and branch, as in `T=65,H=4,mamba2`.")
@click.option(
    "--dtype", "dtypes", metavar="f32,…", multiple=True, callback=_names, help="f32, f16, bf16; without it: all the kernel claims."
)
@click.option("--regime", "regimes", metavar="NAME,…", multiple=True, callback=_names, help="Only these regimes of the inputs.")
@click.option("--cases", metavar="N|ID", multiple=True, help="So many cases of the grid, or this very case; an ID may be repeated.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True, help="First seed of the inputs.")
@shared.jobs
@shared.timeout
@shared.memory
@shared.suites
@click.option("--matrix", is_flag=True, help="Run every mutant at every case, instead of until it has been seen.")
@click.option("--forward-only", is_flag=True, help="Check the outputs alone; the headline says that no gradient was checked.")
@click.option(
    "--oracle",
    metavar="costate|fast|self",
    type=click.Choice(["costate", "fast", "self"]),
    default="costate",
    show_default=True,
    help="What to compare with: the float64 truth (fast: the same compiled, where it agrees) or, as ggml's tests do, float32 "
    "differences of the kernel's own forward.",
)
@click.option("--stencil", metavar="2|4", type=int, default=None, help="Points of a difference, with --oracle self.")
@click.option("--step", metavar="H", type=float, default=None, help="Step of a difference, with --oracle self.")
@click.option("--seeds", metavar="N", type=click.IntRange(min=1), default=None, help="How many seeds, with --oracle self.  [default: 20]")
@click.option(
    "--engine",
    metavar="local|dask",
    type=click.Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Who does the work: this machine, or a dask cluster (pip install 'gradcheck[cluster]').",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    default="",
    callback=_said,
    help="Of the dask cluster, `tcp://host:8786`; without it: one on this machine.",
)
@click.option(
    "--shard", metavar="K/N", default="", callback=_said, help="Only the K-th of N parts of the plan; `gradcheck merge` puts them together."
)
@click.option("--json", "as_json", is_flag=True, help="The run as JSON on stdout; everything for people goes to stderr.")
@click.option(
    "--resume", metavar="[ID]", is_flag=False, flag_value="", default=None, help="Go on with a run; without ID: the newest unfinished."
)
@click.pass_context
def command(context: click.Context, /, **options: object) -> int:
    """Check the gradients of an op's kernels and, with --mutants, whether the check would notice known defects."""
    resume, as_json, suites = options.pop("resume"), bool(options.pop("as_json")), options["suites"]
    assert isinstance(suites, tuple)
    if resume is None:
        refuse(context, str(options["oracle"]))
        if options["oracle"] == "self" and options["op"]:
            return answer(context, options, folder=FOLDER, as_json=as_json)
    for name in SELF_ONLY:
        options.pop(name)
    try:
        with stoppable(), progress() as tell:
            if resume is not None:
                _refuse_beside_resume(context)
                from gradcheck.engine.run import resume as go_on

                finished = go_on(str(resume) or None, folder=FOLDER, tell=tell)
            else:
                if options["scheduler"] and options["engine"] != "dask":
                    raise click.UsageError("--scheduler is the address of a dask cluster, so it needs --engine dask.", context)
                if not options["op"]:
                    raise click.UsageError("Missing option '--op'. `gradcheck list` names the ops.", context)
                from gradcheck.engine.plan import Request
                from gradcheck.engine.run import run

                finished = run(Request(**options), folder=FOLDER, tell=tell)  # type: ignore[arg-type]  # click has checked the types
    except KeyboardInterrupt:
        click.echo("\ninterrupted; what is done is kept. Go on with: gradcheck run --resume", err=True)
        return ExitCode.INTERRUPTED
    show(finished, suites, as_json=as_json)
    return finished.exit_code


def show(finished: Run, suites: Sequence[str], *, as_json: bool) -> None:
    """The report for people, on stdout or, where that is for JSON, on stderr."""
    from gradcheck.suite import load

    reports = load([Path(suite) for suite in suites]).reports
    stream = sys.stderr if as_json else sys.stdout
    text = render(reports["terminal"], finished, width=width(stream), colour=coloured(stream))
    if as_json:
        print(text, file=sys.stderr)
        emit(reports["json"].render(finished))
    else:
        emit(text)


def render(report: Report, finished: Run, **options: object) -> str:
    """A report with those of the options that it takes: one in a suite may know neither width nor colour."""
    function: Callable[..., str] = report.render
    return function(finished, **{name: value for name, value in options.items() if takes(report, name)})


def takes(report: Report, option: str) -> bool:
    """Whether a report can be told this."""
    return option in inspect.signature(report.render).parameters


def _refuse_beside_resume(context: click.Context) -> None:
    """A resumed run has its plan; an option that would be ignored is an error."""
    given = [
        param.opts[0]
        for param in context.command.params
        if param.name and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE and param.name not in WITH_RESUME
    ]
    if given:
        raise click.UsageError(f"--resume goes on with the plan of a run, so it cannot be combined with {', '.join(given)}.", context)
