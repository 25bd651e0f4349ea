"""Every exit code has a way to be had, and the next step is said. Slow kernels and strangers' are elsewhere: these runs are tiny."""

from __future__ import annotations

import itertools

import pytest

from gradcheck import ExitCode
from gradcheck.calibrate import judge

from .conftest import edit

DROP = 'Edit("leaky.py", "carried = a * G", "carried = G")'
LEAKY = ("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f32", "--cases", "6", "--checks", "none", "--json")
ONE = "leaky_scan/B2,T5,D7/f32/uniform"


@pytest.mark.parametrize("worse, better", list(itertools.pairwise([130, 70, 2, 1, 4, 5, 3, 6, 0])), ids=str)
def test_the_worse_of_two_exit_codes_wins_and_so_of_any(worse, better):
    assert ExitCode.worst(ExitCode(better), ExitCode(worse)) == ExitCode.worst(ExitCode(worse), ExitCode(better)) == worse
    assert ExitCode.worst(*ExitCode) == ExitCode.INTERRUPTED
    assert ExitCode.worst() == ExitCode.OK


@pytest.mark.parametrize(
    "args, said",
    [
        (["--op", "ssm_scn"], "did you mean 'ssm_scan'?"),
        (["--op", "ssm_scan", "--mutants", "nosuch"], "no mutant of ssm_scan 'nosuch'"),
        (["--op", "ssm_scan", "--mutants", "drop_dA_pth"], "did you mean 'drop_dA_path'"),
        (["--op", "ssm_scan", "--kernel", "mlxx"], "did you mean 'mlx'"),
        (["--op", "ssm_scan", "--kernel", "no.such:thing"], "no module 'no'"),
        (["--op", "ssm_scan", "--kernel", "nosuch.py:scan"], "no file"),
        (["--op", "ssm_scan", "--kernel", "empty.py:x"], "no attribute 'x'"),
        (["--op", "ssm_scan", "--kernel", "broken.py:x"], "SyntaxError"),
        (["--op", "ssm_scan", "--dtype", "f64"], "no dtype 'f64'"),
        (["--op", "ssm_scan", "--regime", "typicl"], "did you mean 'typical'"),
        (["--op", "ssm_scan", "--dims", "H=3,G=2"], "does not divide"),
        (["--op", "ssm_scan", "--cases", "ssm_scan/B1"], "need 5"),
        (["--op", "ssm_scan", "--suite", "nowhere"], "no suite at"),
        (["--resume", "nosuch"], "no run 'nosuch'"),
        (["--resume"], "nothing to resume"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_that_helps(cli, here, args, said):
    (here / "empty.py").touch()
    (here / "broken.py").write_text("def x(:\n")
    ran = cli("run", *args)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_gradient_that_is_structurally_zero_in_every_case_was_not_checked(cli, hello):
    """The final state does not read q: with a cotangent on it alone, dq is zero whatever the kernel does."""
    case = "delta_rule/B2,T5,K3,V5/f32/uniform@state"
    ran = cli("run", "--op", "delta_rule", "--cases", f"{case}/0", "--cases", f"{case}/1", "--json")
    assert ran.code == ExitCode.NOTHING
    assert "no case of the plan says anything about d q" in ran.report
    assert "about d k" not in ran.report


def test_a_stale_mutant_rots_the_suite_but_the_baseline_still_runs(cli, hello):
    edit(hello / "hello" / "leaky.py", {"carried = a * G": "carried = G * a"})
    ran = cli(*LEAKY, "--mutants", "all")
    assert ran.code == ExitCode.ROTTEN
    assert set(ran.outcomes()) == {"PASSED"}
    assert "drop_decay" in ran.report
    assert "matches 0 places" in ran.report
    assert ran.kills["plain", "state_after_in_da", "", "full"][0] == "KILLED"


def test_an_ambiguous_mutant_rots_the_suite(cli, hello):
    edit(hello / "mutants" / "leaky_scan.py", {DROP: 'Edit("leaky.py", "carried", "curried")'})
    ran = cli(*LEAKY, "--mutants", "drop_decay")
    assert ran.code == ExitCode.ROTTEN
    assert "matches 4 places" in ran.report


@pytest.mark.parametrize("text", ["carried = = G", "carried = undefined", "raise ImportError"])
def test_a_mutant_that_does_not_run_is_no_kill(cli, hello, text):
    edit(hello / "mutants" / "leaky_scan.py", {DROP: f'Edit("leaky.py", "carried = a * G", "{text}")'})
    ran = cli(*LEAKY, "--mutants", "drop_decay")
    assert ran.code == ExitCode.ROTTEN
    assert ran.kills["plain", "drop_decay", "", "full"][0] == "UNVIABLE"


SURVIVOR = """
no_change = Mutant(
    op="leaky_scan", defect="none", why="a factor of one", seen_in="invented",
    edits={"plain": Edit("leaky.py", "carried = a * G", "carried = a * G * 1")}, %s
)
"""


@pytest.fixture
def survivor(hello):
    def add(expectation=""):
        file = hello / "mutants" / "leaky_scan.py"
        file.write_text(file.read_text() + SURVIVOR % expectation)

    return add


def test_a_mutant_that_nobody_saw_is_shown_with_its_diff(cli, survivor):
    survivor()
    ran = cli(*LEAKY, "--mutants", "no_change")
    assert ran.code == ExitCode.SURVIVORS
    assert ran.kills["plain", "no_change", "", "full"][:2] == ("SURVIVED", 0)
    assert "- carried = a * G" in ran.report
    assert "+ carried = a * G * 1" in ran.report


def test_a_survivor_that_was_declared_with_its_reason_is_none(cli, survivor):
    survivor('expect="equivalent", reason="one times x is x"')
    ran = cli(*LEAKY, "--mutants", "no_change")
    assert ran.code == ExitCode.OK, ran.err
    assert ran.kills["plain", "no_change", "", "full"][0] == "EQUIVALENT"


def test_a_declared_survivor_that_is_killed_rots_the_suite(cli, hello):
    edit(hello / "mutants" / "leaky_scan.py", {'why="da reads': 'expect="harmless", reason="nobody uses da", why="da reads'})
    ran = cli(*LEAKY, "--mutants", "state_after_in_da")
    assert ran.code == ExitCode.ROTTEN
    assert "declared harmless (nobody uses da), and yet killed" in ran.report


def test_kills_mean_nothing_where_an_edit_that_changes_nothing_is_killed(cli, hello):
    """A kernel that goes wrong by being copied."""
    edit(hello / "hello" / "leaky.py", {"G = carried + dy[:, t]": 'G = (carried + dy[:, t]) * (2 if "/runs/" in __file__ else 1)'})
    ran = cli(*LEAKY, "--mutants", "all")
    assert ran.code == ExitCode.ROTTEN
    assert "the null mutant (an edit that changes nothing) did not survive" in ran.report


def test_a_wrong_kernel_outweighs_a_rotten_suite_and_its_mutants_are_not_run(cli, hello):
    edit(hello / "hello" / "leaky.py", {"carried = a * G": "carried = G"})
    ran = cli(*LEAKY, "--mutants", "all")
    assert ran.code == ExitCode.WRONG
    assert ran.kills == {}
    assert "the mutants of plain were not run: the kernel itself is wrong" in ran.report


def test_a_kernel_that_was_asked_for_and_cannot_run_here_is_no_pass(cli, hello):
    edit(hello / "oracles" / "leaky_scan.py", {'requires="mlx"': 'requires="no_such_device"'})
    ran = cli("run", "--op", "leaky_scan", "--kernel", "ops", "--json")
    assert ran.code in {ExitCode.INCONCLUSIVE, ExitCode.NOTHING}
    assert "ops: needs the package no_such_device" in ran.report


def test_a_bug_of_ours_is_never_taken_for_a_verdict(cli, hello, monkeypatch):
    monkeypatch.setattr(judge, "margin", lambda measurement, tolerances: 1 / 0)
    ran = cli(*LEAKY)
    assert (ran.code, ran.out) == (ExitCode.BUG, "")
    assert "this is a bug in gradcheck" in ran.err
