from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from gradcheck import Band, Evidence, ExitCode, MutantVerdict, Outcome, UsageError, Verdict, WorkItem
from gradcheck.calibrate.published import Published, Trial
from gradcheck.engine import store
from gradcheck.engine.change import change, of_published, of_run

CASE = "x/B1,T2/f32/plain/0"


def verdict(outcome, kernel="mlx", case=CASE, check=""):
    item = WorkItem("x", kernel, case, check=check)
    return Verdict(item, outcome, "", Evidence(item, "measured"))


def row(outcome, mutant="m", form="full"):
    return MutantVerdict("mlx", mutant, "", form, outcome)


def band(metric="l2", quantity="d x", **numbers):
    return Band("x", "mlx", "f32", quantity, metric, **{"noise": 1.0, "tolerance": 4.0, "measured": 1.0, "defect": 1e4, **numbers})


@pytest.fixture
def base(finished):
    """A run in which all is well."""
    return replace(
        finished, verdicts=(verdict(Outcome.PASSED),), kills=(row(Outcome.KILLED), row(Outcome.SURVIVED, "null")), bands=(band(), band("z"))
    )


def between(old, new, factor=2.0):
    return change(of_run(replace(old, id="old")), of_run(replace(new, id="new")), factor)


def test_the_same_run_twice_is_no_change(base):
    found = between(base, base)
    assert (found.flips, found.moved, found.gone, found.worse, found.exit_code) == ((), (), (), (), ExitCode.OK)
    assert found.common == 1


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CRASHED])
def test_a_kernel_that_newly_fails_is_one(base, outcome):
    found = between(base, replace(base, verdicts=(verdict(outcome),)))
    assert found.exit_code is ExitCode.WRONG
    assert [(flip.old, flip.new, flip.where) for flip in found.flips] == [("PASSED", outcome.name, CASE)]
    assert "newly fails" in found.worse[0]


def test_a_kernel_that_fails_at_other_cases_than_the_old_run_had_newly_fails(base):
    found = between(base, replace(base, verdicts=(verdict(Outcome.FAILED, case=CASE + "1"),)))
    assert (found.exit_code, found.flips, found.common) == (ExitCode.WRONG, (), 0)


def test_a_kernel_that_fails_at_one_more_case_newly_fails_there(base):
    other = CASE + "1"
    old = replace(base, verdicts=(verdict(Outcome.FAILED), verdict(Outcome.PASSED, case=other)))
    assert between(old, old).exit_code is ExitCode.OK
    found = between(old, replace(old, verdicts=(verdict(Outcome.FAILED), verdict(Outcome.FAILED, case=other))))
    assert found.exit_code is ExitCode.WRONG
    assert "1 cases" in found.worse[0]


def test_a_check_that_newly_fails_is_told_apart_from_its_case(base):
    old = replace(base, checks=(verdict(Outcome.PASSED, check="taint"),))
    found = between(old, replace(base, checks=(verdict(Outcome.FAILED, check="taint"),)))
    assert found.exit_code is ExitCode.WRONG
    assert found.flips[0].where == f"{CASE}, check taint"


def test_a_kernel_that_is_mended_is_a_flip_and_nothing_worse(base):
    found = between(replace(base, verdicts=(verdict(Outcome.FAILED),)), base)
    assert (len(found.flips), found.exit_code) == (1, ExitCode.OK)


def test_a_pass_that_became_no_verdict_is_not_silent(base):
    found = between(base, replace(base, verdicts=(verdict(Outcome.TIMEOUT),)))
    assert found.exit_code is ExitCode.INCONCLUSIVE
    assert "no verdict any more" in found.worse[0]


@pytest.mark.parametrize("outcome", [Outcome.SURVIVED, Outcome.TIMEOUT, Outcome.UNVIABLE])
def test_a_mutant_that_is_killed_no_more_is_three(base, outcome):
    found = between(base, replace(base, kills=(row(outcome), row(Outcome.SURVIVED, "null"))))
    assert found.exit_code is ExitCode.SURVIVORS
    assert "mutant m" in found.worse[0]


def test_a_mutant_that_is_newly_killed_is_a_flip_and_nothing_worse(base):
    found = between(replace(base, kills=(row(Outcome.SURVIVED),)), replace(base, kills=(row(Outcome.KILLED),)))
    assert [(flip.mutant, flip.old, flip.new) for flip in found.flips] == [("m", "SURVIVED", "KILLED")]
    assert found.exit_code is ExitCode.OK


def test_a_new_mutant_that_survives_is_three_and_the_null_mutant_is_none(base):
    bare = replace(base, kills=())
    assert between(bare, replace(base, kills=(row(Outcome.SURVIVED, "null"),))).exit_code is ExitCode.OK
    assert between(bare, replace(base, kills=(row(Outcome.SURVIVED),))).exit_code is ExitCode.SURVIVORS


def test_a_null_mutant_that_is_seen_is_worse(base):
    found = between(base, replace(base, kills=(row(Outcome.KILLED), row(Outcome.KILLED, "null"))))
    assert found.exit_code is ExitCode.SURVIVORS
    assert "null mutant" in found.worse[0]


@pytest.mark.parametrize("what, value", [("noise", 0.4), ("tolerance", 9.0), ("measured", 2.1), ("measured", None), ("defect", 1e5)])
def test_a_number_that_moved_by_more_than_the_factor_is_told(base, what, value):
    new = replace(base, bands=(band(**{what: value}), band("z")))
    assert what in [move.what for move in between(base, new).moved if move.metric == "l2"]


def test_a_number_that_moved_by_less_than_the_factor_is_not(base):
    new = replace(base, bands=(band(noise=1.9, measured=0.51), band("z")))
    assert between(base, new).moved == ()
    assert {move.what for move in between(base, new, factor=1.5).moved} == {"noise", "measured"}


def test_the_separation_is_that_of_the_best_metric(base):
    one_shrunk = replace(base, bands=(band(defect=1e3), band("z")))
    assert between(base, one_shrunk).exit_code is ExitCode.OK
    both_shrunk = replace(base, bands=(band(defect=1e3), band("z", defect=4e3)))
    found = between(base, both_shrunk)
    assert found.exit_code is ExitCode.SURVIVORS
    assert "from 4.0 to 3.6 decades" in found.worse[0]
    assert between(both_shrunk, base).exit_code is ExitCode.OK


def test_what_is_not_compared_any_more_is_told_and_is_six(base):
    old = replace(
        base,
        verdicts=(*base.verdicts, verdict(Outcome.PASSED, "other")),
        bands=(*base.bands, band(quantity="d a")),
        kills=(*base.kills, row(Outcome.KILLED, "n")),
    )
    found = between(old, base)
    assert found.gone == ("kernel other", "d a of mlx in f32", "mutants of mlx: n")
    assert found.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("back", [False, True], ids=["newly wrong", "mended"])
def test_of_a_kernel_that_is_wrong_only_its_error_is_compared(base, back):
    """Its mutants are not run, so its defects, tolerances and separations are others, and that would be told for every gradient."""
    good = replace(base, kills=(row(Outcome.KILLED), row(Outcome.KILLED, "n")))
    bad = replace(base, verdicts=(verdict(Outcome.FAILED),), kills=(), bands=(band(defect=None, tolerance=9.0, measured=99.0), band("z")))
    found = between(bad, good) if back else between(good, bad)
    assert [(move.what, move.metric) for move in found.moved] == [("measured", "l2")]
    assert found.worse == (() if back else ("kernel mlx newly fails, at 1 of its cases",))
    assert found.exit_code is (ExitCode.OK if back else ExitCode.WRONG)


def test_two_ops_and_two_kernels_cannot_be_compared(base):
    with pytest.raises(UsageError, match="of one op"):
        between(base, replace(base, op="other"))
    strange = replace(base, verdicts=(verdict(Outcome.PASSED, "theirs"),), bands=())
    with pytest.raises(UsageError, match="no kernel is in both: old has mlx, new has theirs"):
        between(base, strange)


def test_published_bands_stand_for_clean_kernels(base):
    trial = Trial((10,), 1, 0, 1, 0, 0.5)
    published = of_published(Published("x", "sources", 4.0, (0,), 1.0, {}, base.bands, trial, {}))
    assert change(published, of_run(base)).exit_code is ExitCode.OK
    assert change(published, of_run(replace(base, verdicts=(verdict(Outcome.FAILED),)))).exit_code is ExitCode.WRONG
    shrunk = replace(base, bands=(band(defect=1e3), band("z", defect=1e3)))
    assert change(published, of_run(shrunk)).exit_code is ExitCode.SURVIVORS


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")

    def write(run):
        with store.create(tmp_path / ".gradcheck", store.Manifest("x", {}, (), {}, "digest")) as folder:
            folder.finish(msgspec.to_builtins(replace(run, id=folder.id)))
        return folder.id

    return write


def test_two_stored_runs_as_text_and_as_json(cli, stored, base):
    old, new = stored(base), stored(replace(base, verdicts=(verdict(Outcome.FAILED),), bands=(band(measured=99.0), band("z"))))
    result = cli("diff", old, new)
    assert result.code == ExitCode.WRONG
    for words in ("kernel mlx newly fails", "of 1 verdicts on the same case, changed: 1", CASE, "measured"):
        assert words in result.out
    result = cli("diff", old, new, "--json")
    assert result.code == ExitCode.WRONG
    read = json.loads(result.out)
    assert (read["exit_code"], read["moved"][0]["new"]) == (1, 99.0)


def test_a_run_against_itself_or_against_bands_that_are_not_there_is_a_usage_error(cli, stored, base):
    run = stored(base)
    for args in ((run, run), ("published", "published"), (run, "no-such-run"), ("published", run), (run, run, "--factor", "1")):
        result = cli("diff", *args)
        assert (result.code, result.out) == (ExitCode.USAGE, "")
