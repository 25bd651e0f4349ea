"""Markdown that strangers' words cannot break, and that can be cut to a limit by whole rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ._text import line, safe

_PUNCTUATION = re.compile(r"([\\`*_\[\]#!|~>$]|^[-+=]|^\d+(?=[.)](?: |$)))")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document that can be shortened.

    Args:
        head: what comes first; for a table its title and header.
        blocks: the rows of the table, or paragraphs: each is shown whole or not at all.
        foot: what closes it.
        tight: blocks follow each other without an empty line, as the rows of a table do.
    """

    head: str
    blocks: tuple[str, ...] = ()
    foot: str = ""
    tight: bool = False


def document(first: str, sections: Sequence[Section], limit: int, rest: str) -> str:
    """`first`, then the sections as far as they fit into `limit` bytes; what is left out is counted, and `rest` says where it is.

    Earlier sections go before later ones. The first line is never cut; a table keeps its header, and loses rows from the end.
    """
    head, *lines = first.rstrip("\n").split("\n")
    text = f"{head}\n"
    for row in lines:
        text += f"{row}\n" if _size(text) + _size(row) < limit else ""
    for section in sections:
        whole = _render(section, len(section.blocks), rest)
        room = limit - _size(text)
        if _size(whole) <= room:
            text += whole
            continue
        keep = _fitting(section, room, rest)
        if keep:
            text += _render(section, keep, rest)
        elif _size(note := f"\n_{len(section.blocks)} left out ({_title(section)}): {rest}_\n") <= room:
            text += note
    return text


def code(text: str, *, cell: bool = False) -> str:
    """A stranger's words as a code span: nothing in it is markup, a mention or a link. In a table `|` needs a backslash."""
    plain = line(text) or " "
    ticks = "`" * (max(map(len, re.findall(r"`+", plain)), default=0) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    span = f"{ticks}{pad}{plain}{pad}{ticks}"
    return span.replace("|", "\\|") if cell else span


def prose(text: str) -> str:
    """A stranger's words as plain text on one line; a mention or an issue number stays text."""
    plain = line(text).replace("&", "&amp;").replace("<", "&lt;")
    return _PUNCTUATION.sub(_escaped, plain).replace("@", "@\u200b").replace("://", ":\u200b//").replace("\\#", "\\#\u200b")


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    return f"{text[:-1]}&#{ord(text[-1])};" if text[-1].isdigit() else f"\\{text}"


def fence(text: str, language: str = "") -> str:
    """A block of code that its content cannot end."""
    plain = safe(text).strip("\n")
    ticks = "`" * max(3, max(map(len, re.findall(r"`+", plain)), default=0) + 1)
    return f"{ticks}{language}\n{plain}\n{ticks}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), foot: str = "") -> Section:
    """A table as a section; `right` are the columns that are numbers."""
    rule = "|".join(" ---: " if column in right else " --- " for column in range(len(heads)))
    return Section(f"{title}\n\n{_cells(heads)}\n|{rule}|", tuple(map(_cells, rows)), foot, tight=True)


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _render(section: Section, keep: int, rest: str) -> str:
    """The section with its first `keep` blocks."""
    gap = "\n" if section.tight else "\n\n"
    left = len(section.blocks) - keep
    parts = [gap.join([section.head, *section.blocks[:keep]])]
    parts += [f"_… and {left:,} more: {rest}_"] if left else []
    parts += [section.foot] if section.foot else []
    return "\n" + "\n\n".join(parts) + "\n"


def _fitting(section: Section, room: int, rest: str) -> int:
    """How many blocks fit."""
    low, high = 0, len(section.blocks)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(_render(section, middle, rest)) <= room else (low, middle - 1)
    return low


def _title(section: Section) -> str:
    return re.sub("<[^>]*>", "", section.head.split("\n")[0]).lstrip("# ").strip() or "more"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
