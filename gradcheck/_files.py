"""Where this user's caches lie, and files that any number of processes may write and read at once. Imports nothing of ours."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs


def cache_folder(kind: str) -> Path:
    """`$GRADCHECK_CACHE_DIR/kind`, or else in the user's cache folder. It may not exist yet."""
    return Path(os.environ.get("GRADCHECK_CACHE_DIR") or platformdirs.user_cache_dir("gradcheck")) / kind


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder and below. One that goes while it is looked at has none, as has a folder that is not there."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(where, name).lstat().st_size
    return total


def write_whole(path: Path, content: bytes) -> None:
    """Under a private name first: whoever reads `path` sees a whole file, the old or the new.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    private = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        private.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            private.unlink()
        raise
