"""What the gate adds to a run: separations that shrank, or are too small; survivors that are allowed; what did not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck import Band, Evidence, ExitCode, Measurement, MutantVerdict, Outcome, Run, Verdict, WorkItem
from gradcheck.calibrate.published import Published, Trial
from gradcheck.engine.gate_judge import shrunk, survivors, too_small, unfinished, without_survivors

CASE = "x/B1,T5/f32/uniform/0"


def evidence(mutant: str, size: float) -> Evidence:
    seen = Measurement("d a", checked=1, ratios={"l2": size, "z": size / 10})
    return Evidence(WorkItem("x", "plain", CASE, mutant), "measured", (seen,))


def band(defect: float | None, metric: str = "l2", quantity: str = "d a", weakest: str = "m") -> Band:
    return Band("x", "plain", "f32", quantity, metric, 1.0, 4.0, 0.5, defect, weakest)


def row(mutant: str, outcome: Outcome) -> MutantVerdict:
    return MutantVerdict("plain", mutant, "", "full", outcome)


def published(*bands: Band) -> Published:
    return Published("x", "", 4.0, (0,), 0.5, {}, bands, Trial((1,), 1, 0, 1, 0, 0.5), {})


RUN = Run(
    "id", "", "x", {}, {}, (Verdict(WorkItem("x", "plain", CASE), Outcome.PASSED),), (row("m", Outcome.KILLED),),
    (band(1000.0), band(100.0, "z")), (), 1, 1, 1.0, ExitCode.OK, (),
)  # fmt: skip
BASE = published(band(1000.0), band(100.0, "z"))


@pytest.mark.parametrize("size, said", [(1000.0, False), (510.0, False), (490.0, True), (5e5, False)])
def test_a_separation_that_shrank_by_more_than_the_factor_fails_though_nothing_survived(size, said):
    found = list(shrunk(RUN, [evidence("m", size)], BASE, (), 2.0))
    assert [code for code, _ in found] == ([ExitCode.SURVIVORS] if said else [])
    if said:
        assert found[0][1] == "d a of plain in f32: the separation shrank from 3.00 to 2.69 decades, by more than the factor 2"


def test_a_new_mutant_that_is_harder_to_see_weakens_nothing():
    seen = [evidence("m", 1000.0), evidence("subtle", 50.0)]
    assert len(list(shrunk(RUN, seen, BASE, (), 2.0))) == 1
    assert list(shrunk(RUN, seen, BASE, {("x/subtle", "plain")}, 2.0)) == []
    assert len(list(shrunk(RUN, [evidence("m", 50.0)], BASE, {("x/subtle", "plain")}, 2.0))) == 1


def test_a_gradient_that_no_mutant_moves_any_more_is_told():
    ((_, text),) = shrunk(RUN, [], BASE, (), 2.0)
    assert "no mutant moves it any more" in text


def test_nothing_is_said_where_mutants_were_not_run_or_bands_are_of_spliced_defects():
    wrong = replace(RUN, verdicts=(Verdict(WorkItem("x", "plain", CASE), Outcome.FAILED),))
    assert list(shrunk(wrong, [], BASE, (), 2.0)) == []
    assert list(shrunk(RUN, [], published(band(1000.0, weakest="one row (spliced in)")), (), 2.0)) == []


def test_too_few_decades_fail_and_unknown_ones_are_no_pass():
    assert list(too_small(RUN, 3.0)) == []
    ((code, text),) = too_small(RUN, 3.5)
    assert (code, text) == (ExitCode.SURVIVORS, "d a of plain in f32: noise and weakest defect are 3.00 decades apart, 3.5 are asked for")
    unknown = replace(RUN, bands=(band(None), band(None, quantity="y")))
    ((code, text),) = too_small(unknown, 0.0)
    assert code is ExitCode.INCONCLUSIVE
    assert "d a" in text


def test_survivors_are_counted_once_and_leave_what_else_is_the_matter():
    rows = (row("m", Outcome.SURVIVED), row("m", Outcome.SURVIVED), row("null", Outcome.SURVIVED), row("k", Outcome.KILLED))
    run = replace(RUN, kills=rows, exit_code=ExitCode.SURVIVORS, reasons=("2 rows of the kill table survived: m",))
    assert survivors(run) == [("plain", "m")]
    assert without_survivors(run) == (ExitCode.OK, ())
    one = replace(run, reasons=("1 row of the kill table survived: m",))
    assert without_survivors(one) == (ExitCode.OK, ())
    more = replace(run, reasons=(*run.reasons, "kernel plain timed out"))
    assert without_survivors(more) == (ExitCode.INCONCLUSIVE, ("kernel plain timed out",))
    worse = replace(more, exit_code=ExitCode.WRONG)
    assert without_survivors(worse)[0] is ExitCode.WRONG


def test_what_did_not_fit_is_named():
    items = [WorkItem("x", "plain", CASE), WorkItem("x", "plain", CASE, check="taint"), *(WorkItem("x", "plain", CASE, m) for m in "ab")]
    assert unfinished(items, set(items), {}) == []
    assert unfinished(items, {items[0]}, {"plain": {"a"}}) == ["1 of 1 checks of plain", "of plain the mutants b"]
    assert unfinished(items, set(), {})[0] == "1 of 1 cases of plain"
