"""Read and write `reports/published/<op>.json`, the bands under version control."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gradcheck._errors import UsageError
from gradcheck.calibrate.published import Published
from gradcheck.engine.truth import sources_of
from gradcheck.suite import Suite, find_op


def file_of(suite: Suite, op: str) -> Path:
    """Where the bands of an op are published."""
    return suite.homes[op].path / "reports" / "published" / f"{op}.json"


def read_published(suite: Suite, op: str) -> Published | None:
    """The published bands of an op; None where there are none, or they are of other sources.

    Raises:
        UsageError: the file cannot be read.
    """
    path = file_of(suite, op)
    if not path.is_file():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Published)
    except msgspec.DecodeError as error:
        raise UsageError(f"published bands {path}: {error}. Make them anew: gradcheck calibrate --op {op}") from error
    return found if found.sources == sources_of(find_op(suite, op)) else None


def write_published(suite: Suite, published: Published) -> Path:
    """Write the bands where `run` finds them."""
    path = file_of(suite, published.op)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(published), indent=1) + b"\n")
    return path
