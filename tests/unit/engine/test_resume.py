"""A run that was stopped after any of its items goes on to what it would have come to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gradcheck import Run
from gradcheck.engine import store
from gradcheck.engine.run import resume

from .canned import FOLDER, go, install


@pytest.fixture
def done(monkeypatch, tmp_path):
    return install(monkeypatch, tmp_path)


def lines_of(path: Path) -> list[bytes]:
    return (path / "verdicts.jsonl").read_bytes().splitlines(keepends=True)


def essence(run: Run) -> Run:
    return replace(run, seconds=0.0)


def test_wherever_it_was_stopped_it_comes_to_the_same_items_and_the_same_run(done):
    whole = go()
    path = FOLDER / "runs" / whole.id
    lines, items = lines_of(path), list(done)
    assert len(items) < len(store.read(FOLDER, whole.id).plan.items), "no mutant was settled early: nothing was put to the test"
    first = next(number for number, item in enumerate(items) if item.mutant)
    switches = [number + 1 for number, (one, other) in enumerate(pairwise(items)) if one.mutant != other.mutant]
    for stop in sorted({1, first // 2, *range(first, len(lines), 9), *switches, len(lines) - 1}):
        (path / "run.json").unlink()
        (path / "verdicts.jsonl").write_bytes(b"".join(lines[:stop]))
        run = resume(whole.id, folder=FOLDER, tell=lambda _: None)
        assert sorted(lines_of(path)) == sorted(lines), f"stopped after {stop} items"
        assert essence(run) == essence(whole)
