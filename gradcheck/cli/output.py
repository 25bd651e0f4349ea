"""Writing for people and for pipes: colour, width, aligned columns."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TextIO

from gradcheck._columns import columns, printable

__all__ = ["PIPE_WIDTH", "WIDEST", "coloured", "columns", "emit", "emit_json", "printable", "width"]

PIPE_WIDTH, WIDEST = 110, 120


def emit(text: str) -> None:
    """Write to stdout. A reader that has gone (`| head`) does not change the exit status."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's own flush at exit fails, with a status of its own


def emit_json(value: object) -> None:
    """Write a value to stdout as JSON."""
    emit(json.dumps(value, indent=1, allow_nan=False))


def coloured(stream: TextIO) -> bool:
    """Whether colour is welcome on this stream: a terminal, and no `NO_COLOR` (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Columns to fill: those of the terminal up to a readable limit, or a fixed number for a file or pipe."""
    return min(shutil.get_terminal_size().columns, WIDEST) if stream.isatty() else PIPE_WIDTH
