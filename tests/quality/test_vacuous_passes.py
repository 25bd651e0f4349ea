"""Passes that checked nothing: each way in which a gradient check somewhere is known to pass without one, tried here and refused.

V1 to V22 are the modes of the survey of gradient checkers (issue 3), in which each was seen. All of them can be tried here; of three it is a
part that cannot occur:

* V10, an oracle that is wrong and agrees by luck: that two oracles agree within their own bounds is a property of arrays, and is tested in
  `tests/unit/numerics/test_oracles.py`. Here: an op that lies to its oracle about itself.
* V14, a simulator taken for a GPU: where there is no Apple GPU no run can have used one, so only the refusal and the label are tried.
* V15, an output that was never written: NumPy and MLX allocate it inside the kernel, where nothing of ours can poison it; of a Metal kernel
  the checker reports it (V13). Here: a buffer that is used again.

One run judges all kernels of `WRONG`, as strangers: exit 1, and each is blamed for itself. It is made with every variable
set by which CI is known to be told to be milder.
"""

from __future__ import annotations

import shutil
import textwrap

import msgspec
import pytest

from gradcheck import Band, Case, ExitCode
from gradcheck._verdict import METRICS
from gradcheck.calibrate import judge
from gradcheck.calibrate.noise import FACTOR
from gradcheck.calibrate.published import Published, Trial
from gradcheck.engine import environment
from gradcheck.engine.truth import sources_of
from gradcheck.suite import find_op, load
from gradcheck.suite._roots import builtin_root

from .conftest import TESTDATA, Ran, edit, run_ids, shell

QUICK = ("--dtype", "f32", "--checks", "none", "--jobs", "1", "--json")
LEAKY = ("run", "--op", "leaky_scan", "--kernel", "plain", "--cases", "2", *QUICK)

CASES = tuple(
    f"leaky_scan/{case}/0"
    for case in (
        "B2,T5,D7/f32/uniform",
        "B2,T37,D7/f32/uniform@impulse",  # most of d x is exactly zero
        "B2,T131,D7/f32/uniform@state",  # d h is a millionth of d x
        "B3,T300,D50/f32/uniform",
        "B1,T1,D1/f32/uniform",
        "B2,T1,D7/f32/forgetful",  # d a is exactly zero
    )
)
IMPULSE, FAINT, LARGE, SMALL, ZERO = CASES[1:]

MILDER = ("CI", "GITHUB_ACTIONS", "FLA_CI_ENV", "GRADCHECK_TOLERANCE", "GRADCHECK_SKIP")

HEAD = """
import os
import numpy as np
from hello.leaky import LeakyScan

class Right(LeakyScan):
    arrays = "numpy"

right = Right()
"""
ONE = """
class Mine(Right):
    def forward(self, h, x, a):
        y, h_T = super().forward(h, x, a)
        {forward}
        return y, h_T

    def vjp(self, inputs, cotangents):
        {before}
        dh, dx, da = super().vjp(inputs, cotangents)
        {after}
        return dh, dx, da

{name} = Mine()
"""
WRONG = {  # what is done before, in and after the vjp, and to the outputs
    "all_nan": {"forward": "y, h_T = y * np.nan, h_T * np.nan", "after": "dh, dx, da = dh * np.nan, dx * np.nan, da * np.nan"},
    "one_infinite": {"after": "da[-1] = np.inf"},
    "zeros_beside_zeros": {"after": "dx = np.zeros_like(dx)"},
    "off_beside_zeros": {"after": "dx = dx * np.float32(1.01)"},
    "not_zero_where_it_must_be": {"after": "da = da + np.float32(1e-30)"},  # elsewhere it is lost in rounding
    "takes_cotangents_for_ones": {"before": "cotangents = tuple(np.ones_like(w) for w in cotangents)"},
    "one_element": {"after": "dx[-1, -1, -1] *= np.float32(1.01)"},
    "faint_one_dropped": {"after": "dh = np.zeros_like(dh)"},
    "a_thousandth": {"after": "da = da * np.float32(1.001)"},
    "later_rows": {"after": "dx[1:] = dx[1:] * np.float32(1.5)"},
    "none_for_one": {"after": "da = None"},
    "one_too_few": {"after": "return dh, dx"},
    "writes_on_its_input": {"after": "inputs[1][:] = 0"},
    "wrong_in_ci": {"after": "dx = 2 * dx if os.environ.get('CI') else dx"},
}
NOTHING = {"forward": "pass", "before": "pass", "after": "pass"}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, _truths) -> Ran:
    """The run of every kernel of `WRONG`, with a right one among them."""
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(TESTDATA / "hello", folder, dirs_exist_ok=True)
    text = HEAD + "".join(ONE.format(name=name, **{**NOTHING, **done}) for name, done in WRONG.items())
    (folder / "mine.py").write_text(text, encoding="utf-8")
    kernels = [word for name in ("right", *WRONG) for word in ("--kernel", f"mine.py:{name}")]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GRADCHECK_CACHE_DIR": str(_truths), **dict.fromkeys(MILDER, "1")}.items():
            patch.setenv(name, value)
        return shell(folder, "run", "--op", "leaky_scan", *kernels, *(word for case in CASES for word in ("--cases", case)), *QUICK)


def refused(ran: Ran, name: str, blamed: set[str], *, passes: tuple[str, ...] = ()) -> None:
    """Exit 1 because of this kernel, everywhere but at the cases in which it is right, and blamed for these quantities alone."""
    target = f"mine.py:{name}"
    assert ran.code == ExitCode.WRONG
    assert any(f"kernel {target} is wrong" in reason for reason in ran.run["reasons"])
    assert f"{target} agrees" not in ran.report
    outcomes = dict(zip([v["item"]["case"] for v in ran.verdicts if v["item"]["kernel"] == target], ran.outcomes(target), strict=True))
    assert outcomes == {case: "PASSED" if case in passes else "FAILED" for case in CASES}
    assert set(ran.blamed_in(target)) == blamed


def test_the_right_kernel_among_them_passes(wrong):
    assert wrong.outcomes("mine.py:right") == ["PASSED"] * len(CASES)


# V1: nothing was selected. Names that do not exist are in test_exit_codes.py.
@pytest.mark.parametrize(
    "selection",
    [
        ("--cases", f"{CASES[0]}", "--regime", "forgetful"),
        ("--cases", f"{CASES[0]}", "--dtype", "f16"),
        ("--dtype", "bf16"),  # which the kernel does not claim
    ],
    ids=" ".join,
)
def test_v1_a_selection_that_leaves_no_case_checks_nothing(cli, hello, selection):
    ran = cli("run", "--op", "leaky_scan", "--kernel", "plain", *selection)
    assert ran.code == ExitCode.NOTHING
    assert "PASS " not in ran.out
    assert "nothing was" in ran.report


# V2: what was skipped is counted as passed.
def test_v2_a_kernel_that_cannot_run_here_is_named_as_not_run_and_never_as_passed(cli, hello):
    edit(hello / "oracles" / "leaky_scan.py", {'requires="mlx"': 'requires="no_such_device"'})
    ran = cli("run", "--op", "leaky_scan", "--dtype", "f32", "--cases", "2", "--checks", "none")
    assert ran.code == ExitCode.OK, ran.out
    assert "not run ops: needs the package no_such_device" in ran.report
    assert "plain agrees with the truth" in ran.report
    assert "ops agrees" not in ran.report


def test_v2_where_no_kernel_can_run_nothing_was_checked(cli, hello):
    edit(hello / "oracles" / "delta_rule.py", {'sources=("delta.py",)': 'sources=("delta.py",), requires="no_such_device"'})
    ran = cli("run", "--op", "delta_rule")
    assert ran.code == ExitCode.NOTHING
    assert "not run plain: needs the package no_such_device" in ran.report
    assert "agrees" not in ran.report


# V3: a comparison with NaN is false, so that NaN is never too far off.
def test_v3_what_is_not_finite_fails(wrong):
    refused(wrong, "all_nan", {"y", "h_T", "d h", "d x", "d a"})
    refused(wrong, "one_infinite", {"d a"})


# V4: 0/0, or a truth near zero, against which nothing can be wrong.
def test_v4_a_gradient_beside_true_zeros_is_still_compared(wrong):
    refused(wrong, "zeros_beside_zeros", {"d x"})
    refused(wrong, "off_beside_zeros", {"d x"})


GROWING = {
    "    state = next(iter(inputs))\n    return inputs | {state: np.zeros(shapes[state])}": "    return inputs | {'a': inputs['a'] * 1e30}"
}


def test_v4_a_gradient_whose_truth_overflows_in_every_case_was_not_checked(cli, hello):
    """Beyond float64 any value would do: a kernel that returns nothing but zeros too."""
    edit(hello / "oracles" / "_draw.py", GROWING)
    edit(hello / "hello" / "leaky.py", {"return carried, dx, da": "return 0 * h, 0 * x, 0 * a"})
    ran = cli(*LEAKY, "--regime", "forgetful", "--dims", "B2,T37,D7")
    assert ran.code == ExitCode.NOTHING
    for name in ("h", "x", "a"):
        assert f"no case of the plan says anything about d {name}" in ran.report
    assert "agrees" not in ran.report


def test_v4_the_headline_says_in_how_many_cases_a_truth_says_nothing(cli, hello):
    edit(hello / "oracles" / "_draw.py", GROWING)
    cases = [f"leaky_scan/B2,T{steps},D7/f32/{regime}/0" for steps, regime in ((1, "uniform"), (5, "uniform"), (37, "forgetful"))]
    ran = cli("run", "--op", "leaky_scan", "--kernel", "plain", *(word for case in cases for word in ("--cases", case)), *QUICK)
    assert "no word plain: of y in 1, h_T in 1, d h in 1, d x in 1, d a in 1 of 3 cases (uninformative" in ran.report


# V5: under a cotangent of ones a kernel that ignores or permutes it is right.
def test_v5_a_kernel_that_takes_every_cotangent_for_ones_fails(wrong):
    refused(wrong, "takes_cotangents_for_ones", {"d h", "d x", "d a"})


# V6: a mean over thousands of elements dilutes a wrong one.
def test_v6_one_wrong_element_of_many_fails_though_the_mean_does_not_see_it(wrong):
    refused(wrong, "one_element", {"d x"}, passes=(IMPULSE,))  # where that element is exactly zero
    (large,) = (v for v in wrong.verdicts if (v["item"]["kernel"], v["item"]["case"]) == ("mine.py:one_element", LARGE))
    (dx,) = (m for m in large["evidence"]["measurements"] if m["quantity"] == "d x")
    assert dx["checked"] > 10_000
    assert dx["errors"]["maa"] < 1e-6
    assert (dx["worst"], dx["worst_step"]) == ([2, 299, 49], 299)


# V7: the tolerance of a large gradient hides a small one.
def test_v7_a_gradient_much_smaller_than_the_others_is_judged_by_itself(wrong):
    refused(wrong, "faint_one_dropped", {"d h"})
    sizes = {m["quantity"]: abs(m["want"]) for v in of_case(wrong, "right", FAINT) for m in v["evidence"]["measurements"]}
    assert sizes["d h"] < 1e-4 * sizes["d x"]


def of_case(ran: Ran, name: str, case: str) -> list:
    return [v for v in ran.verdicts if (v["item"]["kernel"], v["item"]["case"]) == (f"mine.py:{name}", case)]


# V8: a tolerance that grows with the number of elements.
def test_v8_the_same_relative_error_is_seen_in_one_element_and_in_many(wrong):
    refused(wrong, "a_thousandth", {"d a"}, passes=(ZERO,))


# V9: the kernel is compared with itself.
def test_v9_the_reference_cannot_check_itself(cli):
    ran = cli("run", "--op", "ssm_scan", "--kernel", f"{builtin_root().path / 'oracles' / 'ssm_scan.py'}:ssm_scan")
    assert ran.code == ExitCode.USAGE
    assert "is the reference itself" in ran.err


# V10: the oracle is wrong and nobody notices.
def test_v10_an_op_that_lies_to_its_oracle_is_found_out_before_a_kernel_is_judged(cli, hello):
    edit(hello / "oracles" / "leaky_scan.py", {'linear="h x"': 'linear="h x a"', "h = a * h + x\n": "h = a**3 * h + x\n"})
    ran = cli("lint", "--suite", ".")
    assert ran.code not in {ExitCode.OK, ExitCode.BUG}
    assert "linear" in ran.out + ran.err


# V11: a regime in which a path carries nothing.
def test_v11_where_a_path_carries_nothing_its_gradient_was_not_checked(cli, hello):
    """After one step from a state of zeros nothing has gone through `a`."""
    ran = cli(*LEAKY, "--regime", "forgetful", "--dims", "T1")
    assert ran.code == ExitCode.NOTHING
    assert "no case of the plan says anything about d a" in ran.report


# V12: shapes that are too nice.
def test_v12_a_kernel_that_is_right_for_one_row_fails_for_more(wrong):
    refused(wrong, "later_rows", {"d x"}, passes=(SMALL,))


@pytest.mark.parametrize("name", ["ssm_scan", "mamba2"])
def test_v12_the_default_grid_has_rows_odd_lengths_and_unequal_sizes(cli, name):
    ran = cli("list", "cases", "--op", name, "--json")
    sizes = [Case.parse(row["case"]).sizes for row in msgspec.json.decode(ran.out)]
    assert {1, 2, 3} <= {one["B"] for one in sizes}
    assert 1 in {one["T"] for one in sizes}
    assert any(one["T"] > 64 and one["T"] % 2 for one in sizes)
    assert any(one["P"] != one["N"] and one["B"] > 1 for one in sizes)


# V13: what is tested is not what runs.
def test_v13_a_metal_kernel_that_launches_nothing_is_a_fallback_and_fails(cli, hello):
    (hello / "hello" / "leaky.metal").write_text("// nobody launches this\n")
    edit(hello / "oracles" / "leaky_scan.py", {'sources=("leaky_ops.py",)': 'sources=("leaky_ops.py", "leaky.metal")'})
    ran = cli("run", "--op", "leaky_scan", "--kernel", "ops", "--cases", "1", *QUICK)
    assert (ran.code, set(ran.outcomes())) == (ExitCode.WRONG, {"FAILED"})
    assert "launches no Metal kernel, so what was compared is a fallback" in ran.report


# V14: another device, or a simulator, passes for the one that was meant.
def test_v14_a_kernel_that_requires_a_gpu_does_not_pass_without_one(cli, hello, monkeypatch):
    monkeypatch.setattr(environment, "device", lambda: "CPU (MLX)")
    edit(hello / "oracles" / "leaky_scan.py", {'requires="mlx"': 'requires="metal"'})
    ran = cli("run", "--op", "leaky_scan", "--kernel", "ops", "--cases", "1", *QUICK)
    assert ran.code in {ExitCode.NOTHING, ExitCode.INCONCLUSIVE}
    assert "kernel ops was asked for and cannot run here: needs an Apple GPU" in ran.report
    assert "agrees" not in ran.report


def test_v14_what_did_not_run_on_the_gpu_that_it_requires_has_no_verdict(cli, hello, monkeypatch):
    """Even where there is one: the kernel took another path."""
    monkeypatch.setattr(environment, "device", lambda: environment.APPLE)
    edit(hello / "oracles" / "leaky_scan.py", {'requires="mlx"': 'requires="metal"'})
    ran = cli("run", "--op", "leaky_scan", "--kernel", "ops", "--cases", "1", *QUICK)
    assert (ran.code, set(ran.outcomes())) == (ExitCode.NOTHING, {"NO_DEVICE"})
    assert "needs an Apple GPU, and ran on something else" in ran.report
    assert "agrees" not in ran.report


# V15: a buffer that holds what was computed before.
def test_v15_a_buffer_that_is_used_again_fails(cli, hello):
    edit(hello / "hello" / "leaky.py", {"dx, da = np.empty_like(x), np.zeros_like(a)": "dx, da = np.empty_like(x), kept(a)"})
    with (hello / "hello" / "leaky.py").open("a") as file:
        file.write("\n\nBUFFERS = {}\n\n\ndef kept(a):\n    return BUFFERS.setdefault(a.shape, np.zeros_like(a))\n")
    case = ("--cases", CASES[0], "--dtype", "f32", "--jobs", "1", "--json")
    ran = cli("run", "--op", "leaky_scan", "--kernel", "plain", *case, "--checks", "determinism")
    assert ran.outcomes() == ["PASSED"]  # the first time the buffer is empty
    assert ran.code == ExitCode.WRONG
    assert "plain fails the check determinism" in ran.report


# V16: a gradient that is not there is taken for zero.
def test_v16_a_gradient_that_is_missing_fails(wrong):
    refused(wrong, "none_for_one", {"d a"})
    refused(wrong, "one_too_few", {"d a"})
    assert wrong.blamed_in("mine.py:none_for_one") == {"d a": "d a: is None"}


def test_v16_where_the_truth_is_exactly_zero_the_kernel_must_be(wrong):
    refused(wrong, "not_zero_where_it_must_be", {"d a"}, passes=CASES[:-1])


# V17: the tolerance is raised until all is green.
def test_v17_nobody_can_ask_for_a_tolerance(cli, hello):
    assert cli(*LEAKY, "--tolerance", "1").code == ExitCode.USAGE


def test_v17_a_published_tolerance_that_admits_the_defects_is_no_tolerance(cli, hello):
    """Raised in the file to where a wrong gradient is within tolerance: so is the weakest defect, and that is told."""
    quantities = ("y", "h_T", "d h", "d x", "d a")
    bands = [
        Band("leaky_scan", "plain", "f32", quantity, metric, noise=1.0, tolerance=1e9, measured=0.5, defect=1e3, weakest="drop_decay")
        for quantity in quantities
        for metric in METRICS
    ]
    noise = {"f32/f32": {quantity: dict.fromkeys(METRICS, 1.0) for quantity in quantities}}
    digest = sources_of(find_op(load([hello]), "leaky_scan"))
    published = Published("leaky_scan", digest, FACTOR, (0,), 1.0, noise, tuple(bands), Trial((1,), 1, 0, 1, 0, 0.5), {})
    file = hello / "reports" / "published" / "leaky_scan.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(published))
    edit(hello / "hello" / "leaky.py", {"return carried, dx, da": "return carried, dx, da * np.float32(1.001)"})
    ran = cli(*LEAKY)
    assert "bands published" in ran.report
    assert set(ran.outcomes()) == {"PASSED"}
    assert ran.code == ExitCode.INCONCLUSIVE
    assert "no tolerance separates noise" in ran.report


# V18: the checks are switched off.
def test_v18_python_without_asserts_checks_the_same(hello, monkeypatch):
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    edit(hello / "hello" / "leaky.py", {"carried = a * G": "carried = a * G if __debug__ else G"})
    ran = shell(hello, "run", "--op", "leaky_scan", "--kernel", "plain", "--cases", CASES[0], *QUICK)
    assert (ran.code, ran.outcomes()) == (ExitCode.WRONG, ["FAILED"])


def test_v18_a_checker_that_has_gone_blind_is_told_by_its_canary(cli, hello, monkeypatch):
    monkeypatch.setattr(judge, "margin", lambda measurement, tolerances: (0.0, "z"))
    ran = cli(*LEAKY)
    assert ran.code == ExitCode.ROTTEN
    assert "the canary (a gradient of zeros) was not killed" in ran.report


# V19: the inputs are not what they were.
def test_v19_a_kernel_that_writes_on_its_input_fails_though_its_numbers_are_right(wrong):
    refused(wrong, "writes_on_its_input", set())
    assert {v["why"] for v in wrong.verdicts if v["item"]["kernel"] == "mine.py:writes_on_its_input"} == {"vjp overwrites its input x"}
    assert "is wrong, whatever its numbers are" in wrong.report


# V20: the inputs are always the same, and can be learnt by heart.
def test_v20_what_was_learnt_by_heart_is_told_by_another_seed_and_by_the_checks(cli, hello):
    text = """
        import hashlib, pathlib
        from hello.leaky import LeakyScan
        BOOK = pathlib.Path(__file__).with_name("book.txt")

        class Learnt(LeakyScan):
            def vjp(self, inputs, cotangents):
                page = hashlib.sha256(b"".join(a.tobytes() for a in (*inputs, *cotangents))).hexdigest()
                if LEARNING:
                    with BOOK.open("a") as book:
                        book.write(page)
                known = page in BOOK.read_text()
                return tuple(g if known else 0 * g for g in super().vjp(inputs, cotangents))

        scan = Learnt()
    """
    file = hello / "mine.py"
    seeds = [f"leaky_scan/B2,T5,D7/f32/uniform/{seed}" for seed in (0, 1)]
    mine = ("run", "--op", "leaky_scan", "--kernel", "mine.py:scan", "--jobs", "1", "--json", "--cases")
    file.write_text(textwrap.dedent(text).replace("LEARNING", "True"))
    assert cli(*mine, seeds[0], "--checks", "none").code == ExitCode.OK
    file.write_text(textwrap.dedent(text).replace("LEARNING", "False"))
    ran = cli(*mine, seeds[0], "--cases", seeds[1], "--checks", "determinism")
    assert ran.outcomes() == ["PASSED", "FAILED"]
    assert ran.code == ExitCode.WRONG
    assert "mine.py:scan fails the check determinism" in ran.report  # it calls at other numbers in between


# V21: "OK" before the work is done.
def test_v21_a_run_that_was_stopped_before_its_end_has_no_result(cli, hello, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.engine.run.mutants", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        ran = cli(*LEAKY, "--mutants", "all")
    assert (ran.code, ran.out) == (ExitCode.INTERRUPTED, "")
    asked = cli("report", *run_ids(hello))
    assert asked.code == ExitCode.INCONCLUSIVE
    assert "so far" in asked.out
    assert "planned items have no verdict" in asked.out


# V22: in CI a failure becomes a warning.
def test_v22_no_variable_of_the_environment_makes_a_verdict_milder(wrong):
    refused(wrong, "wrong_in_ci", {"d x"})
