"""Progress on stderr: three bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradcheck.cli.output import coloured, printable

if TYPE_CHECKING:
    from rich.progress import TaskID

    from gradcheck.engine.progress import Progress

Tell = Callable[["Progress"], None]

EVERY = 10.0  # seconds between two lines about one stage, where there are no bars


@contextmanager
def progress() -> Iterator[Tell]:
    """What a run is told to call. Everything goes to stderr, so that stdout is the result alone."""
    if sys.stderr.isatty():
        with bars() as tell:
            yield tell
    else:
        yield lines()


def lines(clock: Callable[[], float] = time.monotonic) -> Tell:
    """A line when a stage begins, when it ends, and every `EVERY` seconds in between."""
    due: dict[str, float] = {}  # when the next line about a stage is due

    def tell(now: Progress) -> None:
        if now.note:
            print(printable(now.note), file=sys.stderr, flush=True)
        if now.total == 0:  # nothing to count
            if now.label:
                print(f"{now.stage}: {_label(now)}", file=sys.stderr, flush=True)
            return
        ended = now.done >= now.total
        if clock() >= due.get(now.stage, 0.0) or (ended and due[now.stage] < math.inf):
            due[now.stage] = math.inf if ended else clock() + EVERY
            print(f"{now.stage} {now.done}/{now.total} {_label(now)}".rstrip(), file=sys.stderr, flush=True)

    return tell


@contextmanager
def bars() -> Iterator[Tell]:
    """One bar for each stage that has work."""
    from rich import progress as rich_progress
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(stderr=True, no_color=not coloured(sys.stderr), highlight=False, markup=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[label]}", style="dim", markup=False),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def tell(now: Progress) -> None:
            if now.note:
                shown.console.print(Text(printable(now.note)))
            if now.total == 0:  # nothing to count
                return
            if now.stage not in tasks:
                tasks[now.stage] = shown.add_task(f"{now.stage:<8}", total=now.total, label="")
            shown.update(tasks[now.stage], completed=now.done, total=now.total, label=_label(now))

        yield tell


def _label(now: Progress) -> str:
    """The label on one line."""
    return printable(" ".join(now.label.split()))
