"""Where a text declares threadgroup variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradcheck.metal.tokens import Token, closing, closing_angle

_PARTS = {"unsigned", "signed", "long", "short", "int", "char"}  # words of which a type may have several
_BEFORE_TYPE = {"const", "volatile", "struct", "class", "typename"}


@dataclass(frozen=True, slots=True)
class Declaration:
    """`threadgroup float a[4], b;`, by indices of tokens.

    Args:
        word: the word `threadgroup`.
        behind: what follows the type.
        names: each name, and what follows its extents.
    """

    word: int
    behind: int
    names: tuple[tuple[int, int], ...]


def declarations(tokens: Sequence[Token]) -> Iterator[Declaration]:
    """Every declaration of variables; not those of pointers, references and parameters."""
    for i, token in enumerate(tokens):
        if token.text != "threadgroup" or token.kind != "word":
            continue
        behind = _type(tokens, i + 1)
        if behind is None:
            continue
        names = tuple(_declarators(tokens, behind))
        if names and tokens[names[-1][1]].text == ";":
            yield Declaration(i, behind, names)


def _type(tokens: Sequence[Token], i: int) -> int | None:
    """The index behind the type that begins here, or None where it is no type of a variable (a pointer, a parameter, a cast)."""
    seen = False
    while i < len(tokens) - 1:
        token, following = tokens[i], tokens[i + 1]
        if token.text in _PARTS:
            seen = True
        elif token.text in _BEFORE_TYPE:
            pass
        elif token.kind == "word":
            if following.text == "::":
                i += 1
            elif following.text == "<":
                end = closing_angle(tokens, i + 1)
                if end is None:
                    return None
                i, seen = end, True
                if tokens[i + 1].text == "::":
                    i += 1
            elif seen or following.kind != "word":
                return i if seen else None
            else:
                seen = True
        else:
            return None
        i += 1
    return None


def _declarators(tokens: Sequence[Token], i: int) -> Iterator[tuple[int, int]]:
    """Index of each name that is declared from here on, and the index behind its extents."""
    while i < len(tokens) - 1 and tokens[i].kind == "word":
        end = i + 1
        while tokens[end].text == "[":
            end = closing(tokens, end) + 1
            if end >= len(tokens):
                return
        if tokens[end].text not in {",", ";"}:
            return
        yield i, end
        i = end + 1
        if tokens[end].text == ";":
            return
