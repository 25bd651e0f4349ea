from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import gradcheck
from gradcheck.engine.call import call
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.mamba2.mlx import TIME_STEP_LIMIT, mamba2
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

from .scan import EPS, ROUNDINGS, distance, rounded
from .scan import reference as scan

ROOT = builtin_root().path  # the checkout, or what the wheel carries
PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "mamba2"
NAMES = ("x", "dt", "A_log", "B", "C", "D", "dt_bias", "state")


def draw(*, dt=None, batch=2, T=5, H=4, P=3, N=2, G=2, seed=0):
    rng = np.random.default_rng(seed)
    if dt is None:  # below, within (on both branches of softplus) and above the bounds
        dt = rng.choice([-10.0, -1.0, 1.0, 25.0, 110.0], (batch, T, H))
    inputs = {
        "x": rng.normal(size=(batch, T, H, P)),
        "dt": np.broadcast_to(dt, (batch, T, H)) + rng.uniform(-0.5, 0.5, (batch, T, H)),
        "A_log": rng.uniform(-6, -4, H),
        "B": rng.normal(size=(batch, T, G, N)),
        "C": rng.normal(size=(batch, T, G, N)),
        "D": rng.normal(size=H),
        "dt_bias": rng.uniform(-1, 1, H),
        "state": rng.normal(size=(batch, H, P, N)),
    }
    cotangents = [rng.normal(size=(batch, T, H, P)), rng.normal(size=(batch, H, P, N))]
    return {name: rounded(value, "f32") for name, value in inputs.items()}, [rounded(value, "f32") for value in cotangents]


def reference(x, dt, A_log, B, C, D, dt_bias, state):
    """The scan of the other test, given the dt of which softplus is the clipped step size."""
    z = dt + dt_bias
    step = np.clip(np.where(z > 20, z, np.logaddexp(z, 0)), *TIME_STEP_LIMIT)
    y, state = scan(state, x, np.where(step > 20, step, np.log(np.expm1(np.minimum(step, 20)))), -np.exp(A_log), B, C)
    return y + D[:, None] * x, state


def central_differences(inputs, cotangents, h=2.0**-17):
    def objective(name, index, by):
        moved = inputs[name].copy()
        moved[index] += by
        return sum(float((w * out).sum()) for w, out in zip(cotangents, reference(**{**inputs, name: moved}), strict=True))

    return {
        name: np.array([(objective(name, i, h) - objective(name, i, -h)) / (2 * h) for i in np.ndindex(value.shape)]).reshape(value.shape)
        for name, value in inputs.items()
    }


def run(kernel, inputs, cotangents):
    got = call(kernel, inputs, cotangents, dtype="f32", output_shapes=[w.shape for w in cotangents], differentiable=NAMES)
    assert [g.problem for g in (*got.outputs, *got.gradients)] == [""] * 10
    assert got.notes == ()
    return [g.value for g in got.outputs], {name: g.value for name, g in zip(NAMES, got.gradients, strict=True)}


@pytest.mark.parametrize("T", [1, 5])
@pytest.mark.parametrize("dt", [None, 0.0])
def test_all_eight_gradients_are_the_central_differences_of_the_equations(T, dt):
    inputs, cotangents = draw(T=T, dt=dt)
    outputs, gradients = run(mamba2, inputs, cotangents)
    for got, want in zip(outputs, reference(**inputs), strict=True):
        assert distance(got, want) <= ROUNDINGS * EPS["f32"]
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


@pytest.mark.parametrize("dt", [-10.0, 110.0])
def test_a_step_size_beyond_its_bounds_has_no_gradient(dt):
    _, gradients = run(mamba2, *draw(dt=dt))
    assert not gradients["dt"].any()
    assert not gradients["dt_bias"].any()
    assert gradients["A_log"].all()


def test_other_bounds_are_obeyed():
    inputs, _ = draw(dt=0.0)
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in inputs.items()}
    pinned = mamba2(**arrays, time_step_limit=(0.5, 0.5))
    moved = mamba2(**{**arrays, "dt": arrays["dt"] + 1}, time_step_limit=(0.5, 0.5))
    assert all(mx.array_equal(a, b) for a, b in zip(pinned, moved, strict=True))
    assert not mx.array_equal(pinned[0], mamba2(**arrays)[0])


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"D": mx.zeros(3)}, r"mamba2: D is mlx.core.float32\(3,\), need floating numbers of shape \(4,\)"),
        ({"dt_bias": mx.zeros(4, mx.int32)}, "mamba2: dt_bias is mlx.core.int32"),
        ({"time_step_limit": (1.0, 0.5)}, r"time_step_limit is \(1.0, 0.5\), need \(lo, hi\) with lo <= hi"),
        ({"state": mx.zeros((2, 4, 3))}, "s has shape"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(changes, says):
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in draw()[0].items()}
    with pytest.raises(ValueError, match=says):
        mamba2(**{**arrays, **changes})


MUTANTS = {
    "ignore_clip_mask": {"dt", "dt_bias"},
    "drop_skip_in_dx": {"x"},
    "dt_bias_of_one_sequence": {"dt_bias"},
    "drop_A_log_chain": {"A_log"},
    "slope_without_bias": {"dt", "dt_bias"},
    "dD_without_dy": {"D"},
}


@pytest.mark.checkout
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_spoils_the_gradients_it_is_about_and_no_other(name, tmp_path):
    mutant = load([ROOT]).mutants[f"mamba2/{name}"]
    inputs, cotangents = draw()
    outputs, right = run(mamba2, inputs, cotangents)
    copy = copy_with_edit(PACKAGE, mutant.edits["mlx"], name, tmp_path)
    mutated_outputs, wrong = run(load_package(copy, "mlx", "mamba2"), inputs, cotangents)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, mutated_outputs, strict=True))
    assert {key for key in NAMES if not np.array_equal(wrong[key], right[key])} == MUTANTS[name]
