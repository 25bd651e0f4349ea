"""What a sharp kernel author would try. Each kernel is a few lines on top of the right scan of `strangers/_scan.py`."""

from __future__ import annotations

import pytest

from gradcheck import Case, ExitCode

QUICK = ("--checks", "none")
FEW = ("--cases", "4", "--jobs", "1", *QUICK)
ONE = ("--cases", "1", *QUICK)  # of each branch

MLX = """
import mlx.core as mx
from _scan import Scan

class Mine(Scan):
    def finish(self, gradients, inputs):
        {}

scan = Mine().function()
"""
NUMPY = """
import os, sys, time
import numpy as np
from _scan import Scan

class Mine(Scan):
    xp = np
    arrays = "numpy"
    def vjp(self, inputs, cotangents):
        {}

scan = Mine()
"""
RIGHT = "return super().vjp(inputs, cotangents)"

ALL = {"d s", "d x", "d dt", "d A", "d B", "d C"}

WRONG = {
    "0.1 % in one head": (
        MLX,
        """
        head = mx.arange(gradients["x"].shape[2])[:, None] == 1
        return {**gradients, "x": mx.where(head, gradients["x"] * 1.001, gradients["x"])}
        """,
        {"d x"},
    ),
    "infinite in one element": (
        MLX,
        """
        seventh = mx.arange(gradients["s"].size).reshape(gradients["s"].shape) == 7
        return {**gradients, "s": mx.where(seventh, mx.inf, gradients["s"])}
        """,
        {"d s"},
    ),
    "wrong for one step alone": (
        MLX,
        'return gradients if inputs["x"].shape[1] > 1 else {**gradients, "C": gradients["C"] * 2 + 1}',
        {"d C"},
    ),
    "no gradient for A": (MLX, 'return {**gradients, "A": None}', {"d A"}),
    "batch rows turned round": (MLX, 'return {**gradients, "x": gradients["x"][::-1]}', {"d x"}),
    "one step late": (MLX, 'return {**gradients, "B": mx.roll(gradients["B"], 1, axis=1)}', {"d B"}),
    "assumes cotangents of one size": (NUMPY, "return super().vjp(inputs, tuple(np.sign(w) for w in cotangents))", ALL),
    "float64 gradients": (NUMPY, "return tuple(g.astype(np.float64) for g in super().vjp(inputs, cotangents))", ALL),
    "lists for arrays": (NUMPY, "return [g.tolist() for g in super().vjp(inputs, cotangents)]", ALL),
    "noise of 1e-4": (
        NUMPY,
        """
        s, *rest = super().vjp(inputs, cotangents)
        noise = 1e-4 * np.random.default_rng().standard_normal(s.shape)
        return (s * (1 + noise)).astype(s.dtype), *rest
        """,
        {"d s"},
    ),
    "rounded to half precision": (
        NUMPY,
        "*rest, C = super().vjp(inputs, cotangents); return *rest, C.astype(np.float16).astype(C.dtype)",
        {"d C"},
    ),
}


def mine(pattern, body):
    return pattern.format(body.strip())


def test_each_is_caught_and_blamed_for_what_is_wrong_in_it(check, write, here):
    targets = {}
    for number, (what, (pattern, body, _)) in enumerate(WRONG.items()):
        write(mine(pattern, body))
        (here / "stranger.py").rename(here / f"wrong{number}.py")
        targets[what] = f"wrong{number}.py:scan"
    first, *others = targets.values()
    ran = check(first, *(word for other in others for word in ("--kernel", other)), *FEW)
    assert ran.code == ExitCode.WRONG
    assert {what: set(ran.blamed_in(target)) for what, target in targets.items()} == {what: blamed for what, (*_, blamed) in WRONG.items()}


def test_a_wrong_forward_is_blamed_on_the_output_though_all_gradients_are_right(check, write):
    text = mine(NUMPY, RIGHT) + (
        "def forward(*inputs, right=scan.forward):\n    y, s = right(*inputs)\n    return y * np.float32(1.001), s\nscan.forward = forward\n"
    )
    ran = check(write(text), *FEW)
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, {"y"})


def test_a_nan_where_dt_exceeds_20_is_caught_where_dt_exceeds_20(check, write):
    text = mine(MLX, 'return {**gradients, "dt": mx.where(inputs["dt"] > 20, mx.nan, gradients["dt"])}')
    ran = check(write(text), "--regime", "softplus-branches,typical", *FEW)
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, {"d dt"})
    caught = {Case.parse(v["item"]["case"]).regime for v in ran.verdicts if v["outcome"] == "FAILED"}
    assert caught == {"softplus-branches"}


def test_a_hang_is_a_time_out_and_no_pass(check, write):
    ran = check(write(mine(NUMPY, "time.sleep(600)")), *ONE, "--timeout", "3")
    assert ran.code == ExitCode.INCONCLUSIVE
    assert ran.outcomes() == ["TIMEOUT"] * 2
    assert "no answer within 3 s" in ran.report


@pytest.mark.parametrize("how", ["sys.exit(0)", "os._exit(0)", "os.abort()"])
def test_an_end_of_the_process_is_a_crash_even_with_status_0(check, write, how):
    ran = check(write(mine(NUMPY, how)), *ONE)
    assert (ran.code, ran.outcomes()) == (ExitCode.WRONG, ["CRASHED"] * 2)


def test_memory_without_end_is_stopped_at_the_limit(check, write):
    text = mine(NUMPY, "hoard = []\n        while True: hoard.append(np.ones(1 << 22))")
    ran = check(write(text), *ONE, "--memory", "0.5", "--timeout", "30")
    assert (ran.code, ran.outcomes()) == (ExitCode.INCONCLUSIVE, ["MEMORY"] * 2)
    assert "needed more memory than its limit in 2 of 2 cases; first: held" in ran.report
    assert "the limit is 512 MiB. Give it more by --memory" in ran.report
    assert "is wrong" not in ran.report


def test_an_exception_is_the_kernels_own_failure_with_its_words_and_place(check, write):
    ran = check(write(mine(NUMPY, 'raise RuntimeError("no backward for odd T")')), *ONE)
    assert (ran.code, ran.outcomes()) == (ExitCode.WRONG, ["FAILED"] * 2)
    assert "it raised RuntimeError: no backward for odd T" in ran.report
    assert "2 cases FAILED: raised RuntimeError" in ran.report
    assert "differs from the truth" not in ran.report
    assert "stranger.py" in ran.verdicts[0]["evidence"]["detail"]


def test_a_crash_in_some_cases_leaves_the_others_their_verdicts(check, write):
    ran = check(write(mine(NUMPY, f"if inputs[1].shape[0] == 2: os.abort()\n        {RIGHT}")), *FEW)
    assert ran.code == ExitCode.WRONG
    for verdict in ran.verdicts:
        assert verdict["outcome"] == ("CRASHED" if Case.parse(verdict["item"]["case"]).sizes["B"] == 2 else "PASSED")


def test_a_babbling_kernel_passes_and_is_not_heard_in_the_json(check, write):
    noise = r"""print("{garbage", flush=True); print("\x1b[2J", file=sys.stderr); os.write(1, b"\xff\x00\n"); os.chdir("/"); os.close(1)"""
    ran = check(write(mine(NUMPY, f"{noise}\n        {RIGHT}")), "--cases", "2", *QUICK)  # the first alone says nothing of d C
    assert ran.code == ExitCode.OK, ran.err
    assert ran.outcomes() == ["PASSED"] * 4
    assert "garbage" not in ran.out + ran.err


STALE = """
import numpy as np
from _scan import Scan

class Mine(Scan):
    xp = np
    arrays = "numpy"
    kept = {}
    def vjp(self, inputs, cotangents):
        shapes = tuple(a.shape for a in inputs)
        inputs = self.kept.setdefault(shapes, tuple(a.copy() for a in inputs))  # "the shapes are the same, so nothing changed"
        return super().vjp(inputs, cotangents)

scan = Mine()
"""


def test_a_cache_that_looks_at_shapes_alone_is_caught_where_shapes_repeat(check, write):
    ran = check(write(STALE), "--dims", "B2,T5,H2,G1,P5,N3", *FEW)
    assert ran.code == ExitCode.WRONG


def test_a_cache_that_looks_at_shapes_alone_is_caught_on_any_grid(check, write):
    """Where no two cases have the same shapes it takes the check that calls a kernel again."""
    ran = check(write(STALE), "--cases", "1")
    assert ran.code == ExitCode.WRONG
    assert "off the truth" in ran.report


def test_a_kernel_for_one_branch_passes_on_that_branch_and_fails_on_the_other(check, write):
    only = f'if inputs[3].ndim == 2: raise NotImplementedError("A per state")\n        {RIGHT}'
    ran = check(write(mine(NUMPY, only)), *FEW, "--dims", "mamba2")
    assert (ran.code, ran.outcomes()) == (ExitCode.OK, ["PASSED"] * 4)
    ran = check("stranger.py:scan", *ONE, "--dims", "mamba1")
    assert (ran.code, ran.outcomes()) == (ExitCode.WRONG, ["FAILED"])


FORWARD = "import numpy as np\nfrom _scan import Scan\n\nclass Mine(Scan):\n    xp = np\n\nright = Mine()\n\ndef scan(*inputs):\n    return right.forward(*inputs)\n"


def test_a_kernel_without_a_backward_is_no_pass(check, write):
    ran = check(write(FORWARD), *ONE)
    assert ran.code == ExitCode.NOTHING
    assert "has no backward" in ran.report
    assert "PASS " not in ran.report


def test_forward_only_says_that_no_gradient_was_checked(check, write):
    ran = check(write(FORWARD), *FEW, "--forward-only")
    assert ran.code == ExitCode.OK, ran.err
    assert "0 gradients checked" in ran.report.partition("checked ")[0] + ran.report.partition("checked ")[2]
    assert "agrees with the truth in its outputs" in ran.report


def test_forward_only_still_finds_a_wrong_output(check, write):
    wrong = FORWARD.replace("return right.forward(*inputs)", "y, s = right.forward(*inputs)\n    return y, -s")
    ran = check(write(wrong), *ONE, "--forward-only")
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, {"s_T"})


def test_a_file_that_ends_the_process_when_it_is_imported_is_no_pass(check, write):
    ran = check(write("import sys\nsys.exit(0)\n"), *ONE)
    assert ran.code == ExitCode.USAGE
    assert "importing it ends the process by SystemExit(0)" in ran.err


def test_an_attribute_that_is_no_kernel_is_a_usage_error(check, write):
    ran = check(write("scan = 3\n"), *ONE)
    assert ran.code == ExitCode.USAGE
    assert "stranger.py:scan" in ran.err
