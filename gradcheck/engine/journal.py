"""verdicts.jsonl: append-only, one line per finished item, each with its own checksum, so that a crash costs at most the last one.

Errors of the file system pass through as `OSError`; the run folder says what they mean for the run.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from gradcheck._verdict import Evidence, WorkItem

SYNC_SECONDS = 2.0
"""How much finished work a power cut may cost. A crash of the process costs none."""

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

    def append(self, record: Record) -> None:
        """Write one line. Once this returns, a crash of the process cannot lose it; if it raises, all before it is whole."""
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
        self._end += len(line)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

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
            what = "damaged" if number <= len(lines) else "cut short"
            damage.append(f"{path} line {number} is {what} and is left out: its item is to be done again, if no later line has it")
    return tuple(records.values()), tuple(damage)


_RECORD = msgspec.json.Decoder(Record)


def _record(line: bytes) -> Record | None:
    """The record that a line holds, if it is whole."""
    body = b"{" + line[_SUM_LENGTH:]
    if line[:_SUM_LENGTH] != _SUM % zlib.crc32(body):
        return None
    try:
        return _RECORD.decode(body)
    except msgspec.DecodeError:
        return None
