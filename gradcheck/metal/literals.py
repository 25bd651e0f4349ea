"""Numbers in a Metal text that C++ reads otherwise, or not at all."""

from __future__ import annotations

import re

from gradcheck.metal.tokens import Token, code, tokenize

_NARROW = re.compile(r"((?!0[xX])[\d.]+(?:[eE][+-]?\d+)?)([hH]|[bB][fF])")
_UNSUFFIXED = re.compile(r"(?!0[xX])(?:[\d']+\.[\d']*|\.[\d']+|[\d']+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F.']+[pP][+-]?\d+")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define\b")


def numbers(text: str) -> list[Token]:
    """Every number of a text, those in macros' replacements too, which are not among the tokens of `code`."""
    found = [token for token in code(text) if token.kind == "number"]
    for directive in tokenize(text):
        if directive.kind == "directive" and (define := _DEFINE.match(directive.text)):
            begin = directive.start + define.end()
            inside = tokenize(text[begin : directive.end])
            found += [token._replace(start=token.start + begin) for token in inside if token.kind == "number"]
    return found


def narrow(token: Token) -> tuple[str, str] | None:
    """Digits and suffix of `1.0H` or `1.0bf`."""
    match = _NARROW.fullmatch(token.text)
    return (match[1], match[2]) if match else None


def unsuffixed(token: Token) -> bool:
    """Whether it is `1.0`: a float in Metal, a double in C++."""
    return bool(_UNSUFFIXED.fullmatch(token.text))
