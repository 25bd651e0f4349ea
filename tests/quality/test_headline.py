"""What the report says at its top is true: who was run, by what he was judged, how far noise and defect lie apart."""

from __future__ import annotations

import json
import math
import re

import pytest

from gradcheck import ExitCode
from gradcheck.calibrate.bands import ROOM

from .conftest import STRANGERS, shell

GRADIENTS = ("s", "x", "dt", "A", "B", "C")
MUTANTS = ("drop_dA_path", "seed_ds_with_zeros", "drop_y_in_dS", "previous_state_in_dC", "drop_softplus_slope")


def assert_five_killed_and_six_separated(ran, forms):
    assert ran.code == ExitCode.OK, ran.err
    for mutant in MUTANTS:
        for branch in ("mamba1", "mamba2"):
            for form in forms:
                assert ran.kills["mlx", mutant, branch, form][0] == "KILLED"
    for name in GRADIENTS:
        bands = [b for b in ran.run["bands"] if (b["kernel"], b["dtype"], b["quantity"]) == ("mlx", "f32", f"d {name}") and b["defect"]]
        best = max(math.log10(b["defect"] / b["noise"]) for b in bands)
        printed, *_ = re.findall(rf"^✓ d {name} +\w+ +\S+ +\S+ +\S+ +\S+ +(\d+\.\d)", ran.err, re.MULTILINE)
        assert math.log10(ROOM) < float(printed) <= round(best, 1)


def test_five_mutants_are_killed_in_both_branches_and_the_separation_of_six_gradients_is_printed(cli):
    few = ("--kernel", "mlx", "--cases", "4", "--dtype", "f32", "--checks", "none")
    ran = cli("run", "--op", "ssm_scan", "--mutants", ",".join(MUTANTS), *few, "--json")
    assert_five_killed_and_six_separated(ran, ("full", "last step", "one head"))
    assert "5 of 5 mutants killed" in ran.report


@pytest.mark.slow
def test_the_main_job(cli):
    assert_five_killed_and_six_separated(cli("run", "--op", "ssm_scan", "--mutants", "all", "--json"), ("full",))


def test_a_stranger_is_judged_by_the_op_and_says_so_and_that_no_mutants_apply(cli):
    few = ("--cases", "4", "--checks", "none")
    ran = cli("run", "--op", "ssm_scan", "--kernel", f"{STRANGERS / 'numpy_object.py'}:scan", "--mutants", "all", *few)
    assert ran.code == ExitCode.OK, ran.out
    assert "band: op-level for" in ran.report
    assert "no mutants apply to" in ran.report
    for name in GRADIENTS:  # its separation comes from the defects spliced into its gradients
        assert re.search(rf"^✓ d {name} +\w+ +\S+ +\S+ +\S+ +\S+ +\d+\.\d", ran.out, re.MULTILINE), name


def test_with_json_stdout_is_one_json_document_and_nothing_else(here):
    (here / "loud.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(STRANGERS)!r})\nprint('loud at import')\n"
        "from numpy_object import scan as right\n"
        "class Loud:\n"
        "    arrays = 'numpy'\n"
        "    forward = staticmethod(right.forward)\n"
        "    def vjp(self, inputs, cotangents):\n"
        "        print('loud'); os.system('echo louder'); return right.vjp(inputs, cotangents)\n"
        "scan = Loud()\n"
    )
    done = shell(here, "run", "--op", "ssm_scan", "--kernel", "loud.py:scan", "--cases", "1", "--dims", "T=5", "--checks", "none", "--json")
    assert json.loads(done.out)["exit_code"] == done.code
    assert "loud" not in done.out.replace("loud.py", "")
    assert done.out.count("\n") == 1
    assert "loud.py:scan agrees with the truth" in " ".join(done.err.split())


def test_with_json_an_error_leaves_stdout_empty(here):
    done = shell(here, "run", "--op", "ssm_scn", "--json")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "did you mean 'ssm_scan'?" in done.err


def test_what_failed_is_looked_at_again_and_the_headline_says_what_it_is(check, second_look):
    known, unknown, poor = (
        f"{STRANGERS / name}" for name in ("planted.py:drop_dA_path", "planted.py:even_steps", "cumulative_sums.py:scan")
    )
    ran = check(known, "--kernel", unknown, "--kernel", poor, "--cases", "4", "--jobs", "1", "--checks", "none")
    assert ran.code == ExitCode.WRONG
    assert "is wrong in d dt" in ran.headline(known)
    assert "is wrong in d x" in ran.headline(unknown)
    assert " is numerically poor in " in ran.headline(poor)
    notes = {kernel: [note for note in ran.run["notes"] if note.startswith(kernel)] for kernel in (known, unknown, poor)}
    assert notes[known][0].startswith(f"{known} looks most like mutant `drop_dA_path` (cosine 1.000): d(dt) loses ")
    assert re.fullmatch(rf"{re.escape(unknown)} looks like no known mutant: the nearest is `\w+` \(cosine 0\.\d\d\)", *notes[unknown])
    assert "is numerically poor: " in notes[poor][0]
    assert "and yet is rounding" in notes[poor][0]
    assert {v["outcome"] for v in ran.verdicts if v["cause"] in {"mistake", "rounding"}} == {"FAILED"}  # no word makes a pass of it
