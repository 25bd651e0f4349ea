"""Differences of a function's own values: what they get right, what they cannot, and the measure that goes with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck.numerics.metrics import signed_asymmetry
from gradcheck.numerics.selfdiff import STENCILS, objective, self_gradients

U = 2.0**-24
seeds = st.integers(0, 2**32 - 1)


def rounded(values):
    return np.asarray(values, np.float32).astype(np.float64)


def one_output(function):
    return lambda inputs: (function(inputs["x"]),)


def gradient(function, x, points, step, weights=None):
    weights = np.ones_like(x) if weights is None else weights
    return self_gradients(one_output(function), {"x": x}, (weights,), ["x"], points=points, step=step)["x"]


@given(seeds, st.sampled_from(STENCILS))
def test_of_a_linear_function_nothing_but_rounding_is_off(seed, points):
    rng = np.random.default_rng(seed)
    x, w = rounded(rng.uniform(-1, 1, (2, 3))), rounded(rng.uniform(0.5, 1.5, (2, 3)))
    got = gradient(lambda x: 2 * x, x, points, 1.0, w)
    assert np.abs(got - 2 * w).max() <= 64 * U * np.abs(w).sum()


def test_two_points_are_off_by_the_square_of_the_step_and_four_are_exact_for_a_cubic():
    x = rounded([[0.5, -1.0], [2.0, 0.25]])
    assert gradient(lambda x: x**3, x, 2, 0.25) - 3 * x**2 == pytest.approx(0.25**2, rel=1e-4)
    assert gradient(lambda x: x**3, x, 4, 0.25) == pytest.approx(3 * x**2, rel=1e-5)


def test_half_the_step_makes_a_quarter_of_the_error():
    x = rounded([1.0])
    coarse, fine = (float(gradient(np.exp, x, 2, h)[0]) - np.e for h in (0.5, 0.25))
    assert coarse / fine == pytest.approx(4, rel=0.02)


def test_a_step_too_small_for_float32_leaves_nothing_but_rounding():
    x = rounded([1.0])
    assert gradient(np.sin, x, 2, 2.0**-26)[0] == 0  # x + h is x
    assert abs(gradient(np.sin, x, 2, 1e-4)[0] - np.cos(1)) > 100 * U


@pytest.mark.parametrize("points", STENCILS)
def test_one_element_is_moved_at_a_time_and_the_others_stay(points):
    seen = []

    def forward(inputs):
        seen.append({name: value.copy() for name, value in inputs.items()})
        return (inputs["x"] + inputs["k"],)

    inputs = {"x": rounded([1.0, 2.0, 3.0]), "k": np.array([1, 2, 3])}
    self_gradients(forward, inputs, (np.ones(3),), ["x"], points=points, step=0.5)
    assert len(seen) == points * 3
    assert all((given["x"] != inputs["x"]).sum() == 1 for given in seen)
    assert all(np.array_equal(given["k"], inputs["k"]) for given in seen)


def test_every_output_counts_with_its_weight():
    forward = lambda inputs: (inputs["x"], 10 * inputs["x"])  # noqa: E731
    found = self_gradients(forward, {"x": rounded([1.0])}, (np.array([3.0]), np.array([0.5])), ["x"], points=2, step=1.0)
    assert found["x"] == pytest.approx(8.0, rel=1e-6)


def test_a_wrong_forward_agrees_with_itself():
    x = rounded([0.3, 0.7])
    wrong = lambda x: 2 * np.sin(x)  # noqa: E731 - the function meant is sin
    assert signed_asymmetry(2 * np.cos(x), gradient(wrong, x, 4, 0.1)) < 1e-4


def test_the_objective_is_summed_in_float64_and_rounded_once():
    tiny = np.full(8, U)
    assert objective((np.array([1.0]), tiny), (np.ones(1), np.ones(8))) == np.float32(1 + 8 * U)
    assert np.float32(1) + np.float32(U) == np.float32(1)  # so a float32 sum would have lost all eight


def test_its_products_are_rounded_to_float32():
    third = rounded([1 / 3])
    assert objective((third,), (third,)) == np.float32(third[0]) * np.float32(third[0])


@pytest.mark.filterwarnings("error")
def test_a_forward_that_is_not_finite_gives_a_gradient_that_is_not():
    with np.errstate(divide="ignore"):
        got = gradient(lambda x: 1 / np.maximum(x - 1, 0), rounded([1.0]), 2, 0.5)
    assert not np.isfinite(got).any()
    assert signed_asymmetry(np.array([1.0]), got) is None


@given(seeds)
def test_the_measure_of_a_scale_error_is_half_of_it(seed):
    want = np.random.default_rng(seed).uniform(0.5, 1.5, 20)
    assert signed_asymmetry(1.01 * want, want) == pytest.approx(0.01 / 2.01)


def test_zero_over_zero_counts_zero_where_ggml_passes_the_whole_tensor():
    got, want = np.array([0.0, 3.0]), np.array([0.0, 1.0])
    assert signed_asymmetry(got, want) == 0.25
    with np.errstate(invalid="ignore"):
        of_ggml = np.abs((got - want) / (got + want)).mean()
    assert not of_ggml > 1e-4  # ggml's own criterion, blind to a gradient three times too large


@pytest.mark.parametrize("got, want", [(-1.0, 1.0), (np.nan, 1.0), (1.0, np.inf), (np.inf, np.inf)])
def test_what_is_not_finite_is_no_number(got, want):
    assert signed_asymmetry(np.array([got, 1.0]), np.array([want, 1.0])) is None


def test_a_gradient_of_zeros_measures_one():
    assert signed_asymmetry(np.zeros(3), np.array([1.0, -2.0, 1e-30])) == 1
