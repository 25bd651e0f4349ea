"""A second look at what failed, through the whole tool: what it says, and what it excuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck import Evidence, ExitCode, Measurement, Outcome, WorkItem
from gradcheck.engine.assemble import assemble
from gradcheck.engine.closeup import closeup
from gradcheck.engine.conditioning import Look
from gradcheck.engine.nearest import Nearest
from gradcheck.engine.plan import Request, make_plan
from gradcheck.engine.run import run
from gradcheck.engine.secondlook import Seen
from gradcheck.suite import load

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
CASE = "ssm_scan/B2,T5,H2,G1,P1,N3,mamba2/f32/typical/0"
ITEM = WorkItem("ssm_scan", "mlx", CASE)
QUANTITIES = ("y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C")
ROW = {"z": 1.0, "l2": 1.0, "max": 1.0, "slice": 1.0, "maa": 1.0}


def assembled(excused):
    """A run of one case, at which d C is off by ten times its tolerance."""
    plan = make_plan(Request("ssm_scan", kernels=("mlx",), checks="none", cases=(CASE,)), load([]))
    measured = tuple(
        Measurement(q, checked=9, ratios=dict.fromkeys(ROW, 40.0 if q == "d C" else 0.1), errors=dict.fromkeys(ROW, 0.1))
        for q in QUANTITIES
    )
    noise = dict.fromkeys(QUANTITIES, ROW)
    return assemble(
        plan, [Evidence(ITEM, "measured", measured)], {("f32", "f32"): noise}, id_="one", command="", environment={}, notes=(),
        planned=1, seconds=1.0, forward_only=False, excused=excused,
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
    assert list(Seen(dict(zip(items, (poor, ill), strict=True))).excused) == [items[1]]


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
