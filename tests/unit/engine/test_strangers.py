"""Each stranger's kernel in tests/testdata/strangers is called as a run would, and is wrong in the one way that it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradcheck.engine.call import call
from gradcheck.engine.target import load_target
from gradcheck.kernels.ssm_scan.mlx import ssm_scan

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
NAMES = ("s", "x", "dt", "A", "B", "C")
NOISE = 32 * 2.0**-23  # relative to the largest element
RIGHT = ("other_order", "chunked", "autodiff", "half_inputs", "noncontiguous", "numpy_object")
WRONG = {
    "sign_error": {"A"},
    "missing_group_sum": {"B", "C"},
    "last_token_wrong": {"x"},
    "later_batch_rows_wrong": {"dt"},
    "scale_error": {"C"},
    "zeros_for_one": {"dt"},
    "nan_in_one_element": {"x"},
    "two_swapped": {"B", "C"},
    "state_cotangent_ignored": {"s", "x", "dt", "A", "B"},
}
PROBLEMS = {
    "one_too_few": {"C": "missing: the vjp returned 5 gradients for 6 inputs"},
    "wrong_dtype": {"x": "has dtype float16, want float32"},
}

# These are looked at twice; see test_nearest.py and test_conditioning.py.
LOOKED_AT = {"planted", "cumulative_sums"}

# Numbers pass these; see test_checks.py.
CHECKED = {
    "leak_from_later_token",
    "assumes_unit_cotangents",
    "wrong_at_even_lengths",
    "batch_order_dependent",
    "stale_state",
    "nondeterministic",
    "reads_strides_wrong",
    "wrong_at_production_shape",
}


def draw(branch, dtype="f32"):
    rng = np.random.default_rng(3)
    batch, T, H, P, N, G = 2, 35, 4, 3, 5, 2  # more than two chunks of 16 steps
    inputs = {
        "s": rng.normal(size=(batch, H, P, N)),
        "x": rng.normal(size=(batch, T, H, P)),
        "dt": rng.normal(size=(batch, T, H)),
        "A": -np.exp(rng.normal(-2.0, 1.0, (H,) if branch == "mamba2" else (H, N))),
        "B": rng.normal(size=(batch, T, G, N)),
        "C": rng.normal(size=(batch, T, G, N)),
    }
    cotangents = [rng.normal(size=(batch, T, H, P)), rng.normal(size=(batch, H, P, N))]
    round_to = {"f32": np.float32, "f16": np.float16}[dtype]
    return {k: v.astype(round_to).astype(np.float64) for k, v in inputs.items()}, [
        w.astype(round_to).astype(np.float64) for w in cotangents
    ]


def run(kernel, branch, dtype="f32"):
    inputs, cotangents = draw(branch, dtype)
    return call(kernel, inputs, cotangents, dtype=dtype, output_shapes=[w.shape for w in cotangents], differentiable=NAMES)


def stranger(name):
    return load_target(f"{STRANGERS / name}.py:scan")


def differ(got, want):
    """Names of the gradients that differ by more than noise, and where."""
    found = {}
    for name, g, w in zip(NAMES, got.gradients, want.gradients, strict=True):
        wrong = ~(np.abs(g.value - w.value) <= NOISE * np.abs(w.value).max())
        if wrong.any():
            found[name] = wrong
    return found


def test_every_stranger_is_tested():
    files = {path.stem for path in STRANGERS.glob("*.py") if not path.stem.startswith("_")}
    assert files == {*RIGHT, *WRONG, *PROBLEMS, *CHECKED, *LOOKED_AT, "overwrites_input", "crashes"}
    for name in files:
        said = (STRANGERS / f"{name}.py").read_text().partition(":")[0]
        assert said == ('"""Right' if name in RIGHT else '"""Wrong')


@pytest.mark.parametrize("branch", ["mamba1", "mamba2"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_stranger_agrees_with_our_kernel(name, branch):
    got, want = run(stranger(name), branch), run(ssm_scan, branch)
    assert got.notes == ()
    assert {g.problem for g in (*got.outputs, *got.gradients)} == {""}
    assert all(np.abs(g.value - w.value).max() <= NOISE * np.abs(w.value).max() for g, w in zip(got.outputs, want.outputs, strict=True))
    assert differ(got, want) == {}


@pytest.mark.parametrize("branch", ["mamba1", "mamba2"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_stranger_is_wrong_in_the_gradients_that_it_says_and_in_no_other(name, branch):
    got, want = run(stranger(name), branch), run(ssm_scan, branch)
    assert got.notes == ()
    assert {g.problem for g in (*got.outputs, *got.gradients)} == {""}
    wrong = differ(got, want)
    assert set(wrong) == WRONG[name]
    if name == "last_token_wrong":
        assert wrong["x"][:, -1].any()
        assert not wrong["x"][:, :-1].any()
    if name == "later_batch_rows_wrong":
        assert wrong["dt"][1:].any()
        assert not wrong["dt"][:1].any()
    if name == "nan_in_one_element":
        assert np.argwhere(wrong["x"]).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("branch", ["mamba1", "mamba2"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_gradient_that_is_missing_or_of_another_dtype_is_named(name, branch):
    got = run(stranger(name), branch)
    assert {key: g.problem for key, g in zip(NAMES, got.gradients, strict=True) if g.problem} == PROBLEMS[name]


def test_overwriting_an_input_is_noted_though_the_numbers_are_right():
    got = run(stranger("overwrites_input"), "mamba2")
    assert got.notes == ("forward overwrites its input dt",)
    assert differ(got, run(ssm_scan, "mamba2")) == {}


def test_half_inputs_takes_halves_and_hands_the_state_on_in_float32():
    got, want = run(stranger("half_inputs"), "mamba1", "f16"), run(ssm_scan, "mamba1", "f16")
    assert {g.problem for g in (*got.outputs, *got.gradients)} == {""}
    for g, w in zip((*got.outputs, *got.gradients), (*want.outputs, *want.gradients), strict=True):
        assert np.abs(g.value - w.value).max() <= 2.0**-10 * np.abs(w.value).max()
    state = got.outputs[1].value
    assert not np.array_equal(state, state.astype(np.float16))


def test_the_crash_takes_the_interpreter_down():
    lines = f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}; from test_strangers import *; run(stranger('crashes'), 'mamba2')"
    done = subprocess.run([sys.executable, "-c", lines], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode < 0, done.stderr
