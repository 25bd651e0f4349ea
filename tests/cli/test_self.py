"""`gradcheck run --oracle self`: ggml's own mode, beside the truth. Small shapes, real workers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gradcheck import ExitCode

TESTDATA = Path(__file__).parents[1] / "testdata"
TINY = ("--dims", "B1,T3,P1,N2", "--seeds", "2", "--jobs", "2")
FIVE = {"drop_dA_path", "seed_ds_with_zeros", "drop_y_in_dS", "previous_state_in_dC", "drop_softplus_slope"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory and a cache of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def self_run(cli):
    def call(*args: str):
        result = cli("run", "--oracle", "self", "--json", *args)
        return result, json.loads(result.out) if result.out.startswith("{") else {}

    return call


def row(found, mutant, variant):
    (one,) = [row for row in found["rows"] if (row["mutant"], row["variant"]) == (mutant, variant)]
    return one


def test_the_five_defects_stand_beside_the_published_table_and_the_truth(self_run):
    result, found = self_run("--op", "ssm_scan", *TINY)
    assert set(found["table"]["defects"]) == FIVE
    assert {row["mutant"] for row in found["rows"]} == FIVE | {"", "canary", "null"}
    assert {row["variant"] for row in found["rows"]} == {"mamba1", "mamba2"}
    assert (found["gradients"], found["apart"]) == (["s", "x", "dt", "B", "C"], ["A"])
    for variant in ("mamba1", "mamba2"):
        clean = row(found, "", variant)
        assert clean["maa"]["most"] > 1e3 * clean["l2"]["most"]  # the difference is that much worse than the gradient
        assert row(found, "canary", variant)["above"] == 2
        assert row(found, "null", variant)["maa"] == clean["maa"]
    for words in ("0.57", "0.59", "0.44", "0.51", "0.38", "0.021", "ours/theirs", "as ggml_sum does", "0/0", "truncation", "separation"):
        assert words in result.err


@pytest.mark.slow
def test_the_default_setting_has_the_published_level_of_noise_and_float64_lies_a_thousand_times_further_apart(self_run):
    result, found = self_run("--op", "ssm_scan")
    assert (result.code, found["seeds"]) == (ExitCode.OK, 20)
    assert len(found["separations"]) == 2
    for one in found["separations"]:
        assert 5e-3 < row(found, "", one["variant"])["maa"]["most"] < 1e-1
        assert all(row(found, name, one["variant"])["maa"]["least"] > 5e-2 for name in FIVE)
        assert one["by_truth"] > 1e3 * one["by_self"]


def test_a_defect_that_the_regime_hides_is_a_survivor(self_run):
    """With A exactly 0 nothing flows through the decay, so that dropping that path changes nothing."""
    result, found = self_run(
        *("--op", "ssm_scan", "--dims", "B1,T3,P1,N2,mamba2", "--seeds", "1", "--step", "0.05"),
        *("--regime", "gate-one", "--mutants", "drop_dA_path,drop_y_in_dS"),
    )
    assert result.code == ExitCode.SURVIVORS
    assert (row(found, "drop_dA_path", "mamba2")["above"], row(found, "drop_y_in_dS", "mamba2")["above"]) == (0, 1)
    assert "drop_dA_path" in found["reasons"][0]


def test_a_step_too_large_rejects_a_correct_gradient_and_the_truth_tells(self_run):
    result, found = self_run("--op", "ssm_scan", *TINY, "--step", "3", "--mutants", "none")
    assert result.code == ExitCode.WRONG
    assert all(row["l2"]["most"] < 1e-6 for row in found["rows"] if not row["mutant"])
    assert "MAA exceeds 0.05" in found["reasons"][0]


def test_a_small_error_hides_in_the_noise_that_the_truth_does_not_have(self_run):
    """dC of this kernel is 0.1 % too large."""
    kernel = f"{TESTDATA / 'strangers' / 'scale_error.py'}:scan"
    result, found = self_run("--op", "ssm_scan", *TINY, "--step", "0.1", "--kernel", kernel)
    clean = row(found, "", "mamba1")
    assert (result.code, clean["above"]) == (ExitCode.OK, 0)
    assert clean["l2"]["least"] == pytest.approx(1e-3, rel=0.01)


def test_a_crash_is_an_outcome(self_run):
    kernel = f"{TESTDATA / 'strangers' / 'crashes.py'}:scan"
    result, found = self_run("--op", "ssm_scan", "--dims", "B1,T2,P1,N2,mamba2", "--seeds", "1", "--kernel", kernel)
    assert result.code == ExitCode.WRONG
    assert row(found, "", "mamba2")["status"] == "crashed"
    assert "SIGSEGV" in result.err


def test_a_gradient_that_is_not_finite_is_a_failure(self_run):
    kernel = f"{TESTDATA / 'strangers' / 'nan_in_one_element.py'}:scan"
    result, found = self_run("--op", "ssm_scan", "--dims", "B1,T2,P1,N2,mamba2", "--seeds", "1", "--kernel", kernel)
    assert result.code == ExitCode.WRONG
    assert row(found, "", "mamba2")["maa"]["most"] is None


def test_an_op_without_a_published_table_has_sizes_and_a_tolerance_all_the_same(self_run, monkeypatch, tmp_path):
    shutil.copytree(TESTDATA / "hello", tmp_path / "hello", ignore=shutil.ignore_patterns(".gradcheck"))
    monkeypatch.chdir(tmp_path / "hello")
    result, found = self_run("--op", "leaky_scan", "--seeds", "2", "--mutants", "all", "--stencil", "4", "--dims", "T3,D2")
    assert (result.code, found["table"], found["gradients"]) == (ExitCode.OK, None, ["h", "x", "a"])
    assert found["setting"] == {"dims": "B2,T3,D2", "regime": "uniform", "stencil": 4, "step": 0.25}
    assert "theirs" not in result.err


@pytest.mark.parametrize(
    "args", [("--cases", "2"), ("--dtype", "f16"), ("--forward-only",), ("--checks", "all"), ("--cases", "2", "--dtype", "f32")]
)
def test_options_that_would_be_ignored_are_refused_by_name(cli, engine, args):
    result = cli("run", "--op", "ssm_scan", "--oracle", "self", *args)
    assert result.code == ExitCode.USAGE
    assert all(arg in result.err for arg in args if arg.startswith("--"))


@pytest.mark.parametrize("args", [("--step", "0.1"), ("--stencil", "2"), ("--seeds", "3")])
def test_its_own_options_are_refused_without_it(cli, engine, args):
    result = cli("run", "--op", "ssm_scan", *args)
    assert (result.code, engine.asked) == (ExitCode.USAGE, [])
    assert args[0] in result.err


@pytest.mark.parametrize(
    "args, word",
    [
        (("--stencil", "3"), "3 points"),
        (("--step", "0"), "step is 0"),
        (("--step", "nan"), "step is nan"),
        (("--dims", "Z3"), "'Z'"),
        (("--dims", "mamba3"), "'mamba3'"),
        (("--regime", "typical,growth"), "one regime"),
        (("--regime", "typicl"), "'typical'"),
        (("--mutants", "drop_dA_pth"), "'drop_dA_path'"),
        (("--kernel", "mlxx"), "'mlx'"),
    ],
)
def test_what_does_not_exist_or_cannot_be_is_named(cli, args, word):
    result = cli("run", "--op", "ssm_scan", "--oracle", "self", "--seeds", "1", *args)
    assert (result.code, result.out) == (ExitCode.USAGE, "")
    assert word in result.err
