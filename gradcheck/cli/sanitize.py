"""`gradcheck sanitize`: run a program in which every Metal kernel is checked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError
from gradcheck._files import write_whole
from gradcheck._verdict import ExitCode
from gradcheck.cli.output import emit, printable

if TYPE_CHECKING:
    from gradcheck.metal import Place
    from gradcheck.metal.sanitize import Sanitized
    from gradcheck.metal.sanitize_notes import Kernel, Seen, Summary


@click.command(
    "sanitize",
    short_help="Run a program with every Metal kernel checked, as Valgrind does.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", metavar="-- PROGRAM [ARG]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--schedule",
    type=click.Choice(["in-order", "lock-step", "reverse", "random"]),
    default="in-order",
    show_default=True,
    help="In which order the simdgroups of a threadgroup go on.",
)
@click.option("--seed", type=click.IntRange(min=0, max=(1 << 32) - 1), default=0, show_default=True, help="Of the random schedule.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="What one launch may take.",
)
@click.option("--gpu/--no-gpu", default=True, show_default=True, help="Tell the program that there is a GPU, if it asks MLX.")
@click.option("--json", "json_file", metavar="FILE", help="Write what was found there as JSON; `-` is stdout, after the program's own.")
def program(command: tuple[str, ...], *, schedule: str, seed: int, timeout: float, gpu: bool, json_file: str | None) -> int:
    """Run a Python program with each of its mx.fast.metal_kernel calls on the checked executor of this CPU, and report on stderr what was found.

    PROGRAM is what you would type: `python train.py`, `pytest tests`; `-m pytest` and `train.py` are for this Python. Its child processes are
    checked too.

    Exit 1 if a kernel did what it may not, crashed or hung; 6 if one could not be run here; 5 if none was launched; else the program's own
    status.
    """
    from gradcheck.metal.errors import NoCompilerError
    from gradcheck.metal.sanitize import sanitize
    from gradcheck.metal.toolchain import find

    try:
        find()
    except NoCompilerError as error:
        raise UsageError(str(error)) from error
    settings = {
        "GRADCHECK_METAL": "checked",
        "GRADCHECK_METAL_SCHEDULE": schedule,
        "GRADCHECK_METAL_SEED": str(seed),
        "GRADCHECK_METAL_SECONDS": str(timeout),
    }
    try:
        found = sanitize(command, settings, gpu=gpu)
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be run: {error.strerror}. Write what you would type: gradcheck sanitize -- python FILE"
        ) from error
    code = _exit_code(found)
    print(printable("\n".join(_text(found, code))), file=sys.stderr)
    if json_file is not None:
        text = json.dumps(_json(found, code, schedule, seed), indent=1) + "\n"
        emit(text) if json_file == "-" else write_whole(Path(json_file), text.encode())
    return code


command = program


def _exit_code(found: Sanitized) -> int:
    if found.wrong:
        return ExitCode.WRONG
    if found.failures:
        return ExitCode.INCONCLUSIVE
    return found.status if found.launches else ExitCode.NOTHING


def _text(found: Sanitized, code: int) -> Iterator[str]:
    for summary in found.kernels:
        if summary.findings or summary.deaths or summary.failures:
            yield from _kernel_text(summary)
            yield ""
    for stranger in found.strangers:
        yield f"not watched: {stranger} has no gradcheck. Install it there, or run the program with {sys.executable}."
    if not found.launches:
        yield f"No Metal kernel was launched: {_why_none(found)}."
    yield (
        f"gradcheck: {_many(found.wrong, 'finding')} in {_many(sum(bool(k.wrong) for k in found.kernels), 'kernel')} of "
        f"{len(found.kernels)}, {_many(found.launches, 'launch')}, on metal-cpu; "
        f"{Path(found.command[0]).name} ended with status {found.status}; exit {int(code)}"
    )


def _kernel_text(summary: Summary) -> Iterator[str]:
    kernel = summary.kernel
    yield f"{kernel.name}, made at {_near(kernel.made_at)}: {_many(summary.launches, 'launch')}"
    for seen in summary.findings:
        yield from (f"  {line}" for line in _finding_text(seen, kernel))
    for kind, ends in (("died", summary.deaths), ("could not be run", summary.failures)):
        for why, times in ends:
            yield f"  {kind}{f' ({times} times)' if times > 1 else ''}:"
            yield from (f"    {line}" for line in why.splitlines())


def _finding_text(seen: Seen, kernel: Kernel) -> Iterator[str]:
    finding = seen.example
    yield f"{'benign: ' if finding.benign else ''}{finding.kind}: {finding.message} ({_many(seen.count, 'time')} in {_many(seen.launches, 'launch')})"
    for i, place in enumerate(finding.places):
        yield f"  {'and ' if i else ''}{place}{_in_file(place, kernel)}"
        yield from (f"  {line}" for line in place.quoted.splitlines())


def _in_file(place: Place, kernel: Kernel) -> str:
    line = _line(place, kernel)
    return f" ({Path(kernel.made_at.rpartition(':')[0]).name}:{line})" if line else ""


def _line(place: Place, kernel: Kernel) -> int:
    """The line of the Python file in which the kernel's text stands, or 0."""
    first = dict(kernel.lines).get(place.file, 0)
    return first and first + place.line - 1


def _why_none(found: Sanitized) -> str:
    if found.failures:
        return "none could be run"
    if found.watched:
        return "the program imported MLX, and called no kernel that it made after that"
    return "no Python process that could be watched imported MLX (`python -I`, `-E` and an empty environment keep gradcheck out)"


def _near(made_at: str) -> str:
    """A path from here where it is below this folder, else the whole."""
    here = f"{Path.cwd()}{os.sep}"
    return made_at.removeprefix(here)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 'es' if what.endswith('ch') else 's'}"


def _json(found: Sanitized, code: int, schedule: str, seed: int) -> dict[str, object]:
    return {
        "command": list(found.command),
        "status": found.status,
        "exit_code": int(code),
        "place": "metal-cpu",
        "schedule": schedule,
        "seed": seed,
        "launches": found.launches,
        "findings": found.wrong,
        "not_watched": list(found.strangers),
        "kernels": [
            {
                "name": summary.kernel.name,
                "made_at": summary.kernel.made_at,
                "launches": summary.launches,
                "findings": [_json_finding(seen, summary.kernel) for seen in summary.findings],
                "died": [{"why": why, "count": times} for why, times in summary.deaths],
                "could_not_be_run": [{"why": why, "count": times} for why, times in summary.failures],
                "warnings": list(summary.warnings),
            }
            for summary in found.kernels
        ],
    }


def _json_finding(seen: Seen, kernel: Kernel) -> dict[str, object]:
    finding = seen.example
    return {
        "kind": finding.kind,
        "benign": finding.benign,
        "message": finding.message,
        "places": [
            {
                "file": place.file,
                "line": place.line,
                "column": place.column,
                "text": place.text,
                "line_in_python": _line(place, kernel) or None,
            }
            for place in finding.places
        ],
        "buffer": finding.buffer,
        "offset": finding.offset,
        "threadgroup": finding.threadgroup,
        "thread": finding.thread,
        "count": seen.count,
        "launches": seen.launches,
    }
