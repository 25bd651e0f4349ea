"""ggml's gated delta rule in MLX: against one step after the other on keys that are tiled, where the kernel moves the values."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from gradcheck.kernels.gated_delta import autodiff, tiled

U = 2.0**-24
"""Unit roundoff of float32."""

ROUNDINGS = 256
"""Of a value by either path, at these sizes: sums of 33 channels, products and sums of up to two chunks of 64 steps, twice."""

BRANCHES = pytest.mark.parametrize("vector", [False, True])


def inputs(seed: int, T: int, *, vector: bool, Hk: int = 2, r: int = 3, Dk: int = 33, Dv: int = 5, B: int = 2) -> list[mx.array]:
    rng = np.random.default_rng(seed)
    Hv = r * Hk
    k = rng.normal(size=(B, T, Hk, Dk))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    drawn = [
        rng.normal(size=(B, T, Hk, Dk)),
        k,
        rng.normal(size=(B, T, Hv, Dv)),
        -(10 ** rng.uniform(-4, 1, (B, T, Hv, Dk) if vector else (B, T, Hv))),
        rng.uniform(0, 1, (B, T, Hv)),
        rng.normal(size=(B, Hv, Dv, Dk)),
    ]
    return [mx.array(a.astype(np.float32)) for a in drawn]


def plain(q, k, v, g, beta, state, *, spread=mx.tile, scaled=True):
    """Keys and queries spread over the value heads, one step after the other: value head h then reads the place h."""
    heads = v.shape[2] // k.shape[2]
    q, k = (spread(a, (1, 1, heads, 1)) if spread is mx.tile else spread(a, heads, axis=2) for a in (q, k))
    y, last = autodiff.gated_delta(q, k, v, mx.exp(g), beta, state)
    return (y / v.shape[3] ** 0.5 if scaled else y), last


def results(kernel, arrays: list[mx.array], **options) -> list[np.ndarray]:
    """Outputs and gradients under a random objective."""
    rng = np.random.default_rng(7)
    weights = [mx.array(rng.uniform(0.5, 1.5, out.shape).astype(np.float32)) for out in kernel(*arrays, **options)]
    found, gradients = mx.vjp(lambda *moved: list(kernel(*moved, **options)), arrays, weights)
    return [np.array(a) for a in (*found, *gradients)]


def off(a: list[np.ndarray], b: list[np.ndarray]) -> list[float]:
    """The largest difference of each, relative to its largest element, in roundings of float32; infinite where one is not finite."""
    found = [np.abs(p - q).max() / np.abs(q).max() / U for p, q in zip(a, b, strict=True)]
    return [float(x) if np.isfinite(x) else np.inf for x in found]


@BRANCHES
@pytest.mark.parametrize("Hk, r", [(2, 3), (3, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("T", [1, 9, 131])
def test_values_in_runs_are_keys_in_tiles(T, Hk, r, vector):
    arrays = inputs(T, T, vector=vector, Hk=Hk, r=r)
    assert max(off(results(tiled.gated_delta_ggml, arrays), results(plain, arrays))) <= ROUNDINGS


@BRANCHES
def test_keys_in_runs_and_a_missing_scale_are_seen_in_everything_they_touch(vector):
    arrays = inputs(1, 9, vector=vector)
    ours = results(tiled.gated_delta_ggml, arrays)
    assert min(off(ours, results(lambda *a: plain(*a, spread=mx.repeat), arrays))) > 1000 * ROUNDINGS
    unscaled = off(ours, results(lambda *a: plain(*a, scaled=False), arrays))
    assert unscaled[1] <= ROUNDINGS  # the final state knows no scale
    assert min(unscaled[:1] + unscaled[2:]) > 1000 * ROUNDINGS


@BRANCHES
def test_the_form_of_the_op_is_the_same_numbers(vector):
    arrays = inputs(2, 9, vector=vector)
    apart = [*arrays[:2], *(mx.unflatten(a, 2, (3, 2)) for a in arrays[2:5]), mx.unflatten(arrays[5], 1, (3, 2))]
    for a, b in zip(results(tiled.gated_delta_ggml, arrays), results(tiled.by_tiles, apart), strict=True):
        assert np.array_equal(a.ravel(), b.ravel())


@BRANCHES
@pytest.mark.parametrize("shut", [-1000.0, -np.inf])
def test_a_gate_that_is_shut_gives_no_gradient_and_no_nan(shut, vector):
    arrays = inputs(3, 20, vector=vector)
    closed = np.random.default_rng(3).random(arrays[3].shape) < 0.3
    arrays[3] = mx.where(mx.array(closed), shut, arrays[3])
    found = results(tiled.gated_delta_ggml, arrays)
    assert all(np.isfinite(a).all() for a in found)
    assert not found[5][closed].any()
    assert found[5][~closed].any()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_results_have_the_dtypes_of_the_inputs(dtype):
    arrays = inputs(4, 9, vector=False)
    half = [a.astype(dtype) for a in arrays[:5]]
    y, last = tiled.gated_delta_ggml(*half, arrays[5])
    assert (y.dtype, last.dtype) == (dtype, mx.float32)
    (want, _) = tiled.gated_delta_ggml(*(a.astype(mx.float32) for a in half), arrays[5])
    assert mx.array_equal(y, want.astype(dtype))  # nothing is rounded on the way


@pytest.mark.parametrize(
    "name, place, shape", [("k", 1, (2, 9, 1, 33)), ("g", 3, (2, 9, 6, 1)), ("beta", 4, (2, 1, 6)), ("state", 5, (2, 6, 33, 5))]
)
def test_an_array_that_would_broadcast_is_refused(name, place, shape):
    arrays = inputs(5, 9, vector=False)
    arrays[place] = mx.zeros(shape)
    with pytest.raises(ValueError, match=f"gated_delta_ggml: {name} has shape \\({', '.join(map(str, shape))}\\), need"):
        tiled.gated_delta_ggml(*arrays)


@pytest.mark.parametrize(
    "place, given, says",
    [
        (0, np.zeros((2, 9, 2, 5)), r"q is of type numpy.ndarray, need an MLX array \[B, T, Hk, Dk\]; mx.array\(q\)"),
        (3, 0.5, r"g is of type float, need an MLX array \[B, T, Hv\] or \[B, T, Hv, Dk\]"),
        (4, mx.ones((2, 9, 6), mx.bool_), r"beta has dtype bool, need one of floating-point numbers; give beta.astype\(mx.float32\)"),
        (5, None, r"state is None, need an MLX array \[B, Hv, Dv, Dk\], of zeros if there is none"),
    ],
)
def test_what_is_no_array_of_floats_is_named_with_what_to_give(place, given, says):
    arrays = inputs(5, 9, vector=False)
    arrays[place] = given
    with pytest.raises(TypeError, match=f"gated_delta_ggml: {says}"):
        tiled.gated_delta_ggml(*arrays)


def test_value_heads_that_are_no_tiles_are_refused():
    arrays = inputs(5, 9, vector=False, Hk=1, r=5)
    arrays[:2] = (mx.concatenate([a, a], axis=2) for a in arrays[:2])
    with pytest.raises(ValueError, match="v has 5 heads, need a multiple of the 2 of q and k"):
        tiled.gated_delta_ggml(*arrays)
