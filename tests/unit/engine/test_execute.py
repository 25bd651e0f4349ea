"""However a kernel fails, it is evidence; and where a Metal kernel ran, and what its checker found, stands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck import Edit, Evidence, ExitCode, Kernel, Mutant, Outcome, WorkItem
from gradcheck.calibrate.gate import gate
from gradcheck.calibrate.judge import BY_CHECKER, judge, kill_table
from gradcheck.engine.checks import Check
from gradcheck.engine.execute import Job, execute, source_of, trial
from gradcheck.engine.launches import placed

ITEM = WorkItem("op", "k", "op/B2,T5/f32/uniform/0")
MUTANT = WorkItem("op", "k", "op/B2,T5/f32/uniform/0", "m")
GPU_ONLY = Kernel("k", "k:k", sources=("k.py", "k.metal"), requires="metal")
ANYWHERE = Kernel("k", "k:k", sources=("k.py", "k.metal"))
MEASURED = Evidence(ITEM, "measured")


def raising(error: Exception):
    def use() -> None:
        raise error

    return use


@pytest.fixture
def fault():
    """What the checker raises, with one finding and a benign one beside it."""
    pytest.importorskip("mlx.core")
    from gradcheck.metal.errors import KernelFault
    from gradcheck.metal.findings import Finding
    from gradcheck.metal.places import Place

    places = (Place("backward.metal", 41, 7, "    dB[i] += x;"),)
    race = Finding("scan", "race", "write of 4 bytes at 'dB'[3] by thread 1", places, 0, 1, "dB", 12)
    same = Finding("scan", "race, same value", "write of 4 bytes at 'n'[0] by thread 1", (), 0, 1, "n", 0)
    return KernelFault("scan", (race, same))


def test_what_the_checker_found_fails_a_kernel_with_file_and_line(fault):
    evidence = trial(ITEM, raising(fault))
    assert evidence.status == "fault"
    assert evidence.detail.startswith("scan: backward.metal:41:7: race: write of 4 bytes")
    assert "same value" not in evidence.detail
    verdict = judge(evidence, {})
    assert (verdict.outcome, verdict.why) == (Outcome.FAILED, evidence.detail)
    assert "differs" not in verdict.ending


def test_what_the_checker_found_kills_a_mutant_without_a_number(fault):
    mutant = Mutant(op="op", why="a race", defect="race", seen_in="here", edits={"k": Edit("k.metal", "a", "b")})
    (row,) = kill_table([trial(MUTANT, raising(fault))], {"m": mutant}, {"f32": {}}, {})
    assert (row.outcome, row.kills, row.cases, row.metric) == (Outcome.KILLED, 1, 1, BY_CHECKER)


def test_a_kernel_that_the_checker_gave_up_has_timed_out_and_the_line_is_told(fault):
    late = replace(fault.findings[0], kind="out of time", message="still running after 48 s")
    evidence = trial(ITEM, raising(type(fault)("scan", (late, fault.findings[1]))))
    assert (evidence.status, judge(evidence, {}).outcome) == ("timeout", Outcome.TIMEOUT)
    assert "backward.metal:41:7: out of time: still running after 48 s" in evidence.detail
    assert trial(ITEM, raising(type(fault)("scan", (late, fault.findings[0])))).status == "fault"


def test_any_other_exception_is_told_by_its_name_and_kills_no_mutant():
    verdict = judge(trial(ITEM, raising(ValueError("odd T"))), {})
    assert (verdict.outcome, verdict.ending) == (Outcome.FAILED, "raised ValueError")
    (row,) = kill_table([trial(MUTANT, raising(ValueError("odd T")))], {}, {"f32": {}}, {})
    assert row.outcome is Outcome.UNVIABLE


def test_a_kernel_that_nothing_here_can_compile_is_not_wrong():
    errors = pytest.importorskip("gradcheck.metal.errors")
    verdict = judge(trial(ITEM, raising(errors.NoCompilerError("no clang; pip install ziglang"))), {})
    assert verdict.outcome is Outcome.NO_DEVICE
    code, reasons = gate([verdict], [], [], missing=0, absent={}, rotten=[], forward_only=False)
    assert code != 0
    assert any("did not run" in reason for reason in reasons)


def test_a_result_is_labelled_with_the_places_it_ran_on():
    assert placed(MEASURED, ANYWHERE, ["metal-cpu", "metal-cpu"]).place == "metal-cpu"
    assert placed(MEASURED, ANYWHERE, ["metal", "metal-cpu"]).place == "metal + metal-cpu"


@pytest.mark.parametrize("places", [["metal-cpu"], ["metal", "metal-cpu"], []])
def test_what_ran_anywhere_but_on_the_gpu_that_it_requires_is_no_result(places):
    evidence = placed(MEASURED, GPU_ONLY, places)
    assert judge(evidence, {}).outcome is Outcome.NO_DEVICE
    assert evidence.measurements == ()


def test_what_ran_on_the_gpu_that_it_requires_is_a_result():
    assert placed(MEASURED, GPU_ONLY, ["metal"]).status == "measured"


def test_a_metal_kernel_that_launched_nothing_is_a_fallback():
    assert judge(placed(MEASURED, ANYWHERE, []), {}).outcome is Outcome.FAILED


SCAN = Path(__file__).parents[2] / "testdata" / "strangers" / "numpy_object.py"
RAISES = """
class Raises:
    arrays = "numpy"

    def forward(self, *inputs):
        raise ValueError("odd T")

    vjp = forward


scan = Raises()
"""


def made(monkeypatch, find, target):
    """The verdict on a check that does `find`, and what the gate says of it."""
    monkeypatch.setattr("gradcheck.engine.execute.CHECKS", (Check("odd", find, "a test"),))
    item = WorkItem("ssm_scan", target, "ssm_scan/B1,T5,H2,G1,P1,N3,mamba2/f32/typical/0", check="odd")
    verdict = judge(execute(Job(item, source_of((), Path.cwd()), Kernel(target, target))), {})
    return verdict, *gate([], [], [], missing=0, absent={}, rotten=[], forward_only=False, checks=[verdict])


def test_what_a_check_itself_raises_is_a_bug_of_ours_and_not_charged_to_the_kernel(monkeypatch):
    def find(bench):
        bench.call()
        raise IndexError("no such row")

    verdict, code, reasons = made(monkeypatch, find, f"{SCAN}:scan")
    assert verdict.outcome is Outcome.BUG
    assert "says nothing of the kernel" in verdict.ending
    assert verdict.why.startswith("IndexError: no such row\n")
    assert "test_execute.py" in verdict.why
    assert code == ExitCode.BUG
    said = next(reason for reason in reasons if "no such row" in reason)
    assert said.startswith("the check odd of kernel ")
    assert "bug in gradcheck" in said
    assert not any("fails the check" in reason for reason in reasons)


def test_what_the_kernel_raises_within_a_check_is_the_kernels(monkeypatch, tmp_path):
    (tmp_path / "raises.py").write_text(RAISES)
    verdict, code, reasons = made(monkeypatch, lambda bench: bench.call(), f"{tmp_path / 'raises.py'}:scan")
    assert (verdict.outcome, verdict.ending, code) == (Outcome.FAILED, "raised ValueError", ExitCode.WRONG)
    assert "raises.py" in verdict.why
    assert "KernelRaised" not in verdict.why
    assert any("fails the check odd in 1 of 1 cases; first: it raised ValueError: odd T" in reason for reason in reasons)
