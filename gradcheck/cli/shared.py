"""Options that several verbs have, said once."""

from __future__ import annotations

import math

import click


def finite(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """A limit that is a number, if one is given."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no limit; give a finite number", param=parameter)
    return value


jobs = click.option("--jobs", metavar="N", type=click.IntRange(min=0), default=0, help="Workers; without it: one per core.")
timeout = click.option(
    "--timeout",
    callback=finite,
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time limit for one case.",
)
memory = click.option(
    "--memory",
    callback=finite,
    metavar="GIB",
    type=click.FloatRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    help="Memory limit for one worker.",
)
suites = click.option(
    "--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated."
)
