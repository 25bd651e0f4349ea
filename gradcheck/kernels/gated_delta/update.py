"""The gated delta rule as models call it: mlx-lm's `gated_delta_update`, trainable, on whatever device there is.

`gated_delta_update_vjp` takes what mlx-lm's function takes and gives what it gives; `path_of` says by which kernel. Below them are its
paths one by one, as the op `gated_delta_update` calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Literal, cast, get_args

import mlx.core as mx

from . import gate
from .arguments import need_array, need_floats, need_heads, need_shapes

Path = Literal["autodiff", "checkpointed", "chunkwise", "metal"]
"""The kernels of `gradcheck.kernels.gated_delta`, each of which may do the work."""

SHORT = 8
"""Steps up to which one after the other is as fast as a chunk, on a CPU with 8 heads of 64 by 64 and one gate each."""

Update = Callable[..., tuple[mx.array, mx.array]]

_SHAPES = {
    "q": "[B, T, Hk, Dk]",
    "k": "[B, T, Hk, Dk]",
    "v": "[B, T, Hv, Dv]",
    "a": "[B, T, Hv] or [B, T, Hv, Dk]",
    "b": "[B, T, Hv]",
    "A_log": "[Hv], or [Hv, 1] of a gate per key channel",
    "dt_bias": "[Hv], or [Hv, Dk] of a gate per key channel",
    "state": "[B, Hv, Dv, Dk], or None",
    "mask": "[B, T], or None",
}


def gated_delta_update_vjp(  # noqa: PLR0913, PLR0917 - mlx-lm's own arguments, and the path
    q: mx.array,
    k: mx.array,
    v: mx.array,
    a: mx.array,
    b: mx.array,
    A_log: mx.array,
    dt_bias: mx.array,
    state: mx.array | None = None,
    mask: mx.array | None = None,
    *,
    use_kernel: bool = True,  # noqa: ARG001 - see below
    lower_bound: float | None = None,
    allow_neg_eigval: bool = False,
    path: Path | None = None,
    chunk: int | None = None,
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state. Trainable: q, k, v, a, b, A_log, dt_bias and state have gradients.

    For value head h and key head h // (Hv / Hk), with beta = sigmoid(b) and g = exp(-e^A_log softplus(a + dt_bias))::

        S~ = g S            S[v, k]; g one number per head, or one per head and key channel
        S  = S~ + beta (v - S~ k) k^T
        y  = S q

    As with mlx-lm, the caller has normalised q and k, and scaled q. A masked step gives y = 0, as mlx-lm's kernels have it.
    The gate and beta are made in float32 also of half-precision inputs, where mlx-lm rounds them.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        a: [B, T, Hv], or [B, T, Hv, Dk] for a gate per key channel.
        b: [B, T, Hv].
        A_log: [Hv]; for a gate per key channel [Hv, 1] or [Hv, Dk].
        dt_bias: [Hv]; for a gate per key channel [Hv, Dk] or [Hv, 1].
        state: initial state, [B, Hv, Dv, Dk]; zeros in float32 if not given.
        mask: [B, T]; a step that is False, or 0, keeps the state and gives y = 0.
        use_kernel: ignored. mlx-lm's layers say here that they train, since its kernel has no backward; these have.
        lower_bound: of log g: then g = exp(lower_bound · sigmoid(e^A_log (a + dt_bias))).
        allow_neg_eigval: double beta.
        path: how; if not given, by what `path_of` says.
        chunk: steps of a chunk, where the path has chunks; by default its own. `chunkwise` takes multiples of 4.

    Returns:
        y [B, T, Hv, Dv] in the dtype of q, and the final state [B, Hv, Dv, Dk] in the dtype of `state`.

    Raises:
        TypeError: an argument is no MLX array, or one of other than floating-point numbers; a mask may be of any.
        ValueError: a shape does not fit, `lower_bound` is not below 0, there is no such path, or the path that was asked for does not
            take this `chunk`.
    """
    _check({"q": q, "k": k, "v": v, "a": a, "b": b, "A_log": A_log, "dt_bias": dt_bias, "state": state, "mask": mask})
    if lower_bound is not None and not lower_bound < 0:
        raise ValueError(f"gated_delta_update_vjp: lower_bound is {lower_bound}, need a number below 0: it bounds log g")
    if path is None:
        path = path_of(q.shape[1])
        if path == "autodiff":  # a sequence too short for chunks, in a training loop whose others are long enough
            chunk = None
    if path not in get_args(Path):
        raise ValueError(f"gated_delta_update_vjp: path is {path!r}, need one of {', '.join(get_args(Path))}, or None")
    if chunk is not None and path == "autodiff":
        raise ValueError(f"gated_delta_update_vjp: chunk is {chunk}, but the path autodiff has none; leave it out, or take another path")
    if state is None:
        state = mx.zeros((v.shape[0], v.shape[2], v.shape[3], q.shape[3]))
    if mask is not None:
        mask = mask.astype(mx.bool_)
    g = gate.decay(a, A_log, dt_bias, lower_bound)
    beta = gate.strength(b, allow_neg_eigval=allow_neg_eigval)
    return _kernel(path)(q, k, v, g, beta, state, mask, **({} if chunk is None else {"chunk": chunk}))


def path_of(length: int) -> Path:
    """The path that `gated_delta_update_vjp` takes for sequences of so many steps on the default device."""
    if mx.metal.is_available() and mx.default_device() == mx.gpu:
        return "metal"
    return "autodiff" if length <= SHORT else "chunkwise"


def _kernel(path: Path) -> Update:
    """`gated_delta(q, k, v, g, beta, state, mask)` of this path; its module is imported with its first use."""
    return cast("Update", import_module(f".{path}", __package__).gated_delta)


def _check(arrays: dict[str, mx.array | None]) -> None:
    """Refuse what is no array, and what would broadcast, or be padded, to something else than is meant."""
    who = "gated_delta_update_vjp"
    there = {name: array for name, array in arrays.items() if array is not None or name not in {"state", "mask"}}
    if "mask" in there:
        need_array(who, "mask", there.pop("mask"), _SHAPES["mask"])
    need_floats(who, there, _SHAPES)
    q, v, a, b = (cast("mx.array", arrays[name]) for name in ("q", "v", "a", "b"))
    need_heads(who, q, v)
    (B, T, Hk, Dk), (Hv, Dv) = q.shape, v.shape[2:]
    per_head: list[tuple[int, ...]] = [(Hv,)] if a.ndim == b.ndim else [(Hv, 1), (Hv, Dk)]
    wanted: dict[str, list[tuple[int, ...]]] = {
        "k": [(B, T, Hk, Dk)],
        "v": [(B, T, Hv, Dv)],
        "a": [(B, T, Hv), (B, T, Hv, Dk)],
        "b": [(B, T, Hv)],
        "A_log": per_head,
        "dt_bias": per_head,
        "state": [(B, Hv, Dv, Dk)],
        "mask": [(B, T)],
    }
    need_shapes(who, arrays, wanted)


def _by_place(path: Path) -> Update:
    """The path as the op calls its kernels: every input by its place, and A_log [Hv] also of a gate per key channel."""

    def update(  # noqa: PLR0913, PLR0917 - the inputs of the op
        q: mx.array,
        k: mx.array,
        v: mx.array,
        a: mx.array,
        b: mx.array,
        A_log: mx.array,
        dt_bias: mx.array,
        state: mx.array,
        mask: mx.array | None = None,
        lower_bound: mx.array | None = None,
        allow_neg_eigval: mx.array | None = None,
        *,
        chunk: int | None = None,
    ) -> tuple[mx.array, mx.array]:
        return gated_delta_update_vjp(
            q,
            k,
            v,
            a,
            b,
            A_log[:, None] if a.ndim > b.ndim else A_log,
            dt_bias,
            state,
            mask,
            lower_bound=None if lower_bound is None else cast("float", lower_bound.item()),
            allow_neg_eigval=allow_neg_eigval is not None,
            path=path,
            chunk=chunk,
        )

    return update


autodiff, checkpointed, chunkwise, metal = (_by_place(path) for path in get_args(Path))
