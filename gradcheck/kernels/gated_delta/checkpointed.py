"""The gated delta rule step by step, with checkpoints: of T states one per chunk is kept, and the backward makes the others anew.

Each step is the operations of mlx-lm's `gated_delta_ops` in their order, so that with a float32 state, as mlx-lm keeps it, outputs are
equal to its outputs bit for bit. MLX differentiates a chunk at a time: its graph never holds more than the steps of one.
"""

from __future__ import annotations

import math
from functools import partial

import mlx.core as mx


def gated_delta(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    mask: mx.array | None = None,
    *,
    chunk: int | None = None,
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state: equations, shapes and dtypes as `autodiff.gated_delta`. Trainable.

    Memory of a training step is O(T / chunk + chunk) states, beside inputs, outputs and gradients.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: decay in linear space, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk].
        mask: [B, T]; a step that is False keeps the state and gives y = 0.
        chunk: steps of a chunk; the whole part of √T if not given, which needs the fewest states.

    Raises:
        ValueError: `chunk` is below 1.
    """
    y, last = gated_delta_y_unmasked(q, k, v, g, beta, state, mask, chunk=chunk)
    return y if mask is None else mx.where(mask[:, :, None, None], y, 0), last


def gated_delta_y_unmasked(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    mask: mx.array | None = None,
    *,
    chunk: int | None = None,
) -> tuple[mx.array, mx.array]:
    """As `gated_delta`, but `mask` decides of the state alone: a step that is False gives the y that it would give if it counted.

    This is what mlx-lm's ops path does, beside its kernels, which write 0 there.

    Raises:
        ValueError: `chunk` is below 1.
    """
    length, heads_per_key = q.shape[1], v.shape[2] // k.shape[2]
    every = math.isqrt(length) if chunk is None else chunk
    if every < 1:
        raise ValueError(f"chunk is {every}, need at least 1 step")
    decay = g[..., None, None] if g.ndim == beta.ndim else g[..., None, :]
    steps = [mx.repeat(a, heads_per_key, axis=2) for a in (q, k)] + [v, decay, beta[..., None]]
    # Split, not indexed: the gradient of an index is as large as the whole, and there is one per chunk.
    bounds = list(range(every, length, every))
    masks = [None] * (len(bounds) + 1) if mask is None else mx.split(mask[..., None, None, None], bounds, axis=1)
    S, ys = state.astype(mx.float32), []
    for kept, *parts in zip(masks, *(mx.split(a.astype(mx.float32), bounds, axis=1) for a in steps), strict=True):
        y, S = mx.checkpoint(partial(_chunk, kept))(S, *parts)
        ys.append(y)
    return mx.concatenate(ys, axis=1).astype(q.dtype), S.astype(state.dtype)


def _chunk(
    mask: mx.array | None, S: mx.array, q: mx.array, k: mx.array, v: mx.array, decay: mx.array, beta: mx.array
) -> tuple[mx.array, mx.array]:
    """y of the steps of a chunk, and the state after it; every array is as wide as the state, [B, steps, Hv, …]."""
    ys = []
    each = (mx.split(a, q.shape[1], axis=1) for a in (q, k, v, decay, beta))
    for t, step in enumerate(zip(*each, strict=True)):
        query, key, value, gate, weight = (a.squeeze(1) for a in step)
        key = key[..., None, :]
        new = S * gate
        delta = (value - (new * key).sum(axis=-1)) * weight
        new = new + key * delta[..., None]
        ys.append((new * query[..., None, :]).sum(axis=-1))
        S = new if mask is None else mx.where(mask[:, t], new, S)
    return mx.stack(ys, axis=1), S
