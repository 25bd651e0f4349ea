"""The folder of compiled kernels. Code from it is loaded into processes, so nobody else may be able to write there."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gradcheck._files import cache_folder
from gradcheck.metal.errors import MetalError

FORMAT = "gradcheck metal 1"
"""Changes with the layout of the files."""

_ROOT = 0


def folder() -> Path:
    """The folder, which exists and is this user's alone; a private one for this process where the cache cannot be written.

    Raises:
        MetalError: others can write to it, or to a folder above it.
    """
    return _prepared(cache_folder("metal"))


@functools.lru_cache(maxsize=8)
def _prepared(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _private()
    if not os.access(path, os.W_OK | os.X_OK):
        return _private()
    for above in (path.resolve(), *path.resolve().parents):
        if why := _exposed(above):
            raise MetalError(
                f"compiled kernels are not loaded from {path}: {above} {why}. "
                f"Take that right away (`chmod go-w {above}`), or set GRADCHECK_CACHE_DIR to a folder of your own."
            )
    return path


def require_own(file: Path) -> None:
    """Refuse a library that somebody else may have written, wherever it lies and whoever may write to that folder now.

    Raises:
        MetalError: it belongs to another user, or others can write it.
    """
    if why := _exposed(file.resolve()):
        raise MetalError(
            f"the compiled kernel {file} is not loaded: it {why}. Delete it, and it is compiled anew: `gradcheck cache clear metal` does."
        )


def _exposed(path: Path) -> str:
    """Why somebody else could put a file in the place of ours, or nothing. In a sticky folder nobody can take another's away."""
    about = path.stat()
    if about.st_uid not in {os.geteuid(), _ROOT}:
        return f"belongs to user {about.st_uid}"
    if stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX:
        return ""
    if about.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if about.st_mode & stat.S_IWGRP and about.st_gid not in {os.getegid(), 0}:
        return f"can be written by group {about.st_gid}"
    return ""


@functools.lru_cache(maxsize=1)
def _private() -> Path:
    path = Path(tempfile.mkdtemp(prefix="gradcheck-metal-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def sum_of(file: Path) -> str:
    """A checksum of what a file holds."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digest(texts: Iterable[str]) -> str:
    """A digest that no other list of texts has: each is preceded by its length."""
    sha = hashlib.sha256(FORMAT.encode())
    for text in texts:
        data = text.encode()
        sha.update(f" {len(data)} ".encode() + data)
    return sha.hexdigest()[:40]
