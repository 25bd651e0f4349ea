"""verdicts.jsonl: append-only, one line per finished item, each with its own checksum, so that a crash costs at most the last one.

Errors of the file system pass through as `OSError`; the run folder says what they mean for the run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from gradcheck._verdict import Evidence, WorkItem

T = TypeVar("T")

SYNC_SECONDS = 2.0
"""How much finished work a power cut may cost. A crash of the process costs none."""

_LINE = 1 << 14  # bytes that are read at once; most lines are shorter

_SUM = b'{"sum":"%08x",'
_SUM_LENGTH = len(_SUM % 0)


@dataclass(frozen=True, slots=True)
class Record:
    """One line: the evidence, and the outcome as it was judged when written."""

    outcome: str
    evidence: Evidence


@dataclass(slots=True)
class Journal:
    """The file, open for appending. One process at a time may have it, which the lock of the run folder sees to."""

    _file: FileIO
    _end: int  # of the last whole line
    _synced: float = 0.0

    def append(self, record: Record) -> int:
        """Write one line; where it begins. Once this returns, a crash of the process cannot lose it; if it raises, all before it is whole."""
        body = msgspec.json.encode(record)
        line = _SUM % zlib.crc32(body) + body[1:] + b"\n"
        try:
            rest = memoryview(line)
            while rest:  # a disk that is nearly full takes a part
                rest = rest[self._file.write(rest) :]
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)  # so that the next line is not glued to a torn one
            raise
        place = self._end
        self._end += len(line)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()
        return place

    def read(self, place: int) -> Evidence:
        """The evidence in the line that begins at this place.

        Raises:
            OSError: it cannot be read, or is not what was written there.
        """
        line = b""
        while b"\n" not in line and (more := os.pread(self._file.fileno(), _LINE, place + len(line))):
            line += more
        record = _record(line.partition(b"\n")[0])
        if record is None:
            raise OSError(errno.EIO, f"the line at byte {place} is not what was written there")
        return record.evidence

    def sync(self) -> None:
        """Force what was written to disk."""
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close. A second time does nothing."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()


def open_journal(path: Path) -> Journal:
    """The journal at `path`, made if need be; a last line that was cut short is completed or removed."""
    file = FileIO(path, "a+")
    try:
        file.seek(0)
        content = file.readall()
        end = content.rfind(b"\n") + 1
        if _record(content[end:]):  # only its newline is missing
            file.write(b"\n")
            end = len(content) + 1
        else:
            file.truncate(end)
    except BaseException:
        file.close()
        raise
    return Journal(file, end)


def scan_journal(path: Path) -> Iterator[tuple[int, WorkItem | str]]:
    """Line by line, the place of each and its item; or a sentence for one that cannot be used, as in `read_journal`."""
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            item = _item(line.rstrip(b"\n"))
            yield place, item or _damage(path, number, whole=line.endswith(b"\n"))
            place += len(line)


def scan_outcomes(path: Path) -> Iterator[tuple[WorkItem, str, float]]:
    """(item, outcome as it was judged when written, seconds) of each line that can be used; nothing where there is no file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if (found := _decoded(line.rstrip(b"\n"), _HEAD)) is not None:
                yield found.evidence.item, found.outcome, found.evidence.seconds


def read_journal(path: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """What the journal at `path` holds, also while it is being written.

    Returns:
        The records in the order of writing, the last one where an item has several; and a sentence for each line that cannot be used.
    """
    *lines, tail = path.read_bytes().split(b"\n") if path.exists() else [b""]
    records: dict[WorkItem, Record] = {}
    damage = []
    for number, line in enumerate([*lines, *([tail] if tail else [])], 1):
        if record := _record(line):
            records.pop(record.evidence.item, None)
            records[record.evidence.item] = record
        else:
            damage.append(_damage(path, number, whole=number <= len(lines)))
    return tuple(records.values()), tuple(damage)


def _damage(path: Path, number: int, *, whole: bool) -> str:
    what = "damaged" if whole else "cut short"
    return f"{path} line {number} is {what} and is left out: its item is to be done again, if no later line has it"


@dataclass(frozen=True, slots=True)
class _About:
    item: WorkItem
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Head:
    """The part of a record that says what it is of and how it ended; the rest is skipped unread."""

    evidence: _About
    outcome: str = ""


_RECORD = msgspec.json.Decoder(Record)
_HEAD = msgspec.json.Decoder(_Head)


def _record(line: bytes) -> Record | None:
    """The record that a line holds, if it is whole."""
    return _decoded(line, _RECORD)


def _item(line: bytes) -> WorkItem | None:
    """The item of the record that a line holds, if it is whole."""
    found = _decoded(line, _HEAD)
    return None if found is None else found.evidence.item


def _decoded(line: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    body = b"{" + line[_SUM_LENGTH:]
    if line[:_SUM_LENGTH] != _SUM % zlib.crc32(body):
        return None
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        return None
