"""A second look at what failed, through the whole tool: what it says, and what it excuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck import Case, Evidence, ExitCode, Kernel, Measurement, Outcome, Verdict, WorkItem
from gradcheck._verdict import fault
from gradcheck.engine import secondlook
from gradcheck.engine.assemble import assemble
from gradcheck.engine.closeup import closeup
from gradcheck.engine.conditioning import Look
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.nearest import Nearest
from gradcheck.engine.plan import Request, make_plan
from gradcheck.engine.run import run
from gradcheck.engine.secondlook import Seen
from gradcheck.process import Done
from gradcheck.suite import load

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
CASE = "ssm_scan/B2,T5,H2,G1,P1,N3,mamba2/f32/typical/0"
ITEM = WorkItem("ssm_scan", "mlx", CASE)
QUANTITIES = ("y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C")
ROW = {"z": 1.0, "l2": 1.0, "max": 1.0, "slice": 1.0, "maa": 1.0}


def assembled(excused, causes=None):
    """A run of one case, at which d C is off by ten times its tolerance."""
    plan = make_plan(Request("ssm_scan", kernels=("mlx",), checks="none", cases=(CASE,)), load([]))
    measured = tuple(
        Measurement(q, checked=9, ratios=dict.fromkeys(ROW, 40.0 if q == "d C" else 0.1), errors=dict.fromkeys(ROW, 0.1))
        for q in QUANTITIES
    )
    noise = dict.fromkeys(QUANTITIES, ROW)
    return assemble(
        plan, [Evidence(ITEM, "measured", measured)], {("f32", "f32"): noise}, id_="one", command="", environment={}, notes=(),
        planned=1, seconds=1.0, forward_only=False, excused=excused, causes=causes,
    )  # fmt: skip


def test_what_its_case_explains_is_undecided_and_never_passed():
    wrong = assembled(None)
    assert (wrong.verdicts[0].outcome, wrong.exit_code) == (Outcome.FAILED, ExitCode.WRONG)
    ill = assembled({ITEM: "ill-conditioned, not wrong: it is so"})
    assert (ill.verdicts[0].outcome, ill.exit_code) == (Outcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE)
    assert ill.verdicts[0].why == "ill-conditioned, not wrong: it is so"
    assert any(CASE in reason and "ill-conditioned" in reason for reason in ill.reasons)


def test_an_excuse_is_of_its_own_case_only():
    other = WorkItem("ssm_scan", "mlx", CASE.replace("typical/0", "typical/1"))
    assert assembled({other: "ill-conditioned"}).verdicts[0].outcome is Outcome.FAILED


def test_what_is_said_is_the_mutant_or_that_all_of_it_is_rounding():
    poor, mistake, ill = (Look(kind, 0.1, 3.0) for kind in ("rounding", "mistake", "ill-conditioned"))
    items = [WorkItem("ssm_scan", "mlx", CASE.replace("/0", f"/{seed}")) for seed in range(2)]
    assert Seen(dict(zip(items, (poor, poor), strict=True))).sentence.startswith("is numerically poor: ")
    assert Seen(dict(zip(items, (poor, mistake), strict=True))).sentence == ""
    assert Seen({items[0]: mistake}, Nearest(("m",), "a slip", 0.99, 1.0, 3, 3)).sentence.startswith("looks most like mutant `m`")
    spared = Seen({items[0]: Look("mistake", 1.0, 0.2, ("a",), 9.0)}, Nearest(("m",), "a slip", 0.3, 1.0, 3, 3))
    assert spared.sentence.endswith("(cosine 0.30); what it comes to in a, trained behind it, is 0.2 of what rounding explains there")
    assert not Seen({**spared.looks, items[1]: mistake}, spared.nearest).sentence.endswith("there")
    assert Seen({items[0]: mistake}, zeros=("d x", "d A")).sentence == "returns zeros for d x, d A"
    assert list(Seen(dict(zip(items, (poor, ill), strict=True))).excused) == [items[1]]
    both = Seen(dict(zip(items, (ill, ill), strict=True)), failed=2)
    assert both.sentence == ""  # each says so itself, and there is no other
    more = Seen(both.looks, failed=7).sentence
    assert more.startswith("is ill-conditioned, not wrong: ")
    assert more.endswith(", at each of the 2 cases looked at, of 7 that failed")


def failing(case, **ratios):
    """A verdict at a case, each quantity off by so many times its tolerance."""
    item = WorkItem("ssm_scan", "mine", str(case))
    measured = tuple(Measurement(q.replace("_", " "), ratios=dict.fromkeys(ROW, size)) for q, size in ratios.items())
    return Case.parse(case), Verdict(item, Outcome.FAILED, "", Evidence(item, "measured", measured))


def spread(*verdicts):
    limits = dict.fromkeys(("d x", "d A"), ROW)
    return [str(case) for case in secondlook._spread(dict(verdicts), limits)]


def at(regime, seed, steps=5):
    return f"ssm_scan/B2,T{steps},H2,G1,P1,N3,mamba2/f32/{regime}/{seed}"


def test_each_quantity_that_is_off_is_looked_at_where_it_is_far_off():
    rounding, small, mistake = at("steep", 0), at("steep", 1), at("typical", 2)
    found = spread(failing(small, d_x=2.0, d_A=0.1), failing(rounding, d_x=900.0, d_A=0.2), failing(mistake, d_x=0.5, d_A=3.0))
    assert found[:2] == [rounding, mistake]  # the first is off by more, and says nothing of d A


def test_one_case_is_enough_where_it_shows_all_that_is_off():
    both, one = at("typical", 0), at("typical", 1, steps=19)
    assert spread(failing(one, d_x=100.0, d_A=0.1), failing(both, d_x=90.0, d_A=50.0))[0] == both


def test_cases_of_one_regime_do_not_keep_the_others_of_it_from_being_looked_at():
    cases = [at("steep", seed) for seed in range(9)]
    assert spread(*(failing(case, d_x=5.0, d_A=0.0) for case in cases)) == cases[: secondlook.LOOKS]


@pytest.mark.parametrize(
    "kinds, looked",
    [
        ("mistake rounding rounding", 1),
        ("rounding mistake rounding", 2),
        ("rounding rounding mistake", 2),
        ("ill-conditioned ill-conditioned rounding rounding", 4),  # what excuses its own case says nothing of the others
        ("ill-conditioned ill-conditioned ill-conditioned ill-conditioned rounding", 4),
    ],
)
def test_it_is_looked_at_until_no_further_case_changes_what_is_said(kinds, looked):
    left = iter(kinds.split())
    worker = SimpleNamespace(call=lambda *_: Done(Look(next(left), 0.1, 3.0), 0.1))
    subject = SimpleNamespace(kernel=Kernel("mine", "mine.py:mine"))
    job = Job(ITEM, Source((), ""), subject.kernel, tolerances=dict.fromkeys(("d x", "d A"), ROW))
    failed = dict(failing(at("steep", seed), d_x=5.0, d_A=0.0) for seed in range(9))
    assert len(secondlook._looks(worker, subject, job, failed)) == looked


def verdicts_of(*causes, **changed):
    _, one = failing(at("typical", 0), d_x=5.0)
    return [replace(one, cause=cause, **changed) for cause in causes]


def test_a_kernel_that_is_numerically_poor_is_not_called_wrong_and_any_mistake_is():
    assert fault(verdicts_of("", "")) == "is wrong"
    assert fault(verdicts_of("rounding", "")) == fault(verdicts_of("rounding", "ill-conditioned")) == "is numerically poor"
    assert fault(verdicts_of("rounding", "mistake")) == "is wrong"
    assert fault(verdicts_of("ill-conditioned", "")).startswith("fails (ill-conditioned, not wrong")
    assert fault([*verdicts_of("rounding"), *verdicts_of("", outcome=Outcome.CRASHED, evidence=Evidence(ITEM, "crashed"))]) == "is wrong"
    assert fault([*verdicts_of("rounding"), *verdicts_of("", evidence=Evidence(ITEM, "measured", notes=("overwrites x",)))]) == "is wrong"


def test_the_run_says_it_of_the_kernel_and_it_stays_failed():
    poor = assembled(None, {ITEM: "rounding"})
    assert (poor.verdicts[0].outcome, poor.exit_code) == (Outcome.FAILED, ExitCode.WRONG)
    assert poor.reasons[0].startswith("kernel mlx is numerically poor in 1 of 1 cases; first: d C")
    assert poor.verdicts[0].ending.startswith("is numerically poor: ")
    wrong = assembled(None, {ITEM: "mistake"})
    assert wrong.reasons[0].startswith("kernel mlx is wrong in 1 of 1 cases; first: d C")


@pytest.mark.slow
def test_a_wrong_kernel_is_named_in_the_run_and_in_the_replay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = f"{STRANGERS / 'planted'}.py:drop_dA_path"
    done = run(Request("ssm_scan", kernels=(target,), cases=(CASE,), checks="none", jobs=2), folder=Path(".gradcheck"), tell=lambda _: None)
    assert done.exit_code == ExitCode.WRONG
    assert any(note.startswith(f"{target} looks most like mutant `drop_dA_path` (cosine 1.000): d(dt) loses") for note in done.notes)
    seen = closeup(CASE, kernel=target)
    assert seen.outcome is Outcome.FAILED
    assert any(remark.startswith("a mistake: ") for remark in seen.remarks)
    assert any("`drop_dA_path`" in remark for remark in seen.remarks)


def test_a_kernel_that_returns_zeros_is_told_so_in_the_run_and_in_the_replay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = f"{STRANGERS / 'zeros_for_one'}.py:scan"
    done = run(Request("ssm_scan", kernels=(target,), cases=(CASE,), checks="none", jobs=2), folder=Path(".gradcheck"), tell=lambda _: None)
    assert done.exit_code == ExitCode.WRONG
    assert f"{target} returns zeros for d dt" in done.notes
    assert not any("mutant `" in note for note in done.notes)
    assert "returns zeros for d dt" in closeup(CASE, kernel=target).remarks
