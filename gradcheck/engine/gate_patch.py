"""A unified diff, read: which files it touches, and which lines of what they are now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError

_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SAME = re.compile(r'^diff --git (?:"?[abciow]/(.+?)"? "?[abciow]/\1"?|"?(.+?)"? "?\2"?)$')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Hunk:
    """One run of lines of the new file.

    Args:
        start: number of its first line.
        lines: what the diff says the new file has there.
        first, last: the lines that changed; where lines were only removed, one beside them.
    """

    start: int
    lines: tuple[str, ...]
    first: int
    last: int


Files = Mapping[str, tuple[Hunk, ...]]
"""Path from the root of the repository to the hunks; a file that is gone, renamed, or not text has none."""


def parse_diff(text: str) -> dict[str, tuple[Hunk, ...]]:
    """The files of a unified diff, as `git diff` or `diff -u` write it, by their old and new names.

    Raises:
        UsageError: the text is not empty, and no diff.
    """
    found: dict[str, list[Hunk]] = {}
    rows = iter(text.split("\n"))
    new = ""
    for row in rows:
        if header := _HUNK.match(row):
            if not new and not found:
                break
            hunk = _hunk(int(header[2]), int(header[1] or 1), int(header[3] or 1), rows)
            found.setdefault(new, []).append(hunk)
        elif row.startswith(("--- ", "+++ ")):
            new = _path(row[4:])
            found.setdefault(new, [])
        elif row.startswith(("rename from ", "rename to ", "copy from ", "copy to ")):
            found.setdefault(_unquoted(row.split(" ", 2)[2]), [])
        elif same := _SAME.match(row):
            found.setdefault(_unquoted(same[1] or same[2]), [])
    found.pop("", None)
    if text.strip() and not found:
        raise UsageError("this is no unified diff: it names no file. Make one with `git diff BASE > FILE`")
    return {path: tuple(hunks) for path, hunks in found.items()}


def mismatch(files: Files, root: Path) -> str:
    """Where the tree at `root` is not what the diff leads to, in words; nothing where it is."""
    for path, hunks in files.items():
        if not hunks:
            continue
        try:
            lines = (root / path).read_text("utf-8", errors="replace").split("\n")
        except OSError:
            return f"there is no file {root / path}"
        for hunk in hunks:
            here = lines[hunk.start - 1 : hunk.start - 1 + len(hunk.lines)] if hunk.lines else []
            if [line.rstrip("\r") for line in here] != [line.rstrip("\r") for line in hunk.lines]:
                return f"{root / path} has another text at line {hunk.start}"
    return ""


def whole(text: str) -> tuple[Hunk, ...]:
    """A new file, all of which changed."""
    lines = tuple(text.removesuffix("\n").split("\n"))
    return (Hunk(1, lines, 1, len(lines)),) if text else ()


def _hunk(start: int, old: int, new: int, rows: Iterator[str]) -> Hunk:
    """The hunk whose header says that it has so many lines of the old file and of the new one."""
    at = max(start, 1)
    begin, lines, changed = at, [], []
    while old > 0 or new > 0:
        row = next(rows, None)
        if row is None:
            raise UsageError("the diff is cut short: its last hunk has fewer lines than its header says")
        sign, line = row[:1], row[1:]
        if sign == "\\":  # no newline at the end of the file
            continue
        old, new = old - (sign != "+"), new - (sign != "-")
        if sign in {"+", "-"}:
            changed.append(at)
        if sign != "-":
            lines.append(line)
            at += 1
    last = max(begin + len(lines) - 1, begin)  # what was removed behind it has no line of its own
    return Hunk(begin, tuple(lines), min([*changed, last]), min(max(changed, default=begin), last))


def _path(text: str) -> str:
    """The path of a line `--- a/path`, with its time cut off; empty for the side on which there is no file."""
    path = _unquoted(text.split("\t", maxsplit=1)[0].rstrip("\r"))
    if path == "/dev/null":
        return ""
    return path[2:] if re.match(r"[abciow]/", path) else path


def _unquoted(path: str) -> str:
    """git puts a path into quotes, with the bytes of what is no ASCII in octal."""
    if not (path.startswith('"') and path.endswith('"')):
        return path
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 8)) if found[1].isdigit() else _LETTERS.get(found[1], found[1]), path[1:-1])
    return plain.encode("latin-1", errors="replace").decode("utf-8", errors="replace")
