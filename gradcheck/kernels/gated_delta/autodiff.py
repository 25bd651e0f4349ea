"""The gated delta rule in plain MLX ops, step by step, differentiated by MLX itself: what a hand-written VJP is up against.

No backward is written here, so a mistake in one cannot be repeated here. MLX keeps every intermediate of every step.
"""

from __future__ import annotations

import mlx.core as mx


def gated_delta(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, mask: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state, with mlx-lm's semantics. Trainable.

    For value head h and key head h // (Hv / Hk), in float32 whatever the inputs are::

        S~ = g S            S[v, k]; g one number per head, or one per head and key channel
        S  = S~ + beta (v - S~ k) k^T
        y  = S q

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: decay in linear space, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk].
        mask: [B, T]; a step that is False keeps the state and gives y = 0.

    Returns:
        y [B, T, Hv, Dv] and the final state [B, Hv, Dv, Dk], in the dtypes of q and of `state`.
    """
    heads_per_key = v.shape[2] // k.shape[2]
    qs, ks = (mx.repeat(a.astype(mx.float32), heads_per_key, axis=2) for a in (q, k))
    vs, gs, betas = (a.astype(mx.float32) for a in (v, g, beta))
    gs = gs[..., None, None] if g.ndim == beta.ndim else gs[..., None, :]
    S = state.astype(mx.float32)
    ys = []
    for t in range(q.shape[1]):
        key = ks[:, t, :, None]
        decayed = S * gs[:, t]
        delta = betas[:, t, :, None] * (vs[:, t] - (decayed * key).sum(-1))
        new = decayed + delta[..., None] * key
        y = (new * qs[:, t, :, None]).sum(-1)
        if mask is not None:
            kept = mask[:, t, None, None]
            new, y = mx.where(kept[..., None], new, S), mx.where(kept, y, 0)
        S = new
        ys.append(y)
    return mx.stack(ys, axis=1).astype(q.dtype), S.astype(state.dtype)
