"""The run as JSON, for machines: everything that is known, in a fixed order."""

from __future__ import annotations

import json as _json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum, StrEnum

from gradcheck import Outcome, Run, report

SCHEMA = "gradcheck.run/1"


@report(suffix=".json")
def json(run: Run) -> str:
    """`run` as one JSON object: `schema`, the fields of `Run`, and `outcomes`, which says what each outcome means.

    Outcomes are their names (`KILLED`), the exit code is its number; a number that is not finite is null.
    """
    whole = {"schema": SCHEMA, **_fields(run), "outcomes": {outcome.name: outcome.value for outcome in Outcome}}
    return _json.dumps(whole, allow_nan=False) + "\n"


def _fields(value: object) -> dict[str, object]:
    """A value's fields in the order in which it declares them."""
    assert is_dataclass(value)
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    """`value` as JSON knows it."""
    match value:
        case StrEnum():
            return value.name
        case IntEnum():
            return int(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return _fields(value) if is_dataclass(value) else value
