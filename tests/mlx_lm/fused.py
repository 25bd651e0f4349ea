"""mlx-lm's fused kernels, each beside its float64 reference. `mlx_lm` is imported in the functions: within the tap."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

from tests.mlx_lm.bounds import UNIT, Array, Compared, compared, drawn, exact, gamma

_EPS = 1e-5
_EPS32 = float(np.float32(_EPS))  # as the kernels get it


def _norm(x: Array) -> Array:
    """1 / rms over the last axis."""
    return 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _EPS32)


def _norm_error(threads: int, dim: int) -> float:
    """Relative: squares, the sum of a thread's and of all, the mean, eps, and a root that is good to 2 u."""
    return gamma(math.ceil(dim / threads) + 10 + 6)


def qk_norm(dtype: mx.Dtype) -> list[Compared]:
    """Heads of q and k normed, q scaled: y is rounded to the dtype before it is scaled."""
    from mlx_lm.kernels import qk_norm as kernel

    HQ, HK, D = 4, 2, 80
    x = drawn(np.random.default_rng(6), dtype, 2, 5, 2 * (HQ + HK) * D)
    scale = 0.3
    q, k = kernel(x, n_heads=HQ, n_kv_heads=HK, head_dim=D, eps=_EPS, query_scale=scale)
    want_q, want_k = _heads(x, HQ, HK, D, scale)
    error = _norm_error(32, D) + gamma(2)
    return [
        compared("qk_norm: q", q, want_q, (UNIT[dtype] + error) * (1 + UNIT[dtype]) * np.abs(want_q)),
        compared("qk_norm: k", k, want_k, error * np.abs(want_k)),
    ]


def _heads(x: mx.array, HQ: int, HK: int, D: int, scale: float) -> tuple[Array, Array]:
    heads = exact(x).reshape(*x.shape[:2], 2 * (HQ + HK), D)[:, :, : HQ + HK]
    normed = heads * _norm(heads)
    return normed[:, :, :HQ] * float(np.float32(scale)), normed[:, :, HQ:]


def qk_norm_rope(dtype: mx.Dtype) -> list[Compared]:
    """The same, then turned by the position: pairs of neighbours."""
    from mlx_lm.kernels import qk_norm_rope as kernel

    HQ, HK, D, base, offset = 2, 1, 64, 10000.0, 3
    x = drawn(np.random.default_rng(7), dtype, 2, 5, 2 * (HQ + HK) * D)
    q, k = kernel(x, n_heads=HQ, n_kv_heads=HK, head_dim=D, eps=_EPS, query_scale=0.3, rope_base=base, offset=offset)
    exponent = -(np.arange(D) // 2) / (D / 2) * float(np.float32(math.log2(base)))
    angle = (offset + np.arange(x.shape[1]))[:, None, None] * np.exp2(exponent)
    # The exponent's error is multiplied by it; exp2, the product with the position, cos and sin are good to 2 u each.
    turned = angle * gamma(3 + 2 * float(np.max(np.abs(exponent)))) + gamma(4)
    before = 2 * UNIT[dtype] + _norm_error(32, D) + gamma(2)
    found = []
    for name, got, plain in zip("qk", (q, k), _heads(x, HQ, HK, D, 0.3), strict=True):
        other = plain.reshape(*plain.shape[:-1], D // 2, 2)[..., ::-1].reshape(plain.shape) * np.where(np.arange(D) % 2 == 0, -1, 1)
        size = np.abs(plain * np.cos(angle)) + np.abs(other * np.sin(angle))
        error = (before + gamma(3)) * (1 + before) * size + (1 + before) * turned * (np.abs(plain) + np.abs(other))
        found.append(compared(f"qk_norm_rope: {name}", got, plain * np.cos(angle) + other * np.sin(angle), error))
    return found


def rms_norm_sigmoid_gate(dtype: mx.Dtype) -> list[Compared]:
    """With an input whose rows do not touch."""
    from mlx_lm.kernels import rms_norm_sigmoid_gate as kernel

    B, H, L, D = 2, 3, 4, 48
    rng = np.random.default_rng(8)
    x, gate = drawn(rng, dtype, B, L, H, D).transpose(0, 2, 1, 3), drawn(rng, dtype, B, L, H * D)
    out = kernel(x, gate, eps=_EPS)
    values = exact(x)
    want = (values * _norm(values)).transpose(0, 2, 1, 3).reshape(B, L, H * D) / (1 + np.exp(-exact(gate)))
    return [compared("rms_norm_sigmoid_gate", out, want, (_norm_error(32, D) + gamma(8)) * np.abs(want))]


def norm_add_norm(dtype: mx.Dtype) -> list[Compared]:
    """The branch is scaled, normed and rounded after each; the sum is in float32; then normed again."""
    from mlx import nn
    from mlx_lm.kernels import norm_add_norm as kernel
    from mlx_lm.kernels import pre_norm

    D = 768
    rng = np.random.default_rng(9)
    branch, stream = drawn(rng, dtype, 2, 3, D), drawn(rng, mx.float32, 2, 3, D)
    alpha, beta, next_weight = (drawn(rng, mx.float32, D) for _ in range(3))
    post = drawn(rng, dtype, D)
    following = nn.RMSNorm(D, eps=_EPS)
    following.weight = next_weight
    new, normed = kernel(branch, stream, alpha=alpha, beta=beta, post_weight=post, post_eps=_EPS, next_norm=following)
    (alone,) = [pre_norm(stream, following, dtype=dtype)]
    scaled = exact(branch) * exact(post)
    first, second = exact(alpha) * exact(stream), exact(beta) * scaled * _norm(scaled)
    want = first + second
    roundings = 3 * UNIT[dtype] if dtype != mx.float32 else gamma(3)
    error = (roundings + _norm_error(96, D)) * (1 + roundings) * np.abs(second) + gamma(4) * (np.abs(first) + np.abs(second))
    weight = np.abs(exact(next_weight))
    moved = np.linalg.norm(error, axis=-1, keepdims=True) / np.linalg.norm(want, axis=-1, keepdims=True)  # of the second norm
    size = np.abs(want) * _norm(want) * weight
    error_normed = error * _norm(want) * weight * (1 + moved) + (moved / (1 - moved) + _norm_error(96, D) + gamma(2)) * size
    want_alone = exact(stream) * _norm(exact(stream)) * exact(next_weight)
    return [
        compared("norm_add_norm: stream", new, want, error),
        compared("norm_add_norm: normed", normed, want * _norm(want) * exact(next_weight), error_normed),
        compared("pre_norm", alone, want_alone, (_norm_error(96, D) + gamma(2)) * np.abs(want_alone)),
    ]


def post_expert_norm_combine(dtype: mx.Dtype) -> list[Compared]:
    """The sum over experts is rounded to the dtype after each of them."""
    from mlx_lm.kernels import post_expert_norm_combine as kernel

    K, D = 3, 512
    rng = np.random.default_rng(10)
    experts, weights, norm = drawn(rng, dtype, 2, 2, K, D), drawn(rng, dtype, 2, 2, K, low=0.0), drawn(rng, dtype, D)
    out = kernel(experts, weights.astype(mx.float32), norm_weight=norm, eps=_EPS)
    values = exact(experts) * exact(norm)
    terms = values * _norm(values) * exact(weights)[..., None]
    size = np.abs(terms).sum(axis=-2)
    roundings = K * UNIT[dtype] if dtype != mx.float32 else 0.0
    return [
        compared(
            "post_expert_norm_combine", out, terms.sum(axis=-2), (roundings + _norm_error(64, D) + gamma(4 + K)) * (1 + roundings) * size
        )
    ]


def expert_routing(dtype: mx.Dtype) -> list[Compared]:
    """Which experts is exact."""
    from mlx_lm.kernels import expert_routing as kernel

    E, K = 40, 4
    rng = np.random.default_rng(11)
    logits, bias = drawn(rng, dtype, 9, E), drawn(rng, mx.float32, E, low=0.0, high=0.2)
    indices, weights = kernel(logits, bias, top_k=K, multiplier=0.7, score_eps=1e-9, route_scale=2.5)
    x = exact(logits) * float(np.float32(0.7))
    score = 1 / (1 + np.exp(-x))
    order = np.argsort(-(score + exact(bias)), axis=-1, kind="stable")[:, :K]
    chosen = np.take_along_axis(score, order, axis=-1)
    want = chosen / (chosen.sum(axis=-1, keepdims=True) + float(np.float32(1e-9))) * 2.5
    return [
        Compared("expert_routing: experts", indices, order.astype(np.float64), np.full(order.shape, UNIT[mx.float32])),
        compared("expert_routing: weights", weights, want, gamma(16 + 2 * float(np.max(np.abs(x)))) * want),
    ]


def bitlinear(dtype: mx.Dtype) -> list[Compared]:
    """Weights of −1, 0 and 1, four to a byte."""
    from mlx_lm.models.bitlinear_layers import BitLinear

    rows, inside, outside = 3, 256, 24
    rng = np.random.default_rng(12)
    layer = BitLinear(inside, outside, bias=False)
    ternary = rng.integers(0, 3, (outside, inside))
    packed = sum(ternary.reshape(4, outside // 4, inside)[i] << (2 * i) for i in range(4))
    layer.weight, layer.weight_scale = mx.array(packed.astype(np.uint8)), mx.array([0.75]).astype(dtype)
    x = drawn(rng, dtype, rows, inside)
    weights = (ternary - 1) * 0.75
    error = gamma(inside // 32 + 7) * (np.abs(exact(x)) @ np.abs(weights).T)
    return [compared("bitlinear", layer(x), exact(x) @ weights.T, error)]


def attention_residual(dtype: mx.Dtype) -> list[Compared]:
    """Kimi K3: a softmax over blocks, weighed by a norm."""
    from types import SimpleNamespace

    from mlx_lm.models import kimi_k3 as module

    K, N, D = 3, 2, 640
    rng = np.random.default_rng(13)
    raw, partial = drawn(rng, dtype, K, 1, N, D), drawn(rng, dtype, 1, N, D)
    inverse, effective = drawn(rng, mx.float32, K, 1, N, low=0.5), drawn(rng, mx.float32, D) / math.sqrt(D)
    out = module._attn_res_mix(SimpleNamespace(raw=raw, inv_rms=inverse), partial, effective, _EPS)
    blocks = np.concatenate([exact(raw), exact(partial)[None]])
    norms = np.concatenate([exact(inverse), _norm(exact(partial))[..., 0][None]])
    logits = blocks @ exact(effective) * norms
    # Dot products of D / 512 terms a thread, 5 levels in a simdgroup and 16 of them in turn.
    off = gamma(2 + 6 + 16) * (np.abs(blocks) @ np.abs(exact(effective)) * norms) + _norm_error(32, D) * np.abs(logits)
    shares = np.exp(logits - logits.max(axis=0))
    shares /= shares.sum(axis=0)
    error = 2 * np.max(off) * (1 + np.max(off)) + gamma(12)  # relative, of each share
    want = np.einsum("kbn,kbnd->bnd", shares, blocks)
    return [compared("attnres_mix", out, want, (error + gamma(K + 2)) * np.einsum("kbn,kbnd->bnd", shares, np.abs(blocks)))]


def sinkhorn(dtype: mx.Dtype) -> list[Compared]:
    """DeepSeek: all numbers are positive, so errors stay relative."""
    from mlx_lm.models import deepseek_v41 as module

    HC, iterations = 4, 5
    comb = drawn(np.random.default_rng(14), mx.float32, 6, HC, HC, low=0.1)
    out = module._sinkhorn(comb, iters=iterations, eps=mx.array([_EPS], dtype=mx.float32))
    want = exact(comb)
    for turn in range(2 * iterations - 1):
        want = want / (want.sum(axis=-2 if turn % 2 == 0 else -1, keepdims=True) + _EPS32)
    passes = 2 * iterations - 1
    # A quotient of two numbers that are off by ρ each is off by 2 ρ, and the HC + 2 roundings of the pass.
    return [compared("sinkhorn", out, want, gamma((HC + 2) * (2**passes - 1)) * want)]
