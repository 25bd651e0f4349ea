"""The gated delta rule a chunk at a time, in matrix products that any backend of MLX runs fast.

Within a chunk of C steps from the state S0, with Γ(t, s) = g_{s+1} … g_t the decay from s to t and d_t = beta_t (v_t - g_t S_{t-1} k_t)::

    S_t = S0 Γ(t, 0) + sum_{s <= t} d_s k_s^T Γ(t, s)

so that the d of a chunk, the rows of D, solve a unit triangular system, and everything else is a product::

    (I + L) D = beta (V - (K Γ(·, 0)) S0^T)        L[t, s] = beta_t k_t Γ(t, s) k_s      for s < t
    Y = (Q Γ(·, 0)) S0^T + M D                      M[t, s] = q_t Γ(t, s) k_s             for s <= t
    S_C = S0 Γ(C, 0) + D^T (K Γ(C, ·))

Only the step from chunk to chunk is sequential. Every decay is a product of gates, never a quotient or a difference of logarithms,
so that a gate of exactly 0 is as good as any. With a gate per key channel L and M are no longer products of matrices: within
sub-chunks they are summed channel by channel, and from one sub-chunk to another Γ(t, s) is split at the bounds between them.
"""

from __future__ import annotations

from typing import cast

import mlx.core as mx

CHUNK = 64
"""Steps of a chunk: the products within one (C² per channel) are then about as dear as those with a state of 64 to 128 channels."""

SUB_CHUNK = 16
"""Steps of a sub-chunk, in which a gate per channel is summed without matrix products."""


def gated_delta(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    mask: mx.array | None = None,
    *,
    chunk: int = CHUNK,
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state: equations, shapes and dtypes as `autodiff.gated_delta`. Trainable.

    Memory of a training step is O(T (C + Dk + Dv)) and one state per chunk.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: decay in linear space, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk].
        mask: [B, T]; a step that is False keeps the state and gives y = 0.
        chunk: steps of a chunk, a multiple of 16.

    Raises:
        ValueError: `chunk` is not a positive multiple of 16.
    """
    if chunk < SUB_CHUNK or chunk % SUB_CHUNK:
        raise ValueError(f"chunk is {chunk}, need a positive multiple of {SUB_CHUNK}")
    length = q.shape[1]
    heads_per_key = v.shape[2] // k.shape[2]
    if mask is not None:  # a step that neither decays nor writes
        kept = mask[:, :, None]
        beta = mx.where(kept, beta, 0)
        g = mx.where(kept if g.ndim == beta.ndim else kept[..., None], g, 1)
    qs, ks = (_chunks(mx.repeat(a, heads_per_key, axis=2), chunk) for a in (q, k))
    vs, betas = _chunks(v, chunk), _chunks(beta[..., None], chunk)
    scalar = g.ndim == beta.ndim
    pairs = _scalar(qs, ks, _chunks(g[..., None], chunk, 1)[..., 0]) if scalar else _vector(qs, ks, _chunks(g, chunk, 1))
    y, last = _sweep(pairs, vs, betas, state.astype(mx.float32))
    y = mx.moveaxis(y, 1, 3).reshape(y.shape[0], -1, y.shape[1], y.shape[-1])[:, :length]
    if mask is not None:
        y = mx.where(mask[:, :, None, None], y, 0)
    return y.astype(q.dtype), last.astype(state.dtype)


Pairs = tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array]
"""What a gate makes of q and k, chunk by chunk: L without beta, M, K Γ(·, 0), Q Γ(·, 0), K Γ(C, ·) and Γ(C, 0)."""


def _chunks(a: mx.array, chunk: int, fill: float = 0) -> mx.array:
    """[B, T, H, D] as [B, H, n, chunk, D] in float32; steps beyond T are `fill`."""
    B, T, H, D = a.shape
    a = mx.pad(a.astype(mx.float32), [(0, 0), (0, -T % chunk), (0, 0), (0, 0)], constant_values=mx.array(fill, mx.float32))
    return mx.moveaxis(a.reshape(B, -1, chunk, H, D), 3, 1)


def _sweep(pairs: Pairs, v: mx.array, beta: mx.array, S: mx.array) -> tuple[mx.array, mx.array]:
    """y [B, H, n, C, Dv] and the final state: the one loop, over chunks."""
    kk, qk, k_in, q_in, k_out, through = pairs
    T = unit_inverse(beta * kk)
    U, W = T @ (beta * v), T @ (beta * k_in)
    count = v.shape[2]
    # Split, not indexed: the gradient of an index is as large as the whole, and there is one per chunk.
    chunks = zip(*(mx.split(a, count, axis=2) for a in (U, W, q_in, qk, k_out, through)), strict=True)
    ys = []
    S = S[:, :, None]
    for u, w, q, m, k, decay in chunks:
        across = S.swapaxes(-1, -2)
        D = u - w @ across
        ys.append(q @ across + m @ D)
        S = S * decay + D.swapaxes(-1, -2) @ k
    return mx.concatenate(ys, axis=2), S[:, :, 0]


def _scalar(q: mx.array, k: mx.array, g: mx.array) -> Pairs:
    """For one gate per head, g [B, H, n, C]."""
    all_ = decays(g)
    within = all_[..., 1:, 1:]
    keys = k.swapaxes(-1, -2)
    from_start, to_end = all_[..., 1:, :1], all_[..., -1, 1:, None]
    return (
        mx.tril(within * (k @ keys), -1),
        within * (q @ keys),
        k * from_start,
        q * from_start,
        k * to_end,
        all_[..., -1:, :1],
    )


def _vector(q: mx.array, k: mx.array, g: mx.array) -> Pairs:
    """For one gate per head and key channel, g [B, H, n, C, Dk]."""
    *lead, C, Dk = g.shape
    count = C // SUB_CHUNK
    q, k, g = (a.reshape(*lead, count, SUB_CHUNK, Dk) for a in (q, k, g))
    sub = decays(g.swapaxes(-1, -2))  # [..., count, Dk, t, s]
    within, from_start, to_end = sub[..., 1:, 1:], sub[..., 1:, 0].swapaxes(-1, -2), sub[..., -1, 1:].swapaxes(-1, -2)
    blocks = decays(sub[..., -1, 0].swapaxes(-1, -2))  # over whole sub-chunks: [..., Dk, a, b]
    between = mx.moveaxis(blocks, -3, -1)  # [..., a, b, Dk]
    keys = k.swapaxes(-1, -2)[..., None, :] * within  # k_s Γ(t, s), channel by channel
    diagonal = [(a.swapaxes(-1, -2)[..., None] * keys).sum(-3) for a in (k, q)]
    k_in, q_in, k_out = k * from_start, q * from_start, k * to_end
    grids = []
    for late, own in zip((k_in, q_in), diagonal, strict=True):
        rows = []
        for a in range(count):
            blocks_of_row = [
                (late[..., a, :, :] * between[..., a, b + 1, None, :]) @ k_out[..., b, :, :].swapaxes(-1, -2) for b in range(a)
            ]
            empty = mx.zeros((*lead, SUB_CHUNK, SUB_CHUNK * (count - a - 1)))
            rows.append(mx.concatenate([*blocks_of_row, own[..., a, :, :], empty], axis=-1))
        grids.append(mx.concatenate(rows, axis=-2))
    return (
        mx.tril(grids[0], -1),
        grids[1],
        (k_in * between[..., :-1, 0, None, :]).reshape(*lead, C, Dk),
        (q_in * between[..., :-1, 0, None, :]).reshape(*lead, C, Dk),
        (k_out * between[..., -1, 1:, None, :]).reshape(*lead, C, Dk),
        between[..., -1, :1, :],
    )


def decays(g: mx.array) -> mx.array:
    """Γ[t, s] = g_{s+1} … g_t for 0 <= s <= t <= n, and 0 above the diagonal: [..., n] to [..., n + 1, n + 1]. Trainable."""
    return cast("mx.array", _decays(g))


def _products(g: mx.array) -> mx.array:
    n = g.shape[-1]
    later = mx.tril(mx.ones((n + 1, n + 1), mx.bool_), -1)  # step t belongs to Γ(·, s) for t > s
    steps = mx.concatenate([mx.ones_like(g[..., :1]), g], axis=-1)[..., None]
    return mx.tril(mx.cumprod(mx.where(later, steps, 1), axis=-2))


@mx.custom_function
def _decays(g: mx.array) -> mx.array:
    return _products(g)


@_decays.vjp
def _decays_vjp(_: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    """dg_i = sum over s < i <= t of dΓ(t, s) Γ(t, i) Γ(i - 1, s): MLX's own divides by g."""
    ahead = cotangent @ out.swapaxes(-1, -2)
    return (out[..., :, 1:] * ahead[..., :, :-1]).sum(-2)


def unit_inverse(L: mx.array) -> mx.array:
    """(I + L)^-1 for strictly lower triangular L [..., n, n], n a multiple of 16. Trainable.

    From the inverses of two diagonal blocks that of the block they make, ``[A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1 C^-1]``, doubled from
    single elements up. Every intermediate is a part of an inverse: unlike a power of L, none is larger than the result.
    """
    return cast("mx.array", _unit_inverse(L))


@mx.custom_function
def _unit_inverse(L: mx.array) -> mx.array:
    n = L.shape[-1]
    T = mx.ones((*L.shape[:-2], n, 1, 1))  # the inverses of the diagonal blocks, [..., n / size, size, size]
    size = 1
    while size < n:
        pairs = -(-n // (2 * size))
        if T.shape[-3] % 2:  # the last block has no partner: it gets the identity
            T = mx.concatenate([T, mx.broadcast_to(mx.eye(size), (*T.shape[:-3], 1, size, size))], axis=-3)
            L = _grown(L, 2 * size * pairs)
        upper, lower = T[..., 0::2, :, :], T[..., 1::2, :, :]
        grid = L.reshape(*L.shape[:-2], pairs, 2, size, pairs, 2, size)[..., :, 1, :, :, 0, :]
        below = mx.moveaxis(mx.diagonal(grid, axis1=-4, axis2=-2), -1, -3)
        corner = -(lower @ below @ upper)
        top = mx.concatenate([upper, mx.zeros_like(upper)], axis=-1)
        T = mx.concatenate([top, mx.concatenate([corner, lower], axis=-1)], axis=-2)
        size *= 2
    return T[..., 0, :n, :n]


def _grown(L: mx.array, n: int) -> mx.array:
    """L with rows and columns of zeros up to [n, n]."""
    more = n - L.shape[-1]
    return mx.pad(L, [(0, 0)] * (L.ndim - 2) + [(0, more), (0, more)])


@_unit_inverse.vjp
def _unit_inverse_vjp(_: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    """dL = -T^T dT T^T, below the diagonal."""
    across = out.swapaxes(-1, -2)
    return -mx.tril(across @ cotangent @ across, -1)
