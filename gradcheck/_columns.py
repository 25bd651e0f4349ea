"""Rows as aligned columns of plain text, in which a stranger's words move nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def printable(text: str) -> str:
    """`text` without characters that move the cursor, recolour or reorder: names in a suite may come from strangers."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


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
