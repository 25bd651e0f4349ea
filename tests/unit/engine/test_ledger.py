"""What is done: mutants lie on disk and read as if they were at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck import Evidence, Measurement, WorkItem
from gradcheck.engine import store
from gradcheck.engine.ledger import Ledger
from gradcheck.engine.store import StoreError

CLEAN, CHECK, MUTANT = (WorkItem("op", "k", "op/T5/f32/r/0", *more) for more in (("",), ("", "taint"), ("m",)))
ITEMS = (CLEAN, CHECK, MUTANT)


def evidence(item: WorkItem, size: float = 1.5) -> Evidence:
    return Evidence(item, "measured", (Measurement("d x", ratios={"z": size}),), "a\nb " + "long " * 9000, notes=("one",))


@pytest.fixture
def run(tmp_path):
    with store.create(tmp_path, store.Manifest("op", {}, ITEMS, {}, "d")) as opened:
        yield opened


def test_what_is_kept_reads_as_it_was_whether_at_hand_or_not(run):
    done, _ = run.ledger()
    for item in ITEMS:
        done.keep(evidence(item), run.append(evidence(item), "x"))
    assert list(done) == [*ITEMS]
    for item in ITEMS:
        got, want = done[item], evidence(item)
        assert (got.item, got.status, got.measurements, got.detail, got.notes) == (
            want.item, want.status, want.measurements, want.detail, want.notes,
        )  # fmt: skip


def test_what_an_earlier_process_left_is_found_and_the_last_time_counts(run):
    for item, size in ((MUTANT, 1.0), (CLEAN, 2.0), (MUTANT, 3.0)):
        run.append(evidence(item, size), "x")
    done, damage = run.ledger()
    assert (list(done), damage) == ([CLEAN, MUTANT], ())
    assert [one.measurements[0].ratios["z"] for one in done.values()] == [2.0, 3.0]
    assert next(iter(done)) is CLEAN, "items of the plan are held once"


def test_a_damaged_line_is_named_and_its_item_is_not_done(run):
    for item in ITEMS:
        run.append(evidence(item), "x")
    file = run.path / "verdicts.jsonl"
    content = bytearray(file.read_bytes())
    content[content.index(b"\n") + 40] ^= 1
    file.write_bytes(content)
    done, damage = run.ledger()
    assert list(done) == [CLEAN, MUTANT]
    assert len(damage) == 1
    assert "line 2 is damaged" in damage[0]


def test_a_line_that_is_damaged_while_the_run_goes_on_is_an_error_and_not_other_numbers(run):
    done, _ = run.ledger()
    done.keep(evidence(MUTANT), run.append(evidence(MUTANT), "x"))
    file = run.path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes().replace(b"1.5", b"0.5"))
    with pytest.raises(StoreError, match=r"verdicts\.jsonl"):
        _ = done[MUTANT].measurements


def test_evidence_is_read_once_for_many_looks():
    reads = []
    done = Ledger([MUTANT], lambda place: reads.append(place) or replace(evidence(MUTANT), seconds=place))
    done.note(MUTANT, 7)
    assert not reads
    assert {done[MUTANT].seconds, done[MUTANT].seconds, done[MUTANT].status} == {7, "measured"}
    assert reads == [7]
