"""Overloads that differ only by where a value lies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gradcheck.metal.collectives import SPACES
from gradcheck.metal.edits import Edit
from gradcheck.metal.tokens import Token, closing


def overloads_by_space(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Definitions that are an earlier one again once address spaces mean nothing.

    A definition that is repeated with the same spaces is the author's mistake, and stays for the compiler to report.
    """
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    scopes: list[tuple[str, ...]] = [()]
    begin = i = 0
    while i < len(tokens):
        text = tokens[i].text
        if text == ";" or (text == ":" and i and tokens[i - 1].text in {"public", "private", "protected"}):
            begin = i + 1
        elif text == "}":
            if len(scopes) > 1:
                scopes.pop()
            begin = i + 1
        elif text in {"(", "["}:
            i = closing(tokens, i)
        elif text == "{":
            head = [token.text for token in tokens[begin:i]]
            plain = _signature(head)
            spaces = tuple(word for word in head if word in SPACES)
            scope = (*scopes[-1], "{")
            known = seen.setdefault((*scope, *plain), spaces)
            end = closing(tokens, i)
            if known != spaces:
                tail = end + 1 if end + 1 < len(tokens) and tokens[end + 1].text == ";" else end
                yield Edit(tokens[begin].start, tokens[tail].end, "")
                i, begin = tail, tail + 1
            elif _holds_declarations(head):
                scopes.append((*scope, *plain))
                begin = i + 1
            else:
                i, begin = end, end + 1
        i += 1


def _holds_declarations(head: Sequence[str]) -> bool:
    while head and head[0] == "template":
        depth = 0
        for i, word in enumerate(head):
            depth += (word == "<") - (word == ">")
            if i and depth == 0:
                head = head[i + 1 :]
                break
        else:
            return False
    return head[:1] == ["extern"] or (not {"struct", "class", "union", "namespace"}.isdisjoint(head[:3]) and head[-1:] != [")"])


def _signature(head: Sequence[str]) -> tuple[str, ...]:
    """The head of a definition without address spaces and parameter names."""
    words = [word for word in head if word not in SPACES]
    kept: list[str] = []
    depth = 0
    for word, following in pairwise([*words, ""]):
        depth += (word == "(") - (word == ")")
        named = depth == 1 and following in {",", ")"} and kept and kept[-1] not in {"(", ",", "::", "const", "unsigned", "typename"}
        if not (named and re.fullmatch(r"[A-Za-z_]\w*", word)):
            kept.append(word)
    return tuple(kept)
