"""Truths on disk, found by the content of everything they depend on. Any number of processes may use the folder at once."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from gradcheck._files import cache_folder, write_whole
from gradcheck._truth import Quantity, Truth
from gradcheck.engine.mutate import files_of

Extras = Mapping[str, object]

FORMAT = "gradcheck truth 1"
"""Changes with the layout of the files: those of another format are not found."""

_LOOK = 8192
"""Bytes at the begin of a file that tell whether it is text."""

_SEAL = hashlib.sha256().digest_size
_PARTS = ("value", "error", "majorant")


def folder() -> Path:
    """Where truths are kept: `$GRADCHECK_CACHE_DIR/truth`, or else in the user's cache folder."""
    return cache_folder("truth")


def key_of(parts: Mapping[str, str]) -> str:
    """The key for everything that a truth depends on, by name; the order of the names does not matter."""
    return _digest([FORMAT, *(text for name in sorted(parts) for text in (name, parts[name]))])


def source_digest(paths: Iterable[Path]) -> str:
    """A digest of these files, and of the text files of these packages, in whatever language: of names and contents, not of where they lie.

    What is no text (compiled, or data) is left out: a kernel may make such files while it runs.
    """
    files = []
    for path in paths:
        within = [file for file in files_of(path) if _is_text(file)] if path.is_dir() else [path]
        files += [(file.relative_to(path.parent).as_posix(), file.read_text("utf-8", errors="replace")) for file in within]
    return _digest(text for file in sorted(files) for text in file)


def _is_text(file: Path) -> bool:
    with file.open("rb") as opened:
        return b"\0" not in opened.read(_LOOK)


def get(key: str) -> tuple[Truth, dict[str, object]] | None:
    """The truth kept under `key` and its extras; None where there is none, or the file is not whole."""
    try:
        content = (folder() / f"{key}.npz").read_bytes()
    except OSError:
        return None
    # The seal covers all bytes and the key, so a file that bears it was written by `put` below and needs no other check.
    payload, seal = content[:-_SEAL], content[-_SEAL:]
    if seal != _seal(key, payload):
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        numbers, about = stored["numbers"], json.loads(stored["about"].tobytes())
    ends = np.cumsum([int(np.prod(shape)) for _, _, shape in about["arrays"]])
    pieces = [piece.reshape(shape) for piece, (_, _, shape) in zip(np.split(numbers, ends[:-1]), about["arrays"], strict=False)]
    kinds: dict[str, dict[str, Quantity]] = {"outputs": {}, "gradients": {}}
    for first in range(0, len(pieces), len(_PARTS)):
        kind, name, _ = about["arrays"][first]
        kinds[kind][name] = Quantity(*pieces[first : first + len(_PARTS)])
    return Truth(about["oracle"], kinds["outputs"], kinds["gradients"]), about["extras"]


def whole(file: Path) -> bool:
    """Whether a file holds what `put` has written under its name."""
    content = file.read_bytes()
    return content[-_SEAL:] == _seal(file.stem, content[:-_SEAL])


def put(key: str, truth: Truth, extras: Extras) -> bool:
    """Keep a truth and a few JSON-able `extras` under `key`, bit for bit.

    Returns:
        False where the folder cannot be written (read-only, full): the run goes on, uncached.
    """
    arrays = [
        (kind, name, np.asarray(getattr(quantity, part), np.float64))
        for kind, quantities in (("outputs", truth.outputs), ("gradients", truth.gradients))
        for name, quantity in quantities.items()
        for part in _PARTS
    ]
    about = {"oracle": truth.oracle, "extras": dict(extras), "arrays": [(kind, name, array.shape) for kind, name, array in arrays]}
    # One long array, since reading a member of an archive costs more than the numbers in it.
    numbers = np.concatenate([np.zeros(0), *(array.ravel() for _, _, array in arrays)])
    buffer = io.BytesIO()
    np.savez(buffer, numbers=numbers, about=np.frombuffer(json.dumps(about).encode(), np.uint8))
    payload = buffer.getvalue()
    try:
        write_whole(folder() / f"{key}.npz", payload + _seal(key, payload))
    except OSError:
        return False
    return True


def _seal(key: str, payload: bytes) -> bytes:
    return hashlib.sha256(f"{FORMAT} {key} ".encode() + payload).digest()


def _digest(texts: Iterable[str]) -> str:
    """A digest that no other list of texts has: each is preceded by its length."""
    sha = hashlib.sha256()
    for text in texts:
        data = text.encode()
        sha.update(f"{len(data)} ".encode() + data)
    return sha.hexdigest()
