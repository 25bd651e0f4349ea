"""`gated_delta_update_vjp` beside mlx-lm's own `gated_delta_update`: its arguments, its results, and in its place in a layer."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from gradcheck.kernels.gated_delta.update import gated_delta_update_vjp
from gradcheck.metal.tapping import Captured

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("captured")]

ROUNDINGS = 256 * 2.0**-24
"""What two float32 paths may be apart at these sizes, in units of the largest element."""

BRANCHES = {
    "scalar": {},
    "vector": {"vector": True},
    "bounded": {"vector": True, "lower_bound": -5.0},
    "doubled": {"allow_neg_eigval": True},
}
SIZES = {"B": 2, "T": 70, "Hk": 2, "Hv": 6, "Dk": 16, "Dv": 5}  # Dk below 32: mlx-lm goes step by step, which MLX can differentiate


def draw(dtype: mx.Dtype, *, vector: bool = False) -> list[mx.array]:
    """q, k, v, a, b, A_log, dt_bias and state as mlx-lm's models pass them."""
    B, T, Hk, Hv, Dk, Dv = SIZES.values()
    rng = np.random.default_rng(0)
    k = rng.normal(size=(B, T, Hk, Dk))
    per_gate = (Hv, Dk) if vector else (Hv,)
    drawn = [
        rng.normal(size=(B, T, Hk, Dk)),
        k / np.linalg.norm(k, axis=-1, keepdims=True),
        rng.normal(size=(B, T, Hv, Dv)),
        rng.normal(size=(B, T, *per_gate)),
        rng.normal(size=(B, T, Hv)),
        rng.uniform(-1, 0.5, (Hv, 1) if vector else Hv),
        rng.normal(size=per_gate),
    ]
    arrays = [mx.array(value.astype(np.float32)).astype(dtype) for value in drawn]
    return [*arrays, mx.array(rng.normal(size=(B, Hv, Dv, Dk)).astype(np.float32))]


def worst(got: mx.array, want: mx.array) -> float:
    """The largest difference, over the largest element; infinite where one is not finite."""
    off = float(mx.abs(got - want).max() / mx.abs(want).max())
    return off if np.isfinite(off) else np.inf


def test_every_argument_of_mlx_lms_function_is_taken_with_its_default():
    from mlx_lm.models.gated_delta import gated_delta_update

    theirs, ours = (inspect.signature(function).parameters for function in (gated_delta_update, gated_delta_update_vjp))
    described = [(name, parameter.kind, parameter.default) for name, parameter in theirs.items()]
    assert described == [(name, parameter.kind, parameter.default) for name, parameter in list(ours.items())[: len(theirs)]]


@pytest.mark.parametrize("path", ["autodiff", "chunkwise"])
@pytest.mark.parametrize("branch", BRANCHES)
def test_outputs_and_gradients_are_mlx_lms(branch: str, path: str):
    from mlx_lm.models.gated_delta import gated_delta_update

    options = dict(BRANCHES[branch])
    arrays = draw(mx.float32, vector=bool(options.pop("vector", False)))

    def answers(function, **how) -> list[mx.array]:
        outputs = function(*arrays, **options, **how)
        weights = [mx.cos(mx.arange(out.size)).reshape(out.shape) for out in outputs]
        return [*outputs, *mx.vjp(lambda *x: list(function(*x, **options, **how)), arrays, weights)[1]]

    assert max(map(worst, answers(gated_delta_update_vjp, path=path), answers(gated_delta_update))) <= ROUNDINGS


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_shapes_and_dtypes_are_mlx_lms(dtype: mx.Dtype):
    from mlx_lm.models.gated_delta import gated_delta_update

    for given in (draw(dtype), draw(dtype)[:7]):
        theirs, ours = gated_delta_update(*given), gated_delta_update_vjp(*given, path="chunkwise")
        assert [(out.shape, out.dtype) for out in ours] == [(out.shape, out.dtype) for out in theirs]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_a_half_precision_state_stays_one_where_mlx_lms_plain_ops_make_float32_of_it(dtype: mx.Dtype):
    from mlx_lm.models.gated_delta import gated_delta_update

    given = draw(dtype)
    given[7] = given[7].astype(dtype)
    assert gated_delta_update(*given, use_kernel=False)[1].dtype == mx.float32
    assert [gated_delta_update_vjp(*given, path=path)[1].dtype for path in ("autodiff", "checkpointed", "chunkwise")] == [dtype] * 3


def test_under_a_mask_the_state_is_mlx_lms_and_y_is_0_as_in_its_kernels():
    from mlx_lm.models.gated_delta import gated_delta_update

    arrays, mask = draw(mx.float32), mx.random.uniform(shape=(SIZES["B"], SIZES["T"]), key=mx.random.key(0)) < 0.6
    (y, last), (theirs, their_last) = (function(*arrays, mask) for function in (gated_delta_update_vjp, gated_delta_update))
    kept = mask[..., None, None]
    assert worst(last, their_last) <= ROUNDINGS
    assert worst(y, mx.where(kept, theirs, 0)) <= ROUNDINGS
    assert bool(mx.where(kept, 0, theirs).any())  # on this path mlx-lm lets the y of a masked step through


def test_db_of_mlx_lms_training_path_is_lost_where_beta_saturates():
    from mlx_lm.models.gated_delta import gated_delta_update

    arrays = draw(mx.float32)
    arrays[4] = mx.full(arrays[4].shape, 20.0)
    ours, theirs = (
        mx.grad(lambda b, f=f: f(*arrays[:4], b, *arrays[5:])[0].sum())(arrays[4]) for f in (gated_delta_update_vjp, gated_delta_update)
    )
    assert not theirs.any()
    assert bool((ours != 0).all())


def test_a_layer_of_mlx_lm_trains_the_same_with_it_in_place(monkeypatch: pytest.MonkeyPatch):
    from mlx_lm.models import qwen3_next

    config = SimpleNamespace(
        hidden_size=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=5,
        linear_conv_kernel_dim=4,
        rms_norm_eps=1e-6,
    )
    mx.random.seed(0)
    layer = qwen3_next.Qwen3NextGatedDeltaNet(config)
    layer.train()
    x = mx.random.normal((2, 70, 16))

    def gradients() -> dict[str, mx.array]:
        return dict(tree_flatten(nn.value_and_grad(layer, lambda x: layer(x).square().sum())(x)[1]))

    want, calls = gradients(), []

    def counted(*arrays, **options):
        calls.append(options)
        return gated_delta_update_vjp(*arrays, **options, path="chunkwise")

    monkeypatch.setattr(qwen3_next, "gated_delta_update", counted)  # the name that the layer calls; not mlx_lm.models.gated_delta's
    got = gradients()
    assert calls == [{"use_kernel": False}]
    assert {"A_log", "dt_bias"} < set(want) == set(got)
    assert max(worst(got[name], want[name]) for name in want) <= ROUNDINGS


def test_mlx_lms_own_path_here_is_plain_ops_and_ours_is_metal_where_there_seems_to_be_a_gpu(captured: Captured):
    """So what is compared above is what MLX differentiates; under the tap a launch would have been seen, as ours is."""
    from mlx_lm.models.gated_delta import gated_delta_update

    del captured.launches[:]
    mx.eval(gated_delta_update(*draw(mx.float32)))
    assert not captured.launches
    mx.eval(gated_delta_update_vjp(*draw(mx.float32)))
    assert [launched.text.name for launched in captured.launches] == ["gated_delta_forward"]
