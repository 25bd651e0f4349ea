"""Changes to a text that keep its lines, and the way back from a place in the new text to the old one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """`text` in the place of what is between two offsets; it has no line break that was not there."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after its edits, and for each line where its pieces come from.

    Args:
        text: the new text.
        original: the old one.
        pieces: by line, pairs of a column in the new text and the column of the old one from where it is copied; both from 1, and a
            negative old column stands for inserted text, which belongs to one place.
    """

    text: str
    original: str
    pieces: tuple[tuple[tuple[int, int], ...], ...]

    def column(self, line: int, column: int) -> int:
        """The column of the old text that this place in the new one comes from; the line is the same."""
        if not 1 <= line <= len(self.pieces):
            return column
        pieces = self.pieces[line - 1]
        new, old = pieces[bisect_right(pieces, (column, 1 << 30)) - 1]
        return -old if old < 0 else old + column - new


def apply(text: str, edits: Iterable[Edit]) -> Edited:
    """The text with all edits made. Insertions at one place stand in the order they are given.

    Raises:
        ValueError: two edits overlap.
    """
    new: list[str] = []
    lines: list[list[tuple[int, int]]] = [[(1, 1)]]
    column = old_column = 1

    def copy(piece: str) -> None:
        nonlocal column, old_column
        new.append(piece)
        for i, part in enumerate(piece.split("\n")):
            if i:
                lines.append([(1, 1)])
                column = old_column = 1
            column, old_column = column + len(part), old_column + len(part)

    def skip(piece: str) -> None:
        nonlocal column, old_column
        for i, part in enumerate(piece.split("\n")):
            if i:
                new.append("\n")  # a line stays where it is
                lines.append([(1, 1)])
                column = old_column = 1
            old_column += len(part)
        lines[-1].append((column, old_column))

    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < done:
            raise ValueError(f"edits overlap at offset {edit.start}: {edit.text!r}")
        copy(text[done : edit.start])
        if edit.text:
            lines[-1].append((column, -old_column))
            new.append(edit.text)
            column += len(edit.text)
        skip(text[edit.start : edit.end])
        done = edit.end
    copy(text[done:])
    return Edited("".join(new), text, tuple(map(tuple, lines)))
