"""Which functions of a text make threads wait for each other, by name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gradcheck.metal.tokens import Token, closing, code

_COLLECTIVE = re.compile(
    r"(simd|quad)_(all|any|ballot|sum|product|minimum|maximum|min|max|and|or|xor|broadcast\w*|shuffle\w*|prefix_\w+|is_first|active_threads_mask)"
    r"|simdgroup_(barrier|multiply\w*|load|store|matrix\w*|(float|half|bfloat)\d\w*)"
)
_WAITS = re.compile(rf"{_COLLECTIVE.pattern}|threadgroup_barrier|atomic\w*|threadgroup")
SPACES = frozenset({"device", "constant", "threadgroup", "thread", "ray_data", "object_data"})
"""The words that say where a value lies."""

_KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "do", "else", "static_assert", "alignas", "defined"}


class Function(NamedTuple):
    """A function that is defined: its name, and indices of the token of its name and of the braces of its body."""

    name: str
    at: int
    opening: int
    end: int


def functions(tokens: Sequence[Token]) -> list[Function]:
    """Every function that is defined in a text. Members and templates count; lambdas do not."""
    found = []
    i = 0
    while i < len(tokens) - 1:
        if tokens[i].kind == "word" and tokens[i].text not in _KEYWORDS and tokens[i + 1].text == "(":
            end = closing(tokens, i + 1) + 1
            while end < len(tokens) and (tokens[end].text in {"const", "noexcept"} or tokens[end].text in SPACES):
                end += 1
            if end < len(tokens) and tokens[end].text == "{":
                found.append(Function(tokens[i].text, i, end, closing(tokens, end)))
                i = end
        i += 1
    return found


@functools.lru_cache(maxsize=256)
def collective_names(*texts: str) -> frozenset[str]:
    """Names by which these texts call a collective of a simdgroup or quad: the built-in ones, and functions that contain one."""
    return _spread(texts, _COLLECTIVE)


@functools.lru_cache(maxsize=256)
def waits(source: str, header: str) -> bool:
    """Whether a kernel's body may synchronise or share: barrier, collective, atomic, threadgroup memory, itself or by what it calls."""
    names = _spread((header,), _WAITS)
    return any(word in names or _WAITS.fullmatch(word) for word in _words(code(source)))


def _spread(texts: Iterable[str], pattern: re.Pattern[str]) -> frozenset[str]:
    bodies: dict[str, set[str]] = {}
    names = set()
    for text in texts:
        tokens = code(text)
        names |= {word for word in _words(tokens) if pattern.fullmatch(word)}
        for function in functions(tokens):
            bodies.setdefault(function.name, set()).update(_words(tokens[function.opening : function.end]))
        names |= _macros(text, pattern)
    grown = True
    while grown:
        more = {name for name, body in bodies.items() if name not in names and body & names}
        names |= more
        grown = bool(more)
    return frozenset(names)


def _macros(text: str, pattern: re.Pattern[str]) -> set[str]:
    """Macros whose text names one."""
    defined = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\\\n]|\\(?:.|\n))*)", text, re.MULTILINE)
    return {name for name, body in defined if any(pattern.fullmatch(word) for word in re.findall(r"\w+", body))}


def _words(tokens: Iterable[Token]) -> set[str]:
    return {token.text for token in tokens if token.kind == "word"}
