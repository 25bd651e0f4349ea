"""Metal text to C++ text, where C++ has no word for it. Lines stay lines; columns can be traced back (see `edits`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence

from gradcheck.metal.collectives import Function, functions
from gradcheck.metal.edits import Edit, Edited, apply
from gradcheck.metal.literals import narrow, numbers, unsuffixed
from gradcheck.metal.overloads import overloads_by_space
from gradcheck.metal.threadgroup import declarations
from gradcheck.metal.tokens import Token, closing, code, tokenize

_UNROLL = re.compile(r"\s*#\s*pragma\s+(clang\s+loop|unroll|nounroll)\b")


@functools.lru_cache(maxsize=256)
def rewrite(text: str, collectives: frozenset[str] = frozenset(), *, overloads: bool = False) -> Edited:
    """The text in words that C++ has.

    Threadgroup variables come from the runtime, loops and functions with collectives are marked, of overloads that differ only by address
    space the first is left, and literals get suffixes that C++ takes, or lacked.

    Args:
        text: a kernel's body or its header.
        collectives: names of the functions that are collectives, see `collective_names`.
        overloads: keep overloads by address space.
    """
    tokens = code(text)
    doubled = [] if overloads else list(overloads_by_space(tokens))
    gone = [range(edit.start, edit.end) for edit in doubled]
    edits = [*_variables(tokens, text), *_literals(text), *_loops(text, tokens, collectives)]
    edits += [*_calls(tokens, collectives), *_attributes(tokens)]
    return apply(text, [*doubled, *(edit for edit in edits if not any(edit.start in span for span in gone))])


def _variables(tokens: Sequence[Token], text: str) -> Iterator[Edit]:
    """`threadgroup float a[4], b;` becomes references to memory that the runtime hands to each threadgroup."""
    for one in declarations(tokens):
        kind = text[tokens[one.word + 1].start : tokens[one.behind - 1].end]
        new = []
        for name, end in one.names:
            extent = text[tokens[name].end : tokens[end - 1].end] if end > name + 1 else ""
            word = tokens[name].text
            new.append(f'auto& {word} = *gcm::threadgroup_variable<threadgroup {kind}{extent}, struct gcm_tag_{word}>("{word}")')
        # An alignment before it belongs to the memory, which the runtime aligns for any vector.
        begin, before = tokens[one.word].start, one.word
        if before and tokens[before - 1].text == ")":
            opening = before - 1
            while opening and tokens[opening].text != "(":
                opening -= 1
            if opening and tokens[opening - 1].text == "alignas":
                begin = tokens[opening - 1].start
        yield Edit(begin, tokens[one.names[-1][1] - 1].end, re.sub(r"\s+", " ", "; ".join(new)))


def _literals(text: str) -> Iterator[Edit]:
    """Literals as C++ and clang have them.

    `1.0H` and `1.0bf` get an underscore, since C++ has no suffixes of ours without one; `types.h` defines them. `1.0` gets an f: clang's
    -cl-single-precision-constant makes it a float by an implicit cast, and forgets that when it instantiates a template.
    """
    for token in numbers(text):
        if parts := narrow(token):
            if parts[1] == "h":  # clang has that one
                continue
            yield Edit(token.start + len(parts[0]), token.end, f"_{parts[1].lower()}")
        elif unsuffixed(token):
            yield Edit(token.end, token.end, "f")


def _loops(text: str, tokens: Sequence[Token], collectives: Collection[str]) -> Iterator[Edit]:
    """`for (…) body` becomes `{ gcm::loop_mark m; for (…) { m.tick(); body } }` where a collective is in it.

    So lanes that leave the loop, or take another way through its body, meet again where Metal's do.
    """
    if not any(token.text in collectives for token in tokens):
        return
    directives = [token for token in tokenize(text) if token.kind == "directive"]
    tails = {end for i in range(len(tokens)) if tokens[i].text == "do" and (end := _tail(tokens, i)) is not None}
    number = 0
    opened: list[Edit] = []
    closed: list[Edit] = []
    for i, token in enumerate(tokens):
        if token.kind != "word" or token.text not in {"for", "while", "do"} or i in tails:
            continue
        body = i + 1 if token.text == "do" else closing(tokens, i + 1) + 1
        end = statement_end(tokens, i)
        last = statement_end(tokens, body)
        if end >= len(tokens) or not any(part.text in collectives for part in tokens[i : end + 1]):
            continue
        number += 1
        mark = f"gcm_loop_{number}"
        begin = _pragma(tokens, i)
        opened += [
            Edit(*(tokens[begin].start,) * 2, f"{{ gcm::loop_mark {mark}; "),
            Edit(*(tokens[body].start,) * 2, f"{{ {mark}.tick(); "),
        ]
        closed += [Edit(*(tokens[last].end,) * 2, " }"), Edit(*(tokens[end].end,) * 2, " }")]
        previous = tokens[begin - 1].end if begin else 0
        for directive in directives:
            if previous <= directive.start < token.start and _UNROLL.match(directive.text):
                # It has to stand directly before the loop, and to unroll a loop of collectives gains nothing.
                opened.append(Edit(directive.start, directive.end, ""))
    # Where one loop ends and the next begins the end comes first; where two begin, the outer one.
    yield from closed
    yield from opened


def _calls(tokens: Sequence[Token], collectives: Collection[str]) -> Iterator[Edit]:
    """A function with a collective is told from where it is called, by an argument that callers do not write.

    So lanes that call it from the two sides of a branch do not meet in it, as they do not on a GPU. Left as they are: those that are also
    declared without a body or used as values, variadic and constexpr ones, and specialisations of templates, which take no such argument.
    """
    known = [function for function in functions(tokens) if function.name in collectives]
    defined = {function.at for function in known}
    odd = {
        token.text
        for i, token in enumerate(tokens[:-1])
        if token.text in collectives and i not in defined and (tokens[i + 1].text not in {"(", "<"} or _declares(tokens, i))
    }
    for function in known:
        end = closing(tokens, function.at + 1)
        inside = [token.text for token in tokens[function.at + 2 : end]]
        head = _head(tokens, function)
        if (
            function.name in odd
            or "..." in "".join(inside)
            or inside == ["void"]
            or not _KEPT_HEADS.isdisjoint(head)
            or "template<>" in "".join(head)
        ):
            continue
        yield Edit(*(tokens[end].start,) * 2, f"{', ' if inside else ''}gcm::here gcm_from = gcm::here()")
        yield Edit(*(tokens[function.opening].end,) * 2, " gcm::loop_mark gcm_call(gcm_from);")


_KEPT_HEADS = {"constexpr", "operator", "kernel", "virtual", "friend"}


def _head(tokens: Sequence[Token], function: Function) -> list[str]:
    """What stands before the name of a function: its return type and qualifiers."""
    begin = function.at
    while begin and tokens[begin - 1].text not in {";", "{", "}"}:
        begin -= 1
    return [token.text for token in tokens[begin : function.at]]


def _declares(tokens: Sequence[Token], i: int) -> bool:
    """Whether a function is declared here, without a body: a type stands before it."""
    return i > 0 and tokens[i - 1].kind == "word" and tokens[i - 1].text not in {"return", "else", "do", "case"}


def _attributes(tokens: Sequence[Token]) -> Iterator[Edit]:
    """`[[threadgroup(0)]]` of a parameter means nothing here, and `threadgroup` is a macro."""
    for i in range(2, len(tokens)):
        if tokens[i].text == "threadgroup" and tokens[i - 1].text in {"[", ","} and tokens[i + 1 : i + 2] and tokens[i + 1].text == "(":
            yield Edit(tokens[i].start, tokens[i].end, "gcm_index")


def _pragma(tokens: Sequence[Token], i: int) -> int:
    """Where a loop begins: at the `_Pragma("…")` or macro that stands before it."""
    while i and (tokens[i - 1].text == ")" or (tokens[i - 1].kind == "word" and tokens[i - 1].text not in {"else", "do"})):
        if tokens[i - 1].kind == "word":
            i -= 1
            continue
        opening = i - 1
        while opening and tokens[opening].text != "(":
            opening -= 1
        if tokens[opening - 1].text != "_Pragma":
            break
        i = opening - 1
    return i


def _tail(tokens: Sequence[Token], do: int) -> int | None:
    """Index of the `while` that ends a `do`."""
    end = statement_end(tokens, do + 1) + 1
    return end if end < len(tokens) and tokens[end].text == "while" else None


def statement_end(tokens: Sequence[Token], i: int) -> int:  # noqa: PLR0911 - one for each kind of statement
    """Index of the last token of the statement that begins here."""
    if i >= len(tokens):
        return len(tokens) - 1
    text = tokens[i].text
    if text == "{":
        return closing(tokens, i)
    if text == "do":
        tail = _tail(tokens, i)
        return len(tokens) - 1 if tail is None else closing(tokens, tail + 1) + 1
    if text in {"for", "while", "switch"}:
        return statement_end(tokens, closing(tokens, i + 1) + 1)
    if text == "if":
        opening = i + 2 if tokens[i + 1].text == "constexpr" else i + 1
        end = statement_end(tokens, closing(tokens, opening) + 1)
        return statement_end(tokens, end + 2) if end + 1 < len(tokens) and tokens[end + 1].text == "else" else end
    while i < len(tokens) - 1 and tokens[i].text != ";":
        if tokens[i].text == "}":  # the statement had no end of its own
            return i - 1
        i = closing(tokens, i) if tokens[i].text in {"(", "[", "{"} else i
        i += 1
    return min(i, len(tokens) - 1)
