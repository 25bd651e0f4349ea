"""The JSON Schema of the `json` report, made from the values themselves by the rules by which they are written."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from gradcheck import Outcome, Run

Node = dict[str, object]
_PLAIN: Mapping[object, Node] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # what is not finite is written as null
}


def schema(name: str) -> Node:
    """The schema of a run that is written under this name."""
    defined: dict[str, Node] = {}
    top = _object(Run, defined)
    properties = {"schema": {"const": name}, **typing.cast("Node", top["properties"]), "outcomes": _outcomes()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':')}",
        "title": "A run of gradcheck, as `gradcheck report --format json` and `gradcheck run --json` write it",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": defined,
    }


def _outcomes() -> Node:
    names = [outcome.name for outcome in Outcome]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names, "additionalProperties": False}


def _object(value: type, defined: dict[str, Node]) -> Node:
    hints = typing.get_type_hints(value)
    assert is_dataclass(value)
    names = [field.name for field in fields(value)]
    properties = {name: _node(hints[name], defined) for name in names}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _node(hint: object, defined: dict[str, Node]) -> Node:  # noqa: PLR0911 - one per kind of type
    """What a value of this type is written as."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _node(args[0], defined)}
    if origin in (Mapping, dict):
        return {"type": "object", "additionalProperties": _node(args[1], defined)}
    if origin in (typing.Union, types.UnionType):
        (some,) = (arg for arg in args if arg is not types.NoneType)
        inner = _node(some, defined)
        return inner if inner.get("type") == ["number", "null"] else {"anyOf": [inner, {"type": "null"}]}
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return {"enum": [one.name for one in hint]}
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return {"enum": [int(one) for one in hint]}
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ not in defined:
            defined[hint.__name__] = {}
            defined[hint.__name__] = _object(hint, defined)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"a value of type {hint} has no JSON; say in reports/json.py how it is written")
