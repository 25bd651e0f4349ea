"""Read and write `reports/published/<op>.json`, the bands under version control."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gradcheck._errors import UsageError
from gradcheck.calibrate.page import page
from gradcheck.calibrate.published import Published
from gradcheck.engine.truth import sources_of
from gradcheck.suite import Suite, find_op


def file_of(suite: Suite, op: str) -> Path:
    """Where the bands of an op are published."""
    return suite.homes[op].path / "reports" / "published" / f"{op}.json"


def read_published(suite: Suite, op: str, path: Path | None = None) -> Published | None:
    """The published bands of an op, from where the suite has them or another file; None where there are none, or they are of other sources.

    Raises:
        UsageError: the file cannot be read.
    """
    path = path or file_of(suite, op)
    if not path.is_file():
        return None
    found = parse_published(path.read_bytes(), path)
    return found if found.sources == sources_of(find_op(suite, op)) else None


def parse_published(content: bytes, path: Path) -> Published:
    """The bands that this content of a file holds.

    Raises:
        UsageError: it holds none.
    """
    try:
        return msgspec.json.decode(content, type=Published)
    except msgspec.DecodeError as error:
        raise UsageError(f"published bands {path}: {error}. Make them anew: gradcheck calibrate --op {path.stem}") from error


def write_published(suite: Suite, published: Published) -> Path:
    """Write the bands where `run` finds them."""
    path = file_of(suite, published.op)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(published), indent=1) + b"\n")
    return path


def page_of(folder: Path) -> str:
    """The page of all bands that are published in a folder, whatever sources they are of.

    Raises:
        UsageError: a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        if "." in path.stem:  # `op.self.json` holds the setting of another comparison
            continue
        found.append(parse_published(path.read_bytes(), path))
    return page(found)


def write_page(folder: Path) -> Path:
    """Write the page beside the bands, as the folder's README."""
    path = folder / "README.md"
    path.write_text(page_of(folder), encoding="utf-8")
    return path
