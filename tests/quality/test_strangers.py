"""Kernels that we have never seen: every wrong one is told by gradient and step, every right one passes, through the command line."""

from __future__ import annotations

import pytest

from gradcheck import Case, ExitCode

from .conftest import STRANGERS

QUICK = ("--checks", "none")  # a comparison with the truth is enough to tell these
FEW = ("--cases", "4", "--jobs", "1", *QUICK)  # of each branch: one, 5 and 131 steps, one to three rows, each objective

WRONG = {
    "sign_error": {"d A"},
    "missing_group_sum": {"d B", "d C"},
    "last_token_wrong": {"d x"},
    "later_batch_rows_wrong": {"d dt"},
    "scale_error": {"d C"},
    "zeros_for_one": {"d dt"},
    "nan_in_one_element": {"d x"},
    "two_swapped": {"d B", "d C"},
    "one_too_few": {"d C"},
    "wrong_dtype": {"d x"},
    "state_cotangent_ignored": {"d s", "d x", "d dt", "d A", "d B"},
}
RIGHT = ("other_order", "chunked", "autodiff", "half_inputs", "noncontiguous", "numpy_object")
UNCOMPARED = {"one_too_few", "wrong_dtype"}


def the_last_step_is_named(ran, name):
    for verdict in failed(ran, name):
        last = Case.parse(verdict["item"]["case"]).sizes["T"] - 1
        dx = measured(verdict, "d x")
        assert dx["worst_step"] == dx["worst"][1] == last
        assert f"step {last}:" in verdict["why"]


def later_rows_are_named(ran, name):
    wrong = failed(ran, name)
    assert {v["item"]["case"] for v in wrong} == {v["item"]["case"] for v in ran.verdicts if Case.parse(v["item"]["case"]).sizes["B"] > 1}
    assert all(measured(verdict, "d dt")["worst"][0] >= 1 for verdict in wrong)


def the_very_element_is_named(ran, name):
    assert {tuple(measured(verdict, "d x")["worst"]) for verdict in failed(ran, name)} == {(0, 0, 0, 0)}


def what_is_missing_is_said(ran, name):
    assert ran.blamed_in(target(name)) == {"d C": "d C: missing: the vjp returned 5 gradients for 6 inputs"}


def the_dtype_is_said(ran, name):
    assert ran.blamed_in(target(name)) == {"d x": "d x: has dtype float16, want float32"}


DETAILS = {
    "last_token_wrong": the_last_step_is_named,
    "later_batch_rows_wrong": later_rows_are_named,
    "nan_in_one_element": the_very_element_is_named,
    "one_too_few": what_is_missing_is_said,
    "wrong_dtype": the_dtype_is_said,
}


def failed(ran, name):
    return [verdict for verdict in ran.verdicts if (verdict["outcome"], verdict["item"]["kernel"]) == ("FAILED", target(name))]


def measured(verdict, quantity):
    (found,) = (m for m in verdict["evidence"]["measurements"] if m["quantity"] == quantity)
    return found


def target(name):
    return f"{STRANGERS / name}.py:scan"


def assert_caught(ran, name):
    """Exit 1; the very gradients that are wrong are blamed, no other, and each that has steps with its step."""
    assert ran.code == ExitCode.WRONG
    blamed = ran.blamed_in(target(name))
    assert set(blamed) == WRONG[name]
    for quantity, sentence in blamed.items():
        assert (quantity in {"d x", "d dt", "d B", "d C"} and name not in UNCOMPARED) == ("step" in sentence), sentence
    assert any(quantity in failed(ran, name)[0]["why"] for quantity in WRONG[name])
    assert all(quantity in ran.headline(target(name)) for quantity in WRONG[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_vjp_is_caught_and_its_gradient_and_step_named(once, name):
    first, *others = map(target, WRONG)
    ran = once(first, *(word for other in others for word in ("--kernel", other)), *FEW)
    assert_caught(ran, name)
    DETAILS.get(name, lambda *_: None)(ran, name)


def test_a_kernel_that_overwrites_its_input_is_wrong_though_its_numbers_are_right(check):
    ran = check(target("overwrites_input"), *FEW)
    assert ran.code == ExitCode.WRONG
    assert {verdict["why"] for verdict in ran.verdicts} == {"forward overwrites its input dt"}
    assert "forward overwrites its input dt" in ran.report


def test_a_crash_names_its_signal_and_the_next_case_still_runs(check):
    ran = check(target("crashes"), *FEW)
    assert ran.code == ExitCode.WRONG
    assert ran.outcomes() == ["CRASHED"] * 8
    assert {v["evidence"]["detail"] for v in ran.verdicts} == {"SIGSEGV (signal 11)"}
    assert "SIGSEGV" in ran.report


def test_right_strangers_pass_and_are_judged_by_the_band_of_the_op(check):
    first, *others = map(target, RIGHT)
    ran = check(first, *(word for other in others for word in ("--kernel", other)), *FEW)
    assert ran.code == ExitCode.OK, ran.err
    for name in RIGHT:
        assert ran.outcomes(target(name)) == ["PASSED"] * 8
        assert f"band: op-level for {target(name)}" in ran.run["notes"][RIGHT.index(name)]
    assert ran.report.count("6 gradients checked (s x dt A B C)") == len(RIGHT)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_inputs_are_taken_and_judged_by_their_own_noise(check, dtype):
    ran = check(target("half_inputs"), *FEW, "--dtype", dtype)
    assert ran.code == ExitCode.OK, ran.err
    assert {Case.parse(v["item"]["case"]).dtype for v in ran.verdicts} == {dtype}
    assert "6 gradients checked (s x dt A B C)" in ran.report


@pytest.mark.parametrize("name", ["last_token_wrong"])
def test_half_precision_does_not_hide_ten_percent_at_one_step(check, name):
    ran = check(target(name), *FEW, "--dtype", "bf16")
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, WRONG[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_over_the_whole_grid_a_wrong_vjp_is_caught(check, name):
    assert_caught(check(target(name), *QUICK), name)


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", RIGHT)
def test_over_the_whole_grid_a_right_stranger_passes(check, name, dtypes):
    if name != "half_inputs" and dtypes != "f32":
        pytest.skip("only one of them says that it takes halves")
    ran = check(target(name), "--dtype", dtypes, *QUICK)
    assert ran.code == ExitCode.OK, ran.err
    assert len(ran.verdicts) >= (96 if dtypes == "f32" else 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overwrites_input", "crashes"])
def test_over_the_whole_grid_no_case_of_a_stranger_that_is_wrong_everywhere_passes(check, name):
    ran = check(target(name), *QUICK)
    assert ran.code == ExitCode.WRONG
    assert set(ran.outcomes()) == {"FAILED" if name == "overwrites_input" else "CRASHED"}
