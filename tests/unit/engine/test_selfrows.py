"""What the evidence of `--oracle self` adds up to."""

from __future__ import annotations

import pytest

from gradcheck import ExitCode, Mutant
from gradcheck._verdict import WorkItem
from gradcheck.engine.selfrows import gate, rows, separations
from gradcheck.engine.selfwork import SelfEvidence

TOLERANCE = 0.05
NOISE, DEFECT = 0.01, 0.5


def evidence(mutant="", maa=NOISE, *, seed=0, status="measured", detail="", l2=1e-7):
    item = WorkItem("op", "kernel", f"op/B1/f32/typical/{seed}", mutant)
    if status != "measured":
        return SelfEvidence(item, status, detail=detail)
    return SelfEvidence(item, status, {"x": maa, "a": 9.0}, {"x": l2, "a": 1e-7}, detail)


def judged(*given, mutants=(), rotten=(), absent=()):
    found = rows(given, {one.name: one for one in mutants}, ["x"], TOLERANCE)
    return found, *gate(found, rotten, dict(absent), TOLERANCE)


def test_noise_within_and_defects_above_the_tolerance_is_a_pass():
    found, code, reasons = judged(evidence(), evidence("m", DEFECT), evidence("canary", 1.0), evidence("null"))
    assert (code, reasons) == (ExitCode.OK, ())
    assert [row.above for row in found] == [0, 1, 1, 0]
    assert found[0].apart.most == 9.0  # which is beyond the tolerance, and not judged


@pytest.mark.parametrize(
    "given, code",
    [
        (evidence("", 0.06, seed=1), ExitCode.WRONG),
        (evidence("", None, seed=1), ExitCode.WRONG),
        (evidence("", seed=1, detail="forward overwrites its input x"), ExitCode.WRONG),
        (evidence("", seed=1, status="crashed", detail="SIGSEGV (signal 11)"), ExitCode.WRONG),
        (evidence("", seed=1, status="timeout", detail="no answer within 60 s"), ExitCode.INCONCLUSIVE),
        (evidence("", seed=1, status="no-backward"), ExitCode.NOTHING),
        (evidence("m", NOISE, seed=1), ExitCode.SURVIVORS),
        (evidence("m", seed=1, status="timeout"), ExitCode.INCONCLUSIVE),
        (evidence("m", seed=1, status="raised", detail="NameError: dA"), ExitCode.ROTTEN),
        (evidence("canary", NOISE), ExitCode.ROTTEN),
        (evidence("null", DEFECT), ExitCode.ROTTEN),
    ],
)
def test_one_seed_decides(given, code):
    _, got, reasons = judged(evidence(), evidence("m", DEFECT), given)
    assert (got, len(reasons)) == (code, 1)


def test_what_is_not_finite_is_beyond_the_tolerance_and_no_number():
    (row,), *_ = judged(evidence("", None))
    assert (row.above, row.maa.most) == (1, None)


def test_a_mutant_declared_harmless_need_not_be_seen():
    harmless = Mutant(op="op", why="w", defect="d", seen_in="s", edits={}, expect="harmless", reason="r", name="m")
    assert judged(evidence(), evidence("m", NOISE), mutants=[harmless])[1] == ExitCode.OK
    assert judged(evidence(), evidence("m", NOISE))[1] == ExitCode.SURVIVORS


def test_stale_mutants_absent_kernels_and_no_evidence_are_no_pass():
    assert judged(evidence(), rotten=["stale"])[1] == ExitCode.ROTTEN
    assert judged(evidence(), absent=[("ggml", "not installed")])[1] == ExitCode.INCONCLUSIVE
    assert judged()[1] == ExitCode.NOTHING


def test_the_separation_is_the_least_defect_of_all_seeds_over_the_most_noise():
    given = [evidence("", 0.01), evidence("", 0.02, seed=1), evidence("m", 0.5, l2=0.1), evidence("m", 0.4, seed=1, l2=0.2)]
    (one,) = separations(judged(*given, evidence("canary", 0.03))[0])
    assert (one.by_self, one.by_truth) == (pytest.approx(20), pytest.approx(1e6))


def test_without_defects_there_is_no_separation():
    assert separations(judged(evidence(), evidence("canary", 1.0))[0]) == ()
