"""Gradients that no planted defect reaches are told, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck import Evidence, ExitCode, Measurement, MutantVerdict, Outcome, Run, Verdict, WorkItem
from gradcheck.engine.unreached import unreached

ITEM = WorkItem("leaky_scan", "plain", "leaky_scan/B1,T1,D1/f32/uniform/0")
SEEN = Verdict(ITEM, Outcome.PASSED, "", Evidence(ITEM, "measured", tuple(Measurement(q) for q in ("y", "d h", "d x", "d a"))))


def run_of(*margins, mutant="drop", verdict=SEEN):
    kills = tuple(MutantVerdict("plain", mutant, "", "full", Outcome.KILLED, margins=row) for row in margins)
    return Run("id", "", "leaky_scan", {}, {}, (verdict,), kills, (), (), 1, 1, 0.0, ExitCode.OK, ())


def test_a_gradient_that_every_mutant_leaves_within_its_tolerance_is_named():
    (said,) = unreached(run_of({"y": 9.0, "d h": 3.0, "d x": 0.9, "d a": 0.0}, {"d a": 2.0, "d x": 1.0}))
    assert said.startswith("no planted defect reaches d x of plain: ")


def test_what_is_beyond_all_bounds_is_reached():
    assert unreached(run_of({"d h": None, "d x": 1.1, "d a": float("nan")})) == []


@pytest.mark.parametrize("mutant", ["canary", "null"])
def test_controls_reach_nothing(mutant):
    run = run_of({"d h": 9.0, "d x": 9.0, "d a": 9.0}, mutant=mutant)
    assert unreached(run) == []  # without a mutant nothing was to be reached
    planted = run_of({"d h": 9.0, "d x": 9.0}).kills
    assert "reaches d a of plain" in unreached(replace(run, kills=(*run.kills, *planted)))[0]


def test_a_gradient_of_which_nothing_was_told_is_not_counted():
    measured = (*(Measurement(q) for q in ("d h", "d x")), Measurement("d a", zero="zero-kept"))
    verdict = replace(SEEN, evidence=Evidence(ITEM, "measured", measured))
    assert unreached(run_of({"d h": 2.0, "d x": 2.0}, verdict=verdict)) == []
