"""The gated delta rule with ggml's semantics (`ggml_gated_delta_net`), trainable: heads in tiles, the gate as a logarithm, a scale.

Value head h reads key head h mod Hk in ggml, and h // (Hv / Hk) in mlx-lm: of r·Hk value heads the one has r tiles of Hk, the other a run
of r for each of Hk. Here value heads are put into runs, the work is done a chunk at a time (`chunkwise`), and results are put back into tiles.
"""

from __future__ import annotations

import mlx.core as mx

from . import chunkwise
from .arguments import need_floats, need_heads, need_shapes

_SHAPES = {
    "q": "[B, T, Hk, Dk]",
    "k": "[B, T, Hk, Dk]",
    "v": "[B, T, Hv, Dv]",
    "g": "[B, T, Hv] or [B, T, Hv, Dk]",
    "beta": "[B, T, Hv]",
    "state": "[B, Hv, Dv, Dk], of zeros if there is none",
}


def gated_delta_ggml(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, *, chunk: int = chunkwise.CHUNK
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state. Trainable: every array has a gradient.

    For value head h and key head h mod Hk, in float32 whatever the inputs are::

        S~ = e^g S          S[v, k]; g one number per head, or one per head and key channel
        S  = S~ + beta (v - S~ k) k^T
        y  = S q / √Dv

    Shapes are ggml's, the slowest axis first; where ggml wants an axis of 1 for g and beta, there is none.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: logarithm of the decay, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk].
        chunk: steps of a chunk, a multiple of 4.

    Returns:
        y [B, T, Hv, Dv] and the final state [B, Hv, Dv, Dk], in the dtypes of q and of `state`.

    Raises:
        TypeError: an argument is no MLX array, or one of other than floating-point numbers.
        ValueError: a shape does not fit, or `chunk` is not a positive multiple of 4.
    """
    _check(q, {"k": k, "v": v, "g": g, "beta": beta, "state": state})
    heads = k.shape[2]
    decay = mx.exp(g.astype(mx.float32))
    query = q.astype(mx.float32) * v.shape[3] ** -0.5
    y, last = chunkwise.gated_delta(
        query,
        k,
        _in_runs(v, 2, heads),
        _in_runs(decay, 2, heads),
        _in_runs(beta, 2, heads),
        _in_runs(state, 1, heads),
        chunk=chunk,
    )
    return _in_tiles(y, 2, heads).astype(q.dtype), _in_tiles(last, 1, heads)


def by_tiles(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, *, chunk: int = chunkwise.CHUNK
) -> tuple[mx.array, mx.array]:
    """As `gated_delta_ggml`, with the tiles as an axis of their own, [.., r, Hk, ..] for [.., Hv, ..]: the form of the op."""
    heads = k.shape[2]
    v, g, beta = (mx.flatten(a, 2, 3) for a in (v, g, beta))
    y, last = gated_delta_ggml(q, k, v, g, beta, mx.flatten(state, 1, 2), chunk=chunk)
    return mx.unflatten(y, 2, (-1, heads)), mx.unflatten(last, 1, (-1, heads))


def _in_runs(a: mx.array, axis: int, heads: int) -> mx.array:
    """Head j of key head h moved from the place j·Hk + h, where ggml has it, to h·r + j, where mlx-lm does; Hk is `heads`."""
    return mx.flatten(mx.unflatten(a, axis, (-1, heads)).swapaxes(axis, axis + 1), axis, axis + 1)


def _in_tiles(a: mx.array, axis: int, heads: int) -> mx.array:
    """`_in_runs` undone."""
    return mx.flatten(mx.unflatten(a, axis, (heads, -1)).swapaxes(axis, axis + 1), axis, axis + 1)


def _check(q: mx.array, arrays: dict[str, mx.array]) -> None:
    """Refuse what is no array, and what would broadcast to something else than is meant."""
    who = "gated_delta_ggml"
    need_floats(who, {"q": q, **arrays}, _SHAPES)
    v = arrays["v"]
    need_heads(who, q, v)
    (B, T, Hk, Dk), (Hv, Dv) = q.shape, v.shape[2:]
    wanted: dict[str, list[tuple[int, ...]]] = {
        "k": [(B, T, Hk, Dk)],
        "v": [(B, T, Hv, Dv)],
        "g": [(B, T, Hv), (B, T, Hv, Dk)],
        "beta": [(B, T, Hv)],
        "state": [(B, Hv, Dv, Dk)],
    }
    need_shapes(who, arrays, wanted)
