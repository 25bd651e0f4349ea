from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck.kernels.ssm_scan import checkpoint
from gradcheck.kernels.ssm_scan.mlx import ssm_scan as store_all

from .scan import BRANCHES, NAMES, draw

T = 37


def bits(kernel, inputs, cotangents, dtype=mx.float32, **options):
    """Outputs and gradients as they are in memory."""
    primals = [mx.array(value.astype(np.float32)).astype(dtype) for value in inputs.values()]
    weights = [mx.array(value.astype(np.float32)).astype(dtype) for value in cotangents]
    outputs, gradients = mx.vjp(lambda *arrays: list(kernel(*arrays, **options)), primals, weights)
    return [np.array(array.astype(mx.float32)).view(np.uint32) for array in (*outputs, *gradients)]


def differing(kernel, inputs, cotangents, dtype=mx.float32, **options):
    got, want = bits(kernel, inputs, cotangents, dtype, **options), bits(store_all, inputs, cotangents, dtype)
    named = zip(("y", "s_T", *NAMES), got, want, strict=True)
    return [name for name, a, b in named if not np.array_equal(a, b)]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("every", [1, 3, 16, T, T + 5, None])
def test_checkpoints_change_no_bit_of_outputs_and_gradients(branch, every):
    inputs, cotangents = draw(branch, batch=3, T=T, H=6, P=5, N=17, G=3)
    assert differing(checkpoint.ssm_scan, inputs, cotangents, every=every) == []


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_checkpoints_change_no_bit_in_half_precision_either(dtype):
    inputs, cotangents = draw("mamba1", T=T, P=33, N=37)
    assert differing(checkpoint.ssm_scan, inputs, cotangents, dtype, every=5) == []


@settings(max_examples=25, deadline=None)
@given(
    branch=st.sampled_from(BRANCHES),
    sizes=st.fixed_dictionaries(
        {"batch": st.integers(1, 3), "T": st.integers(1, 12), "P": st.sampled_from([1, 2, 9]), "N": st.integers(1, 9)}
    ),
    every=st.integers(1, 14),
    seed=st.integers(0, 99),
)
def test_no_bit_changes_at_any_size(branch, sizes, every, seed):
    inputs, cotangents = draw(branch, **sizes, seed=seed)
    assert differing(checkpoint.ssm_scan, inputs, cotangents, every=every) == []


def test_bitwise_equality_can_fail():
    """Another order of the sums, right to the last rounding, is told apart."""

    def flipped(s, x, dt, A, B, C):
        y, s_T = store_all(s[..., ::-1], x, dt, A[:, ::-1], B[..., ::-1], C[..., ::-1])
        return y, s_T[..., ::-1]

    inputs, cotangents = draw("mamba1", T=T, N=37)
    assert "y" in differing(flipped, inputs, cotangents)


def test_only_the_first_state_of_each_chunk_is_kept():
    inputs, _ = draw("mamba2", T=T)
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    for every in (1, 3, 16, T):
        assert checkpoint._scan(every)(*arrays)[2].shape == (math.ceil(T / every), *inputs["s"].shape)


def test_a_chunk_has_at_least_one_step():
    inputs, _ = draw("mamba2")
    with pytest.raises(ValueError, match="every is 0, need at least 1 step per chunk"):
        checkpoint.ssm_scan(**{name: mx.array(value.astype(np.float32)) for name, value in inputs.items()}, every=0)


def test_a_shape_that_does_not_fit_is_named_before_anything_is_computed():
    inputs, _ = draw("mamba2")
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in inputs.items()}
    with pytest.raises(ValueError, match=r"A has shape \(1,\)"):
        checkpoint.ssm_scan(**{**arrays, "A": mx.zeros(1)})
