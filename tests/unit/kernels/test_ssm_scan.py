from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from gradcheck.engine.call import call
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package, load_target
from gradcheck.kernels.ssm_scan.mlx import ssm_scan

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "gradcheck" / "kernels" / "ssm_scan"
NAMES = ("s", "x", "dt", "A", "B", "C")
EPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
ROUNDINGS = 32  # of the largest element: sums over at most five steps and a few lanes
BRANCHES = ("mamba1", "mamba2")


def draw(branch, *, batch=2, T=5, H=4, P=3, N=2, G=2, seed=0):
    rng = np.random.default_rng(seed)
    dt = rng.normal(0.0, 2.0, (batch, T, H))
    dt.flat[:3] = 25.0, -30.0, 19.0  # both branches of the softplus, away from the jump between them
    inputs = {
        "s": rng.normal(size=(batch, H, P, N)),
        "x": rng.normal(size=(batch, T, H, P)),
        "dt": dt,
        "A": -np.exp(rng.normal(-2.0, 1.0, (H,) if branch == "mamba2" else (H, N))),
        "B": rng.normal(size=(batch, T, G, N)),
        "C": rng.normal(size=(batch, T, G, N)),
    }
    cotangents = [rng.normal(size=(batch, T, H, P)), rng.normal(size=(batch, H, P, N))]
    return {name: rounded(value, "f32") for name, value in inputs.items()}, [rounded(value, "f32") for value in cotangents]


def rounded(value, dtype):
    array = mx.array(value.astype(np.float32))
    return np.array(array.astype({"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[dtype]).astype(mx.float32)).astype(np.float64)


def reference(s, x, dt, A, B, C):
    """The equations, element by element of time, in float64."""
    step = np.where(dt > 20, dt, np.logaddexp(dt, 0))
    rate = A[:, None] if A.ndim == 1 else A
    heads = np.arange(x.shape[2]) // (x.shape[2] // B.shape[2])
    S, y = s, []
    for t in range(x.shape[1]):
        P = step[:, t, :, None, None]
        S = np.exp(P * rate[:, None, :]) * S + P * x[:, t, :, :, None] * B[:, t, heads][:, :, None, :]
        y.append((S * C[:, t, heads][:, :, None, :]).sum(-1))
    return np.stack(y, axis=1), S


def central_differences(inputs, cotangents, h=2.0**-17):
    """Gradient of `sum of cotangents · outputs`, one element of one input at a time."""

    def objective(name, index, by):
        moved = inputs[name].copy()
        moved[index] += by
        return sum(float((w * out).sum()) for w, out in zip(cotangents, reference(**{**inputs, name: moved}), strict=True))

    return {
        name: np.array([(objective(name, i, h) - objective(name, i, -h)) / (2 * h) for i in np.ndindex(value.shape)]).reshape(value.shape)
        for name, value in inputs.items()
    }


def run(kernel, inputs, cotangents, dtype="f32"):
    shapes = [w.shape for w in cotangents]
    got = call(kernel, inputs, cotangents, dtype=dtype, output_shapes=shapes, differentiable=NAMES)
    assert [g.problem for g in (*got.outputs, *got.gradients)] == [""] * 8
    assert got.notes == ()
    return [g.value for g in got.outputs], {name: g.value for name, g in zip(NAMES, got.gradients, strict=True)}


def distance(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("T", [1, 5])
def test_all_six_gradients_are_the_central_differences_of_the_equations(branch, T):
    inputs, cotangents = draw(branch, T=T)
    outputs, gradients = run(ssm_scan, inputs, cotangents)
    for got, want in zip(outputs, reference(**inputs), strict=True):
        assert distance(got, want) <= ROUNDINGS * EPS["f32"]
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_inputs_cost_one_rounding_since_the_sums_are_in_float32(branch, dtype):
    inputs, cotangents = draw(branch)
    inputs = {name: rounded(value, dtype) for name, value in inputs.items()}
    cotangents = [rounded(value, dtype) for value in cotangents]
    outputs, gradients = run(ssm_scan, inputs, cotangents, dtype)
    exact_outputs, exact_gradients = run(ssm_scan, inputs, cotangents)
    for got, want in zip([*outputs, *gradients.values()], [*exact_outputs, *exact_gradients.values()], strict=True):
        assert (np.abs(got - want) <= EPS[dtype] * np.abs(want) + np.finfo(np.float16).smallest_subnormal).all()


@pytest.mark.parametrize("branch", BRANCHES)
def test_decays_of_exactly_0_and_exactly_1_are_differentiated_too(branch):
    inputs, cotangents = draw(branch)
    inputs["A"] = np.where(np.arange(inputs["A"].size).reshape(inputs["A"].shape) % 2 == 0, -1e4, 0.0)
    _, gradients = run(ssm_scan, inputs, cotangents)
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


def test_a_loss_on_one_output_alone_is_enough():
    inputs, _ = draw("mamba1")
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    for which in (0, 1):
        gradient = mx.grad(lambda x, which=which: ssm_scan(arrays[0], x, *arrays[2:])[which].sum())(arrays[1])
        weights = [np.zeros_like(out) if i != which else np.ones_like(out) for i, out in enumerate(reference(**inputs))]
        assert distance(np.array(gradient), central_differences(inputs, weights)["x"]) <= ROUNDINGS * EPS["f32"]


@pytest.mark.parametrize(
    "name, shape, says",
    [
        ("s", (2, 4, 3), "s has shape (2, 4, 3), need 4 axes"),
        ("dt", (2, 5, 1), "dt has shape (2, 5, 1), need (2, 5, 4)"),
        ("A", (1,), "A has shape (1,), need (4,) (Mamba-2) or (4, 2) (Mamba-1)"),
        ("B", (2, 5, 3, 2), "the 3 groups of B (2, 5, 3, 2) must divide the 4 heads of x (2, 5, 4, 3)"),
        ("C", (2, 5, 4, 2), "C has shape (2, 5, 4, 2), need (2, 5, 2, 2)"),
        ("x", (2, 0, 4, 3), "nothing to scan"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(name, shape, says):
    inputs = {key: mx.array(value.astype(np.float32)) for key, value in draw("mamba2")[0].items()}
    inputs[name] = mx.zeros(shape)
    with pytest.raises(ValueError, match="ssm_scan") as raised:
        ssm_scan(**inputs)
    assert says in str(raised.value)


MUTANTS = {
    "drop_dA_path": {"dt"},
    "seed_ds_with_zeros": {"s", "x", "dt", "A", "B"},
    "drop_y_in_dS": {"s", "x", "dt", "A", "B"},
    "previous_state_in_dC": {"C"},
    "drop_softplus_slope": {"dt"},
}


@pytest.mark.checkout
@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_spoils_the_gradients_it_is_about_and_no_other(name, branch, tmp_path):
    mutant = load_target(f"{ROOT / 'mutants' / 'ssm_scan.py'}:{name}")
    inputs, cotangents = draw(branch)
    outputs, right = run(ssm_scan, inputs, cotangents)
    copy = copy_with_edit(PACKAGE, mutant.edits["mlx"], name, tmp_path)
    mutated_outputs, wrong = run(load_package(copy, "mlx", "ssm_scan"), inputs, cotangents)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, mutated_outputs, strict=True))
    assert {key for key in NAMES if not np.array_equal(wrong[key], right[key])} == MUTANTS[name]
    assert all(distance(wrong[key], right[key]) > 0.01 for key in MUTANTS[name])


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_null_mutant_is_bitwise_the_kernel(branch, tmp_path):
    inputs, cotangents = draw(branch)
    null = load_package(copy_with_edit(PACKAGE, None, "null", tmp_path), "mlx", "ssm_scan")
    _, right = run(ssm_scan, inputs, cotangents)
    _, same = run(null, inputs, cotangents)
    assert all(np.array_equal(same[name], right[name]) for name in NAMES)
