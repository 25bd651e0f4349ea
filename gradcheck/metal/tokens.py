"""Metal source as tokens: enough of C++'s lexical grammar that no rewriting touches a comment, a string or a directive."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["word", "number", "string", "punct", "space", "comment", "directive"]

_PATTERN = re.compile(
    r"""
      (?P<directive>(?m:^)[ \t]*\#(?:[^\\\n]|\\(?:.|\n))*)
    | (?P<comment>//(?:[^\\\n]|\\(?:.|\n))*|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]*)\([\s\S]*?\)(?P=mark)"|"(?:[^"\\\n]|\\(?:.|\n))*"?|'(?:[^'\\\n]|\\(?:.|\n))*'?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<space>\s+)
    | (?P<punct>::|->|\+\+|--|<<=|&&|\|\||[<>=!+\-*/%&|^]=|\#\#|[\s\S])
    """,
    re.VERBOSE,
)
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class Token(NamedTuple):
    """A piece of the text; `start` is its offset. `>>` is two tokens, since it mostly ends two template lists."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.start + len(self.text)


@functools.lru_cache(maxsize=64)
def tokenize(text: str) -> tuple[Token, ...]:
    """Every token, blank ones too: their texts together are `text`. Kept for a while: a text is looked at from several sides."""
    found = _PATTERN.finditer(text)
    return tuple(Token(match.lastgroup, match.group(), match.start()) for match in found)  # type: ignore[arg-type] # the kinds


@functools.lru_cache(maxsize=64)
def code(text: str) -> tuple[Token, ...]:
    """The tokens that the compiler sees: no blanks, comments or directives."""
    return tuple(token for token in tokenize(text) if token.kind not in {"space", "comment", "directive"})


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the `(`, `[` or `{` at `opening`; of the last token where nothing closes it."""
    depth = 0
    for i in range(opening, len(tokens)):
        if tokens[i].kind != "punct":
            continue
        if tokens[i].text in _OPEN:
            depth += 1
        elif tokens[i].text in _CLOSE:
            depth -= 1
            if depth == 0:
                return i
    return len(tokens) - 1


def closing_angle(tokens: Sequence[Token], opening: int) -> int | None:
    """Index of the `>` that closes the `<` at `opening`, or None where that is a comparison: a statement ends first."""
    depth, i = 0, opening
    while i < len(tokens):
        text = tokens[i].text
        if tokens[i].kind == "punct":
            if text in _OPEN:
                i = closing(tokens, i)
            elif text in {";", "}", ")", "]"}:
                return None
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
        i += 1
    return None


def line_of(text: str, offset: int) -> int:
    """The line, from 1, that an offset lies on."""
    return text.count("\n", 0, offset) + 1


def column_of(text: str, offset: int) -> int:
    """The column, from 1."""
    return offset - text.rfind("\n", 0, offset)
