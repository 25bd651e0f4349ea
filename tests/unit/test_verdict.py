"""The values of a run: plain data that says the same after a trip through JSON."""

from __future__ import annotations

import dataclasses
import pickle

import msgspec
import numpy as np
import pytest

from gradcheck import Band, Evidence, ExitCode, Measurement, MutantVerdict, Outcome, Quantity, Truth, Verdict, WorkItem

ITEM = WorkItem("ssm_scan", "mlx", "ssm_scan/B2,T5,mamba2/f32/typical/7", "drop")
MEASUREMENT = Measurement(
    "d x",
    checked=10,
    errors={"z": 1.0, "l2": None},
    ratios={"z": 2.0, "l2": None},
    diluted={"last step": 3.0},
    worst=(1, 2),
    got=1.0,
    want=-1.0,
    worst_step=2,
    profile=(0.0, None, 4.0),
)
EVIDENCE = Evidence(ITEM, "measured", (MEASUREMENT,), notes=("overwrites its input x",), seconds=0.5)
VALUES = [
    ITEM,
    MEASUREMENT,
    EVIDENCE,
    Verdict(ITEM, Outcome.FAILED, "why", EVIDENCE),
    MutantVerdict("mlx", "drop", "mamba2", "full", Outcome.KILLED, 3, 2, "d x", "z", ITEM.case, None),
    Band("ssm_scan", "mlx", "f32", "d x", "z", 1.0, 4.0, None, 1e6, "drop"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_survives_json_and_pickle_and_cannot_be_changed(value):
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert not hasattr(value, "__dict__")
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "other")


def test_a_value_that_is_not_finite_would_be_lost_in_json_and_so_is_none():
    assert msgspec.json.decode(msgspec.json.encode(float("nan"))) is None
    assert msgspec.json.decode(msgspec.json.encode(MEASUREMENT), type=Measurement).ratios["l2"] is None


def test_items_of_a_plan_have_names_of_their_own():
    items = [
        WorkItem(op, kernel, case, mutant)
        for op in ("a",)
        for kernel in ("k", "l")
        for case in ("a/B2/f32/r/1", "a/B2/f32/r/2")
        for mutant in ("", "canary", "drop")
    ]
    assert len({item.id for item in items}) == len(items)


def test_every_outcome_is_a_sentence_of_its_own():
    assert len({str(outcome) for outcome in Outcome}) == len(Outcome.__members__)
    assert all(" " in outcome and outcome == outcome.value for outcome in Outcome)


@pytest.mark.parametrize(
    "codes, worst",
    [
        ((), 0),
        ((0, 6), 6),
        ((6, 3), 3),
        ((3, 5), 5),
        ((5, 4), 4),
        ((4, 1), 1),
        ((1, 2), 2),
        ((2, 70), 70),
        ((70, 130), 130),
        ((6, 3, 1, 4), 1),
    ],
)
def test_the_gravest_exit_code_wins(codes, worst):
    assert ExitCode.worst(*map(ExitCode, codes)) == worst
    assert ExitCode.worst(*map(ExitCode, reversed(codes))) == worst


def test_a_truth_lists_outputs_before_gradients():
    quantity = Quantity(np.ones(1), np.zeros(1), np.ones(1))
    truth = Truth("costate", {"y": quantity, "s_T": quantity}, {"x": quantity, "dt": quantity})
    assert list(truth.quantities()) == ["y", "s_T", "d x", "d dt"]
