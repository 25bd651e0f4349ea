"""The gated delta rule a chunk at a time, in matrix products that any backend of MLX runs fast.

Within a chunk of C steps from the state S0, with Γ(t, s) = g_{s+1} … g_t the decay from s to t and d_t = beta_t (v_t - g_t S_{t-1} k_t)::

    S_t = S0 Γ(t, 0) + sum_{s <= t} d_s k_s^T Γ(t, s)

so that the d of a chunk, the rows of D, solve a unit triangular system, and everything else is a product::

    (I + L) D = beta E,  E = V - (K Γ(·, 0)) S0^T   L[t, s] = beta_t k_t Γ(t, s) k_s      for s < t
    Y = (Q Γ(·, 0)) S0^T + M D                      M[t, s] = q_t Γ(t, s) k_s             for s <= t
    S_C = S0 Γ(C, 0) + D^T (K Γ(C, ·))

Only the step from chunk to chunk is sequential. Every decay is a product of gates, never a quotient or a difference of logarithms,
so that a gate of exactly 0 is as good as any. With a gate per key channel L and M are no longer products of matrices: within
sub-chunks they are summed channel by channel, and from one sub-chunk to another Γ(t, s) is split at the bounds between them.

What S0 already holds is taken off V before the system is solved, not after: where keys repeat, the two solutions are large and
nearly equal.
"""

from __future__ import annotations

from typing import cast

import mlx.core as mx

CHUNK = 8
"""Steps of a chunk. A short one keeps more digits: where keys repeat, a chunk ends in the difference of what the state held and what its
steps take off, and the longer it is the larger are both beside their difference. On the CPU it is as fast as any up to 32; on a GPU,
whose products want more rows, give 16 to 64. Even so it keeps fewer than steps one by one: of 864 cases at two seeds one element of one
final state was off by 1.12 of what rounding explains, at signs that alternate (beta near 2)."""

GROUP = 128
"""Steps whose chunks are worked on at once, but for the state. All temporaries are of one group: that bounds the memory."""

UNIT = 4
"""A chunk is a multiple of this."""


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

    Between forward and backward it keeps O(T (C + Dk + Dv)) numbers and one state per chunk; what else it makes lives for a
    group of chunks.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: decay in linear space, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk].
        mask: [B, T]; a step that is False keeps the state and gives y = 0.
        chunk: steps of a chunk, a multiple of 4.

    Raises:
        ValueError: `chunk` is not a positive multiple of 4.
    """
    if chunk < UNIT or chunk % UNIT:
        raise ValueError(f"chunk is {chunk}, need a positive multiple of {UNIT}")
    length, heads_per_key = q.shape[1], v.shape[2] // k.shape[2]
    if mask is not None:  # a step that neither decays nor writes
        kept = mask[:, :, None]
        beta = mx.where(kept, beta, 0)
        g = mx.where(kept if g.ndim == beta.ndim else kept[..., None], g, 1)
    gate = g[..., None] if g.ndim == beta.ndim else g
    whole = [_chunks(a, chunk, 1) for a in (q, k)] + [_chunks(a, chunk, heads_per_key) for a in (v, beta[..., None])]
    whole.append(_chunks(gate, chunk, heads_per_key, fill=1))
    S = mx.unflatten(state.astype(mx.float32).swapaxes(-1, -2), 1, (-1, heads_per_key))[None]
    ys = []
    for group in zip(*(cast("tuple[mx.array, ...]", _groups(a)) for a in whole), strict=True):
        y, S, *_ = cast("tuple[mx.array, ...]", _group(*group, S))
        ys.append(y)
    y = _steps(mx.concatenate(ys))[:, :length]
    if mask is not None:
        y = mx.where(mask[:, :, None, None], y, 0)
    return y.astype(q.dtype), mx.flatten(S.squeeze(0), 1, 2).swapaxes(-1, -2).astype(state.dtype)


Pairs = tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array]
"""What a gate makes of q and k, chunk by chunk: L without beta, M, K Γ(·, 0), Q Γ(·, 0), K Γ(C, ·) and Γ(C, 0)."""


def _chunks(a: mx.array, chunk: int, heads_per_key: int, fill: float = 0) -> mx.array:
    """[B, T, H, D] as [n, B, H / r, r, chunk, D] in float32, with r = `heads_per_key`; steps beyond T are `fill`."""
    a = mx.pad(a.astype(mx.float32), [(0, 0), (0, -a.shape[1] % chunk), (0, 0), (0, 0)], constant_values=mx.array(fill, mx.float32))
    a = mx.unflatten(mx.unflatten(a, 2, (-1, heads_per_key)), 1, (-1, chunk))
    return mx.contiguous(a.transpose(1, 0, 3, 4, 2, 5))


def _steps(a: mx.array) -> mx.array:
    """[n, B, Hk, r, chunk, D] as [B, T, H, D]: `_chunks` undone."""
    return mx.flatten(mx.flatten(a.transpose(1, 0, 4, 2, 3, 5), 3, 4), 1, 2)


@mx.custom_function
def _groups(a: mx.array) -> tuple[mx.array, ...]:
    """Chunks [n, B, Hk, r, chunk, D] in pieces of `GROUP` steps."""
    at_once = max(1, GROUP // a.shape[-2])
    return tuple(mx.split(a, list(range(at_once, a.shape[0], at_once))))


@_groups.vjp
def _groups_vjp(_: mx.array, cotangents: tuple[mx.array, ...], __: tuple[mx.array, ...]) -> mx.array:
    """MLX's own, of more than 10 pieces, adds up as many arrays as large as the whole: its time grows with the square of T."""
    return mx.concatenate(list(cotangents))


def _each(a: mx.array) -> list[mx.array]:
    """The chunks of a group one by one, [1, B, Hk, r, ...]. Not `a[i]`, which copies."""
    return list(mx.split(a, a.shape[0]))


def _pairs(q: mx.array, k: mx.array, g: mx.array) -> Pairs:
    """The pairs of a group. Trainable by MLX, and the better for knowing nothing of the state."""
    return _scalar(q, k, g[..., 0]) if g.shape[-1] == 1 else _vector(q, k, g)


@mx.custom_function
def _group(q: mx.array, k: mx.array, v: mx.array, beta: mx.array, g: mx.array, S: mx.array) -> tuple[mx.array, ...]:
    """(y, the state after, and what the backward needs), with the state as S^T [1, B, Hk, r, Dk, Dv].

    The states are not stacked, nor are their cotangents: MLX copies what it stacks one element at a time.
    """
    pairs = _pairs(*mx.depends([q, k, g], [S]))
    kk, qk, k_in, q_in, k_out, through = pairs
    T = unit_inverse(beta * kk)
    in_time = (v, T * beta.swapaxes(-1, -2), k_in, q_in, k_out.swapaxes(-1, -2), through)
    value, solve, key, query, write, decay = (_each(a) for a in in_time)
    states, errors, deltas, reads = [], [], [], []
    for i in range(len(value)):
        states.append(S)
        errors.append(value[i] - key[i] @ S)  # not addmm, which rounds to the size of v for every channel of a key
        deltas.append(solve[i] @ errors[-1])
        reads.append(query[i] @ S)
        S = mx.addmm(decay[i] * S, write[i], deltas[-1])
    E, D = mx.concatenate(errors), mx.concatenate(deltas)
    return mx.concatenate(reads) + qk @ D, S, E, D, T, *pairs, *states


@_group.vjp
def _group_vjp(primals: tuple[mx.array, ...], cotangents: tuple[mx.array, ...], outputs: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
    """G, the cotangent of the state, goes back from chunk to chunk; what needs no state is done for the whole group at once."""
    q, k, _, beta, g, _ = primals
    dy, G = cotangents[:2]
    E, D, T, kk, qk, k_in, q_in, k_out, through, *states = outputs[2:]
    solve = T * beta.swapaxes(-1, -2)
    in_time = (dy, D, qk.swapaxes(-1, -2) @ dy, k_out, solve.swapaxes(-1, -2), q_in.swapaxes(-1, -2), k_in.swapaxes(-1, -2), through)
    y, delta, read, write, back, query, key, decay = (_each(a) for a in in_time)
    given, solved, made = [], [], []
    for i in reversed(range(len(states))):
        given.append(read[i] + write[i] @ G)
        solved.append(back[i] @ given[-1])
        rows = _across(states[i])
        made.append((solved[-1] @ rows, y[i] @ rows, delta[i] @ _across(G), (G * states[i]).sum(-1, keepdims=True)))
        G = mx.addmm(decay[i] * G, query[i], y[i])
        G = mx.addmm(G, key[i], solved[-1], alpha=-1)
    dD, dE, dkey, dquery, dwrite, dthrough = (mx.concatenate(list(a[::-1])) for a in (given, solved, *zip(*made, strict=True)))
    dR = T.swapaxes(-1, -2) @ dD
    columns = _across(D)
    dL = -mx.tril(dR @ columns, -1)
    slopes = [
        beta * dL,
        mx.tril(dy @ columns),
        -dkey,
        dquery,
        dwrite,
        dthrough if through.shape[-2] > 1 else dthrough.sum(-2, keepdims=True),
    ]
    dbeta = (dR * E).sum(-1, keepdims=True) + (dL * kk).sum(-1, keepdims=True)
    dq, dk, dg = mx.vjp(lambda *a: list(_pairs(*a)), [q, k, g], slopes)[1]
    # MLX would go on to the next group with G while this one's temporaries are still wanted.
    (G,) = mx.depends([G], [dq, dk, dg])
    return dq, dk, dE, dbeta, dg, G


def _across(a: mx.array) -> mx.array:
    """Transposed in memory too: MLX's products on the CPU take three times as long with a second factor that is not."""
    return mx.contiguous(a.swapaxes(-1, -2))


def dots(a: mx.array, b: mx.array) -> mx.array:
    """a b^T, the products of rows with rows. Trainable."""
    return cast("mx.array", _dots(a, b))


@mx.custom_function
def _dots(a: mx.array, b: mx.array) -> mx.array:
    return a @ _across(b)


@_dots.vjp
def _dots_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    """As MLX's own, but for `_across` where it pays."""
    a, b = primals
    return cotangent @ b, cotangent.swapaxes(-1, -2) @ a


def _scalar(q: mx.array, k: mx.array, g: mx.array) -> Pairs:
    """For one gate per head, g [n, B, Hk, r, C]."""
    all_ = decays(g)
    within = all_[..., 1:, 1:]
    from_start, to_end = all_[..., 1:, :1], all_[..., -1, 1:, None]
    return (
        mx.tril(within * dots(k, k), -1),
        within * dots(q, k),
        k * from_start,
        q * from_start,
        k * to_end,
        all_[..., -1:, :1],
    )


def _vector(q: mx.array, k: mx.array, g: mx.array) -> Pairs:
    """For one gate per head and key channel, g [n, B, Hk, r, C, Dk]: in sub-chunks of a quarter of a chunk, at least 4 steps."""
    *lead, C, Dk = g.shape
    size = max(UNIT, C // 4)
    count = C // size
    q, k, g = (mx.unflatten(a, -2, (count, size)) for a in (q, k, g))
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
            blocks_of_row = [dots(late[..., a, :, :] * between[..., a, b + 1, None, :], k_out[..., b, :, :]) for b in range(a)]
            empty = mx.zeros((*lead, size, size * (count - a - 1)))
            rows.append(mx.concatenate([*blocks_of_row, own[..., a, :, :], empty], axis=-1))
        grids.append(mx.concatenate(rows, axis=-2))
    return (
        mx.tril(grids[0], -1),
        grids[1],
        (k_in * between[..., :-1, 0, None, :]).reshape(*lead, C, Dk),
        (q_in * between[..., :-1, 0, None, :]).reshape(*lead, C, Dk),
        (k_out * between[..., -1, 1:, None, :]).reshape(*lead, C, Dk),
        between[..., -1, 0, :, None],
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
    ahead = cotangent @ _across(out)
    return (out[..., :, 1:] * ahead[..., :, :-1]).sum(-2)


def unit_inverse(L: mx.array) -> mx.array:
    """(I + L)^-1 for strictly lower triangular L [..., n, n], row by row from those above: T_i = e_i - L_i T.

    Unlike a sum of powers of L, no intermediate is larger than the result.
    """
    n = L.shape[-1]
    eye = mx.eye(n)
    T = mx.broadcast_to(eye[:1], (*L.shape[:-2], 1, n))
    for i in range(1, n):
        T = mx.concatenate([T, eye[i : i + 1] - L[..., i : i + 1, :i] @ T], axis=-2)
    return T
