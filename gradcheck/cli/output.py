"""Writing for people and for pipes: colour, width, aligned columns."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

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


def printable(text: str) -> str:
    """`text` without characters that move the cursor, recolour or reorder: names in a suite may come from strangers."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def coloured(stream: TextIO) -> bool:
    """Whether colour is welcome on this stream: a terminal, and no `NO_COLOR` (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Columns to fill: those of the terminal up to a readable limit, or a fixed number for a file or pipe."""
    return min(shutil.get_terminal_size().columns, WIDEST) if stream.isatty() else PIPE_WIDTH


def columns(rows: Sequence[Mapping[str, object]], limit: int | None = None) -> str:
    """Rows as aligned columns under the names of their keys; a line longer than `limit` is cut, and ends in `…`."""
    if not rows:
        return ""
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    lines = ("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(line if limit is None or len(line) <= limit else line[: limit - 1] + "…" for line in lines)


def _cell(value: object) -> str:
    """A value on one line."""
    words = map(str, value) if isinstance(value, list | tuple) else str(value).split()
    return printable(" ".join(words)) or "–"
