"""`gradcheck run --oracle self`: its options, and its report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from gradcheck._errors import UsageError
from gradcheck.cli.output import emit, emit_json
from gradcheck.cli.progress import progress

SELF_ONLY = frozenset({"stencil", "step", "seeds"})
SERVES = frozenset({"op", "kernels", "mutants", "dims", "regimes", "seed", "jobs", "timeout", "memory", "suites", "as_json", "oracle"})
"""Options of `run` that mean something with `--oracle self`. The others choose among cases of the grid, or judge by the truth."""

PASSED_ON = ("op", "kernels", "dims", "seed", "jobs", "timeout", "memory", "suites", "stencil", "step")


def refuse(context: click.Context, oracle: str) -> None:
    """Refuse by name the options that this oracle would ignore."""
    stray = [
        param.opts[0]
        for param in context.command.params
        if param.name
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        and (param.name not in SERVES | SELF_ONLY if oracle == "self" else param.name in SELF_ONLY)
    ]
    if stray and oracle == "self":
        raise click.UsageError(
            f"--oracle self makes float32 differences at one shape and regime and cannot be combined with {', '.join(stray)}.", context
        )
    if stray:
        raise click.UsageError(f"{', '.join(stray)}: only with --oracle self; the oracle {oracle} chooses its own steps.", context)


def answer(context: click.Context, options: Mapping[str, object], *, folder: Path, as_json: bool) -> int:
    """Do what the command line asks, print it, and return the exit status."""
    from gradcheck.cli.selftable import table
    from gradcheck.engine.selfcheck import SelfRequest, self_check

    taken = {name: options[name] for name in PASSED_ON}
    regimes = options["regimes"]
    assert isinstance(regimes, tuple)
    if len(regimes) > 1:
        raise UsageError(f"--oracle self draws its inputs from one regime, not from {', '.join(regimes)}: name one of them")
    if context.get_parameter_source("mutants") is ParameterSource.COMMANDLINE:
        taken["mutants"] = options["mutants"]
    if options["seeds"] is not None:
        taken["seeds"] = options["seeds"]
    with progress() as tell:
        found = self_check(SelfRequest(regime="".join(regimes), **taken), folder=folder, tell=tell)  # type: ignore[arg-type]  # click has checked the types
    text = table(found)
    if as_json:
        import msgspec

        print(text, file=sys.stderr)
        emit_json(msgspec.to_builtins(found))
    else:
        emit(text)
    return found.exit_code
