"""What the last run saw soonest is run first, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck import WorkItem
from gradcheck.engine import store
from gradcheck.engine.order import kill_rates

from .canned import FOLDER, answer, go, install


@pytest.fixture
def done(monkeypatch, tmp_path):
    """Every case takes as long as its seed is large, so that the last of the grid are the dearest."""
    return install(monkeypatch, tmp_path, lambda item: replace(answer(item), seconds=1.0 / (1 + int(item.case.rpartition("/")[2]))))


def first_wave(items: list[WorkItem]) -> list[str]:
    """The cases of the first wave, in order."""
    return list(dict.fromkeys(item.case for item in items if item.mutant == "drop_decay"))[:4]


def outcomes(run_id: str) -> dict[WorkItem, str]:
    return {record.evidence.item: record.outcome for record in store.read(FOLDER, run_id).records}


def test_the_cheapest_killing_case_of_the_last_run_comes_first_and_the_verdicts_are_the_same(done):
    assert kill_rates(FOLDER, "leaky_scan") == {}
    before = go()
    planned = first_wave(done)
    rates = kill_rates(FOLDER, "leaky_scan")
    done.clear()
    after = go()
    assert first_wave(done) == sorted(planned, key=lambda case: -rates[case]) != planned
    assert outcomes(before.id) == outcomes(after.id)
    assert replace(after, id="", seconds=0, environment={}, verdicts=(), checks=()) == replace(
        before, id="", seconds=0, environment={}, verdicts=(), checks=()
    )


def test_a_case_at_which_nothing_was_seen_comes_after_those_that_saw_something(monkeypatch, tmp_path):
    blind = ""

    def give(item: WorkItem):
        right = answer(item)
        return replace(right, measurements=answer(replace(item, mutant="")).measurements) if item.mutant and item.case == blind else right

    done = install(monkeypatch, tmp_path, give)
    go()
    planned = first_wave(done)
    blind = planned[0]
    go()
    done.clear()
    go()
    assert first_wave(done)[-1] == blind


def test_only_finished_runs_of_the_same_op_are_learned_from(done):
    run = go()
    assert kill_rates(FOLDER, "other") == {}
    (FOLDER / "runs" / run.id / "run.json").unlink()
    assert kill_rates(FOLDER, "leaky_scan") == {}


def test_a_damaged_journal_is_no_reason_to_fail(done):
    run = go()
    file = FOLDER / "runs" / run.id / "verdicts.jsonl"
    whole = kill_rates(FOLDER, "leaky_scan")
    file.write_bytes(b"\xff{\n" + file.read_bytes()[:-30])
    assert kill_rates(FOLDER, "leaky_scan").keys() <= whole.keys()
    file.unlink()
    assert kill_rates(FOLDER, "leaky_scan") == {}
