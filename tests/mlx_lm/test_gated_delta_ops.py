"""Our checkpointed gated delta rule against mlx-lm's ops path: the same operations in the same order, so the same bits."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from gradcheck.kernels.gated_delta import autodiff, checkpointed
from gradcheck.metal.tapping import Captured

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what mlx-lm imports warns of itself


def inputs(dtype: mx.Dtype, T: int, *, vector: bool) -> list[mx.array]:
    """As a model hands them over: the state in float32."""
    rng = np.random.default_rng(T)
    B, Hk, Hv, Dk, Dv = 2, 2, 6, 32, 5
    k = rng.normal(size=(B, T, Hk, Dk))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = rng.uniform(0.5, 1, (B, T, Hv, Dk) if vector else (B, T, Hv))
    drawn = [rng.normal(size=(B, T, Hk, Dk)), k, rng.normal(size=(B, T, Hv, Dv)), g, rng.uniform(0, 1, (B, T, Hv))]
    return [*(mx.array(a.astype(np.float32)).astype(dtype) for a in drawn), mx.array(rng.normal(size=(B, Hv, Dv, Dk)).astype(np.float32))]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=lambda dtype: str(dtype).rpartition(".")[2])
@pytest.mark.parametrize("T", [1, 16, 37])
def test_checkpoints_give_the_bits_of_mlx_lm(T, dtype, vector, masked, captured: Captured):
    from mlx_lm.models.gated_delta import gated_delta_ops as ops

    arrays = inputs(dtype, T, vector=vector)
    mask = mx.array(np.random.default_rng(1).random((2, T)) < 0.6) if masked else None
    y, state = ops(*arrays, mask)
    for chunk in (1, 8, 64):
        got, last = checkpointed.gated_delta_y_unmasked(*arrays, mask, chunk=chunk)
        assert (got.dtype, last.dtype) == (y.dtype, state.dtype)
        assert mx.array_equal(got, y)
        assert mx.array_equal(last, state)
        zeroed, last = checkpointed.gated_delta(*arrays, mask, chunk=chunk)
        assert mx.array_equal(zeroed, y if mask is None else mx.where(mask[:, :, None, None], y, 0))
        assert mx.array_equal(last, state)


def test_the_bits_tell_one_step_with_another_gate(captured: Captured):
    from mlx_lm.models.gated_delta import gated_delta_ops as ops

    q, k, v, g, beta, state = inputs(mx.float32, 37, vector=False)
    moved = mx.where(mx.arange(37)[None, :, None] == 36, g * (1 + 2.0**-20), g)
    assert not mx.array_equal(ops(q, k, v, g, beta, state)[1], checkpointed.gated_delta(q, k, v, moved, beta, state)[1])
    assert mx.array_equal(ops(q, k, v, g, beta, state)[0], autodiff.gated_delta(q, k, v, g, beta, state)[0])
