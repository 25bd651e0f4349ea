"""The compiled lanes of the scan, run as plain Python: with `njit` a function that changes nothing, and perhaps an edit of the text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from unittest import mock

from gradcheck import Op
from gradcheck.suite import load

SCAN: Op = load().ops["ssm_scan"]
TEXT = (Path(SCAN.file).parent / "_ssm_scan_lanes.py").read_text(encoding="utf-8")


def lanes(edits: Mapping[str, str] | None = None):
    """`answers` of the file, after each of these replacements, which must fit exactly once."""
    text = TEXT
    for find, instead in (edits or {}).items():
        assert text.count(find) == 1, find
        text = text.replace(find, instead)
    numba = ModuleType("numba")
    numba.njit = lambda **_: lambda function: function  # type: ignore[attr-defined]
    module = ModuleType("lanes_as_python")
    with mock.patch.dict(sys.modules, {"numba": numba}):
        exec(compile(text, "_ssm_scan_lanes.py", "exec"), vars(module))
    return module.answers
