"""`gradcheck replay`: one kernel at one case, seen close."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gradcheck._case import Case
from gradcheck._verdict import CANARY, NULL, ExitCode, Outcome
from gradcheck.cli.output import emit, printable

if TYPE_CHECKING:
    from gradcheck.engine.closeup import Closeup


@click.command("replay", short_help="Compare one kernel at one case, and show where it is off.")
@click.argument("case")
@click.option("--kernel", metavar="NAME|TARGET", required=True, help="A kernel of the op, or `package.module:attr` or `path/file.py:attr`.")
@click.option("--mutant", metavar="NAME", default="", help="A defect to plant first; `canary` and `null` are understood too.")
@click.option("--forward-only", is_flag=True, help="Compare the outputs alone.")
@click.option("--all", "-a", "everything", is_flag=True, help="Details of every output and gradient, not only of those that fail.")
@click.option("--pytest", "as_pytest", is_flag=True, help="Print a pytest function that makes this comparison, and do not make it now.")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Time limit."
)
@click.option("--memory", metavar="GIB", type=click.FloatRange(min=0, min_open=True), default=8.0, show_default=True, help="Memory limit.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(  # noqa: PLR0913 - each is an option
    case: str,
    *,
    kernel: str,
    mutant: str,
    suites: tuple[str, ...],
    forward_only: bool,
    everything: bool,
    as_pytest: bool,
    timeout: float,
    memory: float,
) -> int:
    """Draw CASE again, compare the kernel with the truth once, and show how far off it is, and where.

    CASE is an id such as `gradcheck list cases` and the replay lines of a report have. Exit 0 where the kernel agrees, or the defect is seen; 1
    where it differs; 3 where the defect is not seen at this case.
    """
    if as_pytest:
        emit(pytest_function(case, kernel, mutant=mutant, suites=suites, forward_only=forward_only))
        return ExitCode.OK
    from gradcheck.engine.closeup import closeup
    from gradcheck.testing._told import told

    seen = closeup(case, kernel=kernel, mutant=mutant, suites=suites, forward_only=forward_only, timeout=timeout, memory=memory)
    emit(printable("\n".join(told(seen, everything=everything))))
    return status(seen)


_STATUS = {
    **dict.fromkeys((Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS), ExitCode.OK),
    Outcome.FAILED: ExitCode.WRONG,
    Outcome.CRASHED: ExitCode.WRONG,
    Outcome.UNVIABLE: ExitCode.WRONG,
    Outcome.UNINFORMATIVE: ExitCode.NOTHING,
    Outcome.SURVIVED: ExitCode.SURVIVORS,
}
_OF_MUTANT = {Outcome.CRASHED: ExitCode.INCONCLUSIVE, Outcome.UNVIABLE: ExitCode.ROTTEN}
_OF_CONTROL = {(NULL, Outcome.SURVIVED): ExitCode.OK, (NULL, Outcome.KILLED): ExitCode.ROTTEN, (CANARY, Outcome.SURVIVED): ExitCode.ROTTEN}


def status(seen: Closeup) -> ExitCode:
    """The exit status, as `gradcheck run` would give it for this comparison alone."""
    usual = {**_STATUS, **(_OF_MUTANT if seen.item.mutant else {})}.get(seen.outcome, ExitCode.INCONCLUSIVE)
    return _OF_CONTROL.get((seen.item.mutant, seen.outcome), usual)


def pytest_function(case: str, kernel: str, *, mutant: str = "", suites: Sequence[str] = (), forward_only: bool = False) -> str:
    """A test that passes where the kernel agrees with the truth at `case` or, with a mutant, where the defect is seen there.

    Raises:
        UsageError: `case` is no case.
    """
    op = Case.parse(case).op
    short = kernel.rpartition("/")[2].replace(".py:", ":")
    name = re.sub(r"\W+", "_", f"{mutant.rpartition('/')[2]} in {short}" if mutant else short).strip("_")
    given = [json.dumps(text) for text in ([mutant] if mutant else []) + [kernel, case]]
    given += [f"suites={json.dumps(suites)}"] if suites else []
    given += ["forward_only=True"] if forward_only else []
    claim = "is_seen" if mutant else f"agrees_with_the_truth_of_{op}"
    check = "assert_killed" if mutant else "assert_grads"
    return "\n".join(
        [
            f"from gradcheck.testing import {check}",
            "",
            "",
            "# Files and suites are looked for from the working directory.",
            f"def test_{name}_{claim}():",
            f"    {check}(",
            *(f"        {text}," for text in given),
            "    )",
            "",
        ]
    )
