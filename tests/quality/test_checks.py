"""Checks that need no tolerance, through the command line: kernels that agree with the truth everywhere, and are wrong."""

from __future__ import annotations

import re

import pytest

from gradcheck import ExitCode

from .conftest import STRANGERS

FEW = ("--cases", "4", "--jobs", "1")

# One of each kind; tests/unit/engine/test_checks.py has one for every check.
SEEN_BY = {"leak_from_later_token": "taint", "stale_state": "determinism", "wrong_at_production_shape": "production"}


def target(name):
    return f"{STRANGERS / name}.py:scan"


@pytest.mark.parametrize("name", SEEN_BY)
def test_what_the_numbers_pass_a_check_rejects(check, name):
    by = SEEN_BY[name]
    ran = check(target(name), *FEW, "--checks", by)
    assert set(ran.outcomes()) == {"PASSED"}  # the comparison with the truth alone would say 0
    assert ran.code == ExitCode.WRONG
    checks = ran.run["checks"]
    failed = [verdict for verdict in checks if verdict["outcome"] == "FAILED"]
    assert failed
    assert {verdict["item"]["check"] for verdict in checks} == {by}
    report = " ".join(ran.err.split())
    assert f"fails the check {by}" in report
    assert f"FAILED check {by} of" in report
    assert f"case {failed[0]['item']['case']} broken {failed[0]['evidence']['notes'][0]}" in report
    assert ran.run["kills"] == []  # the baseline is wrong, so nothing is planted in it


def test_a_right_kernel_holds_in_every_check_and_the_headline_counts_them(check):
    ran = check("mlx", *FEW, "--checks", "all")
    assert ran.code == ExitCode.OK, ran.err
    tallies = " ".join(ran.err.split())
    for name in ("taint", "scaling", "split", "permutation", "determinism", "layout", "production"):
        assert re.search(rf"{name} ([1-9]\d*)/\1\b", tallies), name


def test_without_a_backward_the_checks_are_of_the_forward(check):
    ran = check(target("leak_from_later_token"), *FEW, "--forward-only", "--checks", "all")
    assert ran.code == ExitCode.WRONG
    outcomes = {(verdict["item"]["check"], verdict["outcome"]) for verdict in ran.run["checks"]}
    assert ("taint", "FAILED") in outcomes
    assert "scaling" not in {name for name, _ in outcomes}
    assert {name for name, outcome in outcomes if outcome == "FAILED"} == {"taint"}


def test_a_kernel_that_does_not_run_is_not_checked_further(check):
    ran = check(target("crashes"), *FEW, "--checks", "all")
    assert ran.code == ExitCode.WRONG
    assert ran.run["checks"] == []
    assert "were not made: it does not run" in " ".join(ran.err.split())


def test_in_half_precision_no_check_is_made_and_the_run_says_so(check):
    ran = check(target("half_inputs"), *FEW, "--dtype", "f16", "--checks", "taint")
    assert (ran.code, ran.run["checks"]) == (ExitCode.OK, [])
    assert "no check was made" in ran.err


def test_an_unknown_check_is_a_usage_error(check):
    ran = check("mlx", "--checks", "tain")
    assert ran.code == ExitCode.USAGE
    assert "did you mean 'taint'" in ran.err


def test_the_line_that_makes_a_check_again_makes_it_again(cli, check):
    first = check(target("leak_from_later_token"), *FEW, "--checks", "taint").run["checks"][0]
    again = cli(
        "run",
        "--op",
        "ssm_scan",
        "--kernel",
        target("leak_from_later_token"),
        "--checks",
        "taint",
        "--cases",
        first["item"]["case"],
        "--json",
    )
    (second,) = again.run["checks"]
    assert second["evidence"]["notes"] == first["evidence"]["notes"]
