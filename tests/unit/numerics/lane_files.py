"""The compiled lanes of the shipped ops, run as plain Python: with `njit` a function that changes nothing, and perhaps an edit of the text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from unittest import mock

from gradcheck import Op
from gradcheck.suite import load

OPS: Mapping[str, Op] = load().ops
FILES = {
    "ssm_scan": ("_ssm_scan_lanes.py", "answers"),
    "gated_delta": ("_gated_delta_lanes.py", "answers"),
    "gated_delta_update": ("_gated_delta_lanes.py", "answers_of_update"),
}
"""Where the compiled function of an op is, and what it is called there."""


def lanes(edits: Mapping[str, str] | None = None, op: str = "ssm_scan"):
    """The function of `op`, after each of these replacements in its file, which must fit exactly once."""
    file, name = FILES[op]
    text = (Path(OPS[op].file).parent / file).read_text(encoding="utf-8")
    for find, instead in (edits or {}).items():
        assert text.count(find) == 1, find
        text = text.replace(find, instead)
    numba = ModuleType("numba")
    numba.njit = lambda **_: lambda function: function  # type: ignore[attr-defined]
    module = ModuleType("lanes_as_python")
    module.__package__ = OPS[op].step.__module__.rpartition(".")[0]  # beside the op, whose helpers it imports
    with mock.patch.dict(sys.modules, {"numba": numba, module.__name__: module}):
        exec(compile(text, file, "exec"), vars(module))
    return vars(module)[name]
