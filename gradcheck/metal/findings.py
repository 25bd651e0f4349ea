"""What the checker found, in the words and places of the kernel's own text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradcheck.metal import abi
from gradcheck.metal.build import Built
from gradcheck.metal.launch import Launch, Raw
from gradcheck.metal.lines import look_up
from gradcheck.metal.places import Place, place, place_of_line

BENIGN = frozenset({"race, same value"})
"""Kinds that are told and do not make a kernel wrong: several threads write one value to one place."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the checker found.

    Args:
        kernel: the kernel's name.
        kind: one of the words of `abi.KINDS`.
        message: what happened, in one sentence without the place.
        places: where: the access; of a race the other access after it. May be empty.
        threadgroup: linear index of the threadgroup, and `thread` of the thread in it.
        buffer: name of the buffer or threadgroup variable, or nothing.
        offset: bytes from its start; where out of bounds, from its end (0 and more) or its start (below 0).
        count: how often the same was seen.
    """

    kernel: str
    kind: str
    message: str
    places: tuple[Place, ...]
    threadgroup: int
    thread: int
    buffer: str
    offset: int
    count: int = 1

    @property
    def benign(self) -> bool:
        """Whether a kernel that does this is right all the same."""
        return self.kind in BENIGN

    def __str__(self) -> str:
        where = f"{self.places[0]}: " if self.places else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        quoted = [
            f"{'and here, ' if i else ''}{spot}:\n{spot.quoted}" if i else spot.quoted for i, spot in enumerate(self.places) if spot.quoted
        ]
        return "\n".join([f"{where}{self.kind}: {self.message}{times}", *quoted])


def findings_of(what: Launch, built: Built, kernel: str, reports: Sequence[Raw]) -> tuple[Finding, ...]:
    """The runtime's reports about a launch, told."""
    return tuple(_finding(what, built, kernel, raw) for raw in reports)


def _finding(what: Launch, built: Built, kernel: str, raw: Raw) -> Finding:
    kind = abi.KINDS.get(raw.kind, f"report {raw.kind}")
    known = raw.buffer < len(what.buffers)
    name = what.buffers[raw.buffer].name if known else raw.name
    spots = [_place(built, pc) for pc in (raw.pc, raw.pc2)]
    if spots[0] is None and raw.line:
        spots[0] = place_of_line(raw.line, raw.column, built.sources)
    offset = raw.offset
    element = what.buffers[raw.buffer].element if known else 0
    return Finding(
        kernel,
        kind,
        _message(raw, kind, name, element),
        tuple(spot for spot in spots if spot),
        raw.group,
        raw.thread,
        name,
        offset,
        raw.count,
    )


def _place(built: Built, pc: int) -> Place | None:
    found = look_up(built.library, pc) if pc else None
    return None if found is None else place(*found, built.sources)


def _message(raw: Raw, kind: str, name: str, element: int) -> str:
    access = f"{'write' if raw.write else 'read'} of {raw.size} bytes"
    who = f"thread {raw.thread} of threadgroup {raw.group}"
    at = f"{name!r}" + (f"[{raw.offset // element}]" if element and raw.offset % element == 0 else f" at byte {raw.offset}")
    detail = f"; {raw.detail}" if raw.detail else ""
    match kind:
        case "out of bounds":
            side = f"{raw.offset} bytes past the end" if raw.offset >= 0 else f"{-raw.offset} bytes before the start"
            return f"{access}, {side} of {name!r}, by {who}{detail}" if name else f"{access} in no buffer, by {who}{detail}"
        case "race" | "race, same value" | "weak barrier":
            other = f"{'write' if raw.write2 else 'read'} by thread {raw.thread2} of threadgroup {raw.group2}"
            return f"{access} of {at} by {who}, unordered with the {other}{detail}".replace(" of '", " at '", 1)
        case "misaligned access":  # whether it reads or writes is not always known
            return f"{raw.size} bytes at {at} by {who}{detail}"
        case "uninitialised read" | "write to an input":
            return f"{access} at {at} by {who}{detail}"
        case "unwritten output":
            return f"{name!r} was never written from {at}{detail}"
        case _:
            subject = f" of {name!r}" if name else ""
            return f"{raw.detail or kind}{subject}, {who}"
