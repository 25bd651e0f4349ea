"""Files of a run folder: JSON that is never seen half written, and errors of the file system that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gradcheck._errors import GradcheckError

T = TypeVar("T")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a file system that takes no more: nobody's bug."""


class StoreError(GradcheckError):
    """A run folder that cannot be read or written: disk full, read-only, damaged, of another version."""


def decode(path: Path, kind: type[T]) -> T:
    """The JSON file `path` as `kind`."""
    with trouble(path, "make it readable"):
        content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} is damaged ({error}): leave it and start a new run") from error


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON for people to read too."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under another name first: it is never seen half written."""
    private = path.with_suffix(".tmp")
    with private.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    private.replace(path)


@contextlib.contextmanager
def trouble(path: object, then: str) -> Iterator[None]:
    """Turn an error of the file system into one that names the path and the next step."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot use {path}: {error.strerror or error}. So {then}.") from error
