"""The folder in which a worker and its parent leave each other word about an item: what it wrote, and who works on it.

Files outlive the process that wrote them, so they say which item a dead worker had, whatever pebble heard from it before it died.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TAIL = 4096
_ROOM = 256 << 20  # bytes; a log longer than this is cut while it grows, so that a babbling kernel fills no disk


@dataclass(frozen=True, slots=True)
class Mark:
    """Who works on an item, since when (seconds since the epoch), and the resident bytes it held then."""

    pid: int
    held: int
    since: float


@dataclass(frozen=True, slots=True)
class Desk:
    """One folder for one run; items are known by number."""

    folder: Path

    def log(self, number: int) -> Path:
        """The file that the worker's stdout and stderr go to while it works on this item."""
        return self.folder / f"{number}.log"

    def begin(self, number: int, held: int) -> None:
        """Say that this process begins to work on an item."""
        self._mark(number).write_text(f"{os.getpid()} {held}", encoding="ascii")

    def mark(self, number: int) -> Mark | None:
        """Who works on an item, or None if nobody has begun."""
        path = self._mark(number)
        try:
            pid, held = path.read_text(encoding="ascii").split()
            return Mark(int(pid), int(held), path.stat().st_mtime)
        except (OSError, ValueError):  # not there, or written this very moment
            return None

    def tail(self, number: int) -> str:
        """The end of what the worker wrote."""
        try:
            with self.log(number).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                return file.read(_TAIL).decode(errors="replace")
        except OSError:
            return ""

    def shorten(self, number: int) -> None:
        """Cut a log that has become too long down to its end. Workers append, so they go on where it now ends."""
        path = self.log(number)
        try:
            if path.stat().st_size > _ROOM:
                end = self.tail(number)
                os.truncate(path, 0)
                with path.open("a", encoding="utf-8") as file:
                    file.write(end)
        except OSError:  # the item is over and its log is gone
            return

    def clear(self, number: int) -> None:
        """Forget an item."""
        self.log(number).unlink(missing_ok=True)
        self._mark(number).unlink(missing_ok=True)

    def _mark(self, number: int) -> Path:
        return self.folder / f"{number}.worker"
