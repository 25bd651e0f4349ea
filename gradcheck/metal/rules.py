"""What clang accepts as C++ and Metal does not have, by the text alone.

Recursion is found where a function's name is defined once: which of several overloads a call takes is for a compiler to say.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradcheck.metal.collectives import functions
from gradcheck.metal.tokens import Token, code, column_of, line_of

_FORBIDDEN = {
    "double": "Metal has no double",
    "goto": "Metal has no goto",
    "new": "Metal has no dynamic memory: no new",
    "delete": "Metal has no dynamic memory: no delete",
    "try": "Metal has no exceptions: no try",
    "catch": "Metal has no exceptions: no catch",
    "throw": "Metal has no exceptions: no throw",
    "virtual": "Metal has no virtual functions",
    "dynamic_cast": "Metal has no run-time type information: no dynamic_cast",
    "typeid": "Metal has no run-time type information: no typeid",
    "thread_local": "Metal has no thread_local: a variable of a kernel is its thread's own",
    "asm": "Metal has no inline assembly",
}
_LAMBDA = "a lambda: Metal has them since version 3.2 only"
_BEFORE_LAMBDA = {"=", "(", ",", "{", ";", "return", "&&", "||", "?", ":", "}"}


@dataclass(frozen=True, slots=True)
class Breach:
    """One place that breaks a rule; a warning is told and lets the kernel run."""

    line: int
    column: int
    message: str
    warning: bool = False


@functools.lru_cache(maxsize=256)
def breaches(text: str) -> tuple[Breach, ...]:
    """Every place of a kernel's text (its body or its header) that Metal would not accept, in the order of the text."""
    tokens = code(text)
    found = sorted([*_words(tokens), *_lambdas(tokens), *_recursion(tokens)], key=lambda one: one[0].start)
    return tuple(Breach(line_of(text, token.start), column_of(text, token.start), message, message == _LAMBDA) for token, message in found)


def _words(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    for i, token in enumerate(tokens):
        if token.kind != "word" or token.text not in _FORBIDDEN:
            continue
        before = tokens[i - 1].text if i else ""
        if (token.text == "delete" and before == "=") or before in {".", "->"}:  # `= delete`, and a member of that name
            continue
        yield token, _FORBIDDEN[token.text]


def _lambdas(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    for i in range(1, len(tokens) - 1):
        if tokens[i].text == "[" and tokens[i - 1].text in _BEFORE_LAMBDA and tokens[i + 1].text != "[":
            yield tokens[i], _LAMBDA


def _recursion(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    defined = functions(tokens)
    once = {name for name, count in Counter(function.name for function in defined).items() if count == 1}
    calls = {name: list(_calls(tokens[start:end], once)) for name, _, start, end in defined if name in once}
    for name, called in calls.items():
        token = next((token for token in called if token.text == name or name in _reach(token.text, calls)), None)
        if token is not None:
            yield token, f"Metal has no recursion: {name} calls {'itself' if token.text == name else f'{token.text}, which calls it'}"


def _reach(name: str, calls: dict[str, list[Token]]) -> set[str]:
    """The functions that this one calls, directly or not, and itself."""
    reached, new = set(), {name}
    while new:
        reached |= new
        new = {token.text for callee in new for token in calls.get(callee, ())} - reached
    return reached


def _calls(body: Sequence[Token], names: set[str]) -> Iterator[Token]:
    """Calls of these functions: not of a member or of another namespace, and not of a template, which may end by specialisation."""
    for i, token in enumerate(body[:-1]):
        before = body[i - 1].text if i else ""
        if token.kind == "word" and token.text in names and body[i + 1].text == "(" and before not in {".", "->", "::"}:
            yield token
