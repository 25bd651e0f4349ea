"""A place in a kernel's own text, and what a compiler says about one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gradcheck.metal.unit import BODY_LINES, HEADER_LINES, Source

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): (?P<kind>fatal error|error|warning|note): (?P<message>.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Place:
    """`file:line:column`, with the line itself where the file is one of the kernel's own."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def quoted(self) -> str:
        """The line and a caret below the column, or nothing."""
        if not self.text.strip():
            return ""
        blank = len(self.text) - len(self.text.lstrip())
        line = self.text.strip()
        return f"    {line}\n    {' ' * min(max(self.column - 1 - blank, 0), len(line))}^"


def place(file: str, line: int, column: int, sources: Mapping[str, Source]) -> Place:
    """The place that a compiler or a line table calls by these; its file is a key of `sources`, or another's (a header)."""
    source = sources.get(file)
    if source is None:
        return Place(file, line, column)
    line %= HEADER_LINES
    lines = source.edited.original.split("\n")
    return Place(source.name, line, source.edited.column(line, column), lines[line - 1] if 0 < line <= len(lines) else "")


def place_of_line(line: int, column: int, sources: Mapping[str, Source]) -> Place | None:
    """The place of a collective, of which the runtime knows the line and column only, in the texts of one kernel."""
    body = line >= BODY_LINES
    for file, source in sources.items():
        if line >= HEADER_LINES and source.name.endswith(".header.metal") != body:
            return place(file, line, column, sources)
    return None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What a compiler says: kind (`error`, `warning`, `note`), message and place; `key` is the file by its name in the unit."""

    kind: str
    message: str
    place: Place
    key: str

    def __str__(self) -> str:
        quoted = self.place.quoted
        return f"{self.place}: {self.kind}: {self.message}" + (f"\n{quoted}" if quoted else "")


def diagnostics(output: str, sources: Mapping[str, Source]) -> Iterator[Diagnostic]:
    """The diagnostics in what clang wrote."""
    for match in _DIAGNOSTIC.finditer(output):
        where = place(match["file"], int(match["line"]), int(match["column"]), sources)
        yield Diagnostic("error" if "error" in match["kind"] else match["kind"], match["message"], where, match["file"])
