"""What the processes of a watched program write down about their launches, and what it adds up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gradcheck.metal.findings import Finding

NOTES = ".jsonl"
MLX, STRANGER = ".mlx", ".stranger"
"""Ends of the names of empty files: of a process that imported MLX; and, not empty, of a Python in which gradcheck is not installed."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as a reader finds it.

    Args:
        name: its name.
        made_at: `file.py:line` of the call that made it.
        lines: where its texts stand in that file: the first line of each, by the name that places have for it. Empty where a text is not
            there word by word (it was put together).
    """

    name: str
    made_at: str
    lines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """One launch. A finding is written in full once; after that by its number among all that this process wrote in full.

    Args:
        new: findings that this process has not had yet.
        again: pairs of number and count, of the others.
        failure: why the kernel has no result, or nothing.
        died: whether that was a crash or a hang, else it could not be compiled here.
        warnings: of the compiler; with the first launch of a kernel only.
    """

    kernel: Kernel
    new: tuple[Finding, ...] = ()
    again: tuple[tuple[int, int], ...] = ()
    failure: str = ""
    died: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was found, in how many launches and how often in all; the example is the first."""

    example: Finding
    launches: int
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of one kernel.

    Args:
        deaths: how launches crashed or hung, each with its count.
        failures: why it could not be run, each with its count.
    """

    kernel: Kernel
    launches: int
    findings: tuple[Seen, ...]
    deaths: tuple[tuple[str, int], ...]
    failures: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]

    @property
    def wrong(self) -> int:
        """How many different things make this kernel wrong."""
        return sum(not seen.example.benign for seen in self.findings) + len(self.deaths)


def read(folder: Path) -> tuple[Summary, ...]:
    """All kernels of which the processes wrote into this folder, the wrong ones first, else in the order of their places."""
    totals: dict[tuple[str, str], _Total] = {}
    decoder = msgspec.json.Decoder(Note)
    for path in sorted(folder.glob(f"*{NOTES}")):
        known: list[object] = []  # keys of findings by their number in this process
        for line in path.read_bytes().split(b"\n")[:-1]:  # a last line without its end was being written when the process died
            note = decoder.decode(line)
            known += map(key_of, note.new)
            total = totals.setdefault((note.kernel.name, note.kernel.made_at), _Total(note.kernel))
            total.add(note, [(known[number], count) for number, count in note.again])
    return tuple(sorted((total.summary() for total in totals.values()), key=lambda one: (not one.wrong, one.kernel.made_at)))


@dataclass(slots=True)
class _Total:
    """What is known of one kernel while processes are added."""

    kernel: Kernel
    launches: int = 0
    examples: dict[object, Finding] = field(default_factory=dict)
    seen: Counter[object] = field(default_factory=Counter)
    counts: Counter[object] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    warnings: dict[str, None] = field(default_factory=dict)

    def add(self, note: Note, again: list[tuple[object, int]]) -> None:
        """Add a launch; `again` is what was known already, by its key."""
        self.warnings |= dict.fromkeys(note.warnings)
        if note.failure:
            (self.deaths if note.died else self.failures)[note.failure] += 1
            self.launches += note.died
            return
        self.launches += 1
        for finding in note.new:
            self.examples.setdefault(key_of(finding), finding)
        found = [*((key_of(finding), finding.count) for finding in note.new), *again]
        self.seen.update({key for key, _ in found})
        for key, count in found:
            self.counts[key] += count

    def summary(self) -> Summary:
        """What it adds up to."""
        findings = [Seen(example, self.seen[key], self.counts[key]) for key, example in self.examples.items()]
        return Summary(
            self.kernel,
            self.launches,
            tuple(sorted(findings, key=lambda seen: seen.example.benign)),
            tuple(self.deaths.items()),
            tuple(self.failures.items()),
            tuple(self.warnings),
        )


def key_of(finding: Finding) -> object:
    """What makes two findings the same for a reader: the kind, and the places with their text; not the thread."""
    return finding.kernel, finding.kind, finding.places, "" if finding.places else finding.buffer
