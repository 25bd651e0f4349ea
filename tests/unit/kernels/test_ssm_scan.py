from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import gradcheck
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.ssm_scan.mlx import ssm_scan
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

from .scan import BRANCHES, EPS, NAMES, ROUNDINGS, central_differences, distance, draw, reference, rounded, run

ROOT = builtin_root().path  # the checkout, or what the wheel carries
PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "ssm_scan"


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
    mutant = load([ROOT]).mutants[f"ssm_scan/{name}"]
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
