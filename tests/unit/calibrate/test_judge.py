"""Evidence against tolerances: what is not within them never passes."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck import Mutant, Outcome
from gradcheck._verdict import CANARY, METRICS, NULL, Status
from gradcheck.calibrate.judge import FORMS, judge, kill_table, margin, within

sys.path.insert(0, str(Path(__file__).parent))

from recorded import CASE, evidence, measurement, table  # type: ignore[import-not-found]

LIMIT = 4.0
LIMITS = table("d x", "d A", "y", noise=LIMIT)
BY_DTYPE = {"f32": LIMITS, "f16": table("d x", noise=100.0)}


def mutant(name: str = "m", **changes: str) -> Mutant:
    return Mutant(op="op", why="w", defect="d", seen_in="s", edits={}, name=name, **changes)  # type: ignore[arg-type]


@given(st.floats(0, 1e6))
def test_a_measurement_is_within_up_to_its_tolerance(size):
    assert within(measurement(size=size), LIMITS) == (size <= LIMIT)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, None, 1.001 * LIMIT])
def test_one_bad_metric_among_good_ones_is_not_within(metric, bad):
    one = measurement(ratios=dict.fromkeys(METRICS, 0.0) | {metric: bad})
    assert not within(one, LIMITS)
    assert margin(one, LIMITS)[1] == metric


def test_nan_stays_the_worst_wherever_it_stands_among_the_metrics():
    for metric in METRICS:
        ratios = dict.fromkeys(METRICS, 1e9) | {metric: math.nan}
        assert not within(measurement(ratios=ratios), LIMITS)


def test_the_margin_is_of_the_metric_that_stands_out_most():
    one = measurement(ratios={"z": 2.0, "l2": 12.0, "max": 8.0, "slice": 0.0, "maa": 1.0})
    assert margin(one, LIMITS) == (3.0, "l2")


@pytest.mark.parametrize(
    "changes, ok",
    [
        ({"problem": "is missing"}, False),
        ({"zero": "zero-kept", "ratios": {}}, True),
        ({"zero": "zero-broken", "ratios": {}}, False),
    ],
)
def test_what_could_not_be_compared_is_not_within_and_a_kept_zero_is(changes, ok):
    assert within(measurement(**changes), LIMITS) is ok


@pytest.mark.parametrize("status", [status for status in get_args(Status) if status != "measured"])
def test_what_was_not_measured_never_passes(status):
    verdict = judge(evidence(status=status, detail="why"), LIMITS)
    assert verdict.outcome not in {Outcome.PASSED, Outcome.PASSED_ZERO}
    assert verdict.why == "why"


def test_a_clean_kernel_passes_and_one_bad_gradient_fails_it_by_name_and_step():
    good, bad = measurement(), measurement("d A", 40.0, worst=(1, 3), worst_step=3)
    assert judge(evidence(good), LIMITS).outcome is Outcome.PASSED
    verdict = judge(evidence(good, bad), LIMITS)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.why.startswith("d A at [1, 3]")
    assert verdict.why.endswith("step 3: z is 10 times its tolerance")


def test_a_note_fails_a_kernel_whatever_its_numbers():
    verdict = judge(evidence(measurement(size=0.0), notes=("overwrites its input x",)), LIMITS)
    assert (verdict.outcome, verdict.why) == (Outcome.FAILED, "overwrites its input x")


@pytest.mark.parametrize(
    "gradients, outcome",
    [
        ([{"zero": "zero-kept"}, {"zero": "zero-kept"}], Outcome.PASSED_ZERO),
        ([{"zero": "zero-kept"}, {}], Outcome.PASSED),
        ([{"informative": False}, {"informative": False}], Outcome.UNINFORMATIVE),
        ([{"informative": False}, {}], Outcome.PASSED),
        ([{"zero": "zero-broken"}, {}], Outcome.FAILED),
    ],
)
def test_a_pass_says_what_it_saw_of_the_gradients(gradients, outcome):
    """The output y is fine in every row: it must not make up for gradients that say nothing."""
    found = [measurement(name, **changes) for name, changes in zip(("d x", "d A"), gradients, strict=True)]
    assert judge(evidence(measurement("y"), *found), LIMITS).outcome is outcome


def rows(group, mutants=(), **changes):
    return {row.form: row for row in kill_table(group, {one.name: one for one in mutants}, BY_DTYPE, {("k", "m"): "diff"}, **changes)}


def diluted(step: float | None, head: float | None, size: float = 40.0):
    return measurement(size=size, diluted={"last step": step, "one head": head})


def test_each_form_of_a_defect_has_a_row_of_its_own():
    found = rows([evidence(diluted(1.0, 8.0), mutant="m"), evidence(diluted(2.0, None), mutant="m", seed=1)], [mutant()])
    assert tuple(found) == FORMS
    assert [(row.outcome, row.kills, row.cases) for row in found.values()] == [
        (Outcome.KILLED, 2, 2),
        (Outcome.SURVIVED, 0, 2),
        (Outcome.KILLED, 2, 2),
    ]
    assert found["full"].margin == 10
    assert (found["last step"].margin, found["last step"].metric, found["last step"].case) == (0.5, "slice", CASE.format(seed=1))
    assert found["one head"].margin is None  # beyond all bounds: the None of seed 1
    assert {row.diff for row in found.values()} == {"diff"}


def test_a_row_has_the_margin_of_each_quantity_over_all_its_cases():
    def both(x, a):
        return measurement("d x", x, diluted={"last step": x}), measurement("d A", a, diluted={"last step": a})

    found = rows([evidence(*both(40.0, 1.0), mutant="m"), evidence(*both(2.0, None), mutant="m", seed=1)], [mutant()])
    assert found["full"].margins == {"d x": 10.0, "d A": None}
    assert found["last step"].margins == {"d x": 10.0, "d A": None}
    assert (found["full"].margin, found["full"].quantity) == (None, "d A")


def test_a_gradient_without_such_an_axis_has_no_diluted_row_and_outputs_are_not_diluted():
    one = measurement(size=40.0, diluted={"one head": 8.0})
    assert set(rows([evidence(one, measurement("y", diluted={"last step": 99.0}), mutant="m")], [mutant()])) == {"full", "one head"}


def test_a_slice_that_the_defect_leaves_as_it_was_is_no_diluted_form_of_it():
    """The adjoint without its decay is right at the last step, whatever the size of the last step's own noise."""
    found = rows([evidence(diluted(1.0, 8.0), mutant="m")], [mutant()], clean=[evidence(diluted(1.0, 0.5))])
    assert set(found) == {"full", "one head"}
    moved = rows([evidence(diluted(1.25, 8.0), mutant="m")], [mutant()], clean=[evidence(diluted(1.0, 0.5))])
    assert moved["last step"].outcome is Outcome.SURVIVED


@pytest.mark.parametrize("name", [CANARY, NULL])
def test_canary_and_null_are_not_diluted(name):
    assert set(rows([evidence(diluted(9.0, 9.0), mutant=name)])) == {"full"}


def test_a_defect_within_tolerance_everywhere_has_survived_and_one_kill_is_enough():
    quiet, loud = evidence(measurement(), mutant="m"), evidence(measurement(size=None), mutant="m", seed=1)
    assert rows([quiet], [mutant()])["full"].outcome is Outcome.SURVIVED
    row = rows([quiet, loud], [mutant()])["full"]
    assert (row.outcome, row.kills, row.cases, row.case) == (Outcome.KILLED, 1, 2, CASE.format(seed=1))


@pytest.mark.parametrize("size", [math.nan, None, math.inf])
def test_what_is_not_a_number_is_a_kill(size):
    assert rows([evidence(measurement(size=size), mutant="m")], [mutant()])["full"].kills == 1


def test_each_dtype_is_judged_by_its_own_tolerance():
    half = "op/B2,T5/f16/typical/{seed}"
    assert rows([evidence(measurement(size=40.0), mutant="m", case=half)], [mutant()])["full"].outcome is Outcome.SURVIVED


def test_each_branch_has_rows_of_its_own():
    group = [
        evidence(measurement(size=size), mutant="m", case=f"op/B2,T5,{branch}/f32/typical/0")
        for branch, size in (("one", 40.0), ("two", 1.0))
    ]
    found = kill_table(group, {"m": mutant()}, BY_DTYPE, {})
    assert [(row.variant, row.outcome) for row in found] == [("one", Outcome.KILLED), ("two", Outcome.SURVIVED)]


def test_a_note_kills_a_mutant():
    row = rows([evidence(measurement(), mutant="m", notes=("overwrites its input x",))], [mutant()])["full"]
    assert (row.outcome, row.metric) == (Outcome.KILLED, "overwrites its input x")


@pytest.mark.parametrize("expect, outcome", [("harmless", Outcome.HARMLESS), ("equivalent", Outcome.EQUIVALENT)])
def test_a_declared_survivor_is_granted_and_yet_killed_when_it_is(expect, outcome):
    declared = mutant(expect=expect, reason="it is zero")
    kept = rows([evidence(measurement(), mutant="m")], [declared])["full"]
    assert (kept.outcome, kept.why) == (outcome, "it is zero")
    killed = rows([evidence(measurement(size=40.0), mutant="m")], [declared])["full"]
    assert (killed.outcome, killed.why) == (Outcome.KILLED, f"declared {expect} (it is zero), and yet killed")


@pytest.mark.parametrize(
    "statuses, outcome",
    [
        (["crashed", "timeout"], Outcome.CRASHED),
        (["memory"], Outcome.MEMORY),
        (["timeout", "raised"], Outcome.TIMEOUT),
        (["raised"], Outcome.UNVIABLE),
        (["unviable"], Outcome.UNVIABLE),
    ],
)
def test_a_mutant_that_never_came_to_a_comparison_is_not_a_kill(statuses, outcome):
    group = [evidence(mutant="m", status=status, seed=i, detail="why") for i, status in enumerate(statuses)]
    found = rows(group, [mutant()])
    assert {form: row.outcome for form, row in found.items()} == {"full": outcome}
    assert found["full"].kills == 0


def test_a_case_that_crashed_does_not_hide_one_that_was_measured():
    group = [evidence(mutant="m", status="crashed"), evidence(measurement(size=40.0), mutant="m", seed=1)]
    assert rows(group, [mutant()])["full"].outcome is Outcome.KILLED
