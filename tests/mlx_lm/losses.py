"""The four kernels of mlx-lm's `tuner/losses.py`, launched as it does, each beside its float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np

from tests.mlx_lm.bounds import UNIT, Array, Compared, compared, drawn, exact, gamma

ROWS, V = 2, 4101  # one whole block of 4,096 and a rest
NAMES = ("kl_forward", "kl_backward", "js_forward", "js_backward")
_U = UNIT[mx.float32]


def installed(name: str) -> Any:
    """The kernel as mlx-lm made it. `mlx_lm` is imported here: within the tap."""
    from mlx_lm.tuner import losses

    return getattr(losses, f"_{name}_kernel")


def repaired(name: str) -> Any:
    """The installed kernel with a barrier before the maxima's place is used again, and barriers that name the memory they are for."""
    kernel = installed(name)
    source = kernel.text.source
    last_read = "max_p = shared[simd_lane_id * 2 + 1];\n"
    assert source.count(last_read) == 1, f"{name} is another text than mlx-lm 0.32.2's: look at it again"
    assert "mem_flags::mem_none" in source
    source = source.replace(last_read, f"{last_read}threadgroup_barrier(mem_flags::mem_threadgroup);\n")
    source = source.replace("mem_flags::mem_none", "mem_flags::mem_threadgroup")
    return replace(kernel, text=replace(kernel.text, source=source))


@dataclass(frozen=True, slots=True)
class Side:
    """Log-probabilities of one side, and how far float32 may have moved them and the probabilities."""

    x: Array
    logs: Array
    off: Array
    lse: Array
    off_lse: Array

    @property
    def share(self) -> Array:
        return np.exp(self.logs)

    @property
    def share_off(self) -> Array:
        """Relative; exp is good to 4 u."""
        return self.off + gamma(4)


def _side(logits: mx.array) -> Side:
    x = exact(logits)
    most = x.max(axis=-1, keepdims=True)
    total = np.exp(x - most).sum(axis=-1, keepdims=True)
    lse = most + np.log(total)
    # exp of a difference as large as `spread`, which is rounded; up to 5 of them multiply; sums of 8, 32 and 32 terms; then log and +.
    spread = float(np.max(most - x))
    off_lse = gamma(5 * (spread + 5) + 18) + _U * (2 * np.abs(np.log(total)) + np.abs(lse))
    return Side(x, x - lse, off_lse + _U * np.abs(x - lse), lse, off_lse)


def run(name: str, dtype: mx.Dtype, kernel: Callable[..., list[mx.array]]) -> list[Compared]:
    """Launch it on random logits."""
    rng = np.random.default_rng(20)
    logits = [drawn(rng, dtype, ROWS, V) * 2 for _ in range(2)]
    q, p = map(_side, logits)
    cotangent = drawn(rng, dtype, ROWS)
    js_q, js_q_off = _js(q, p)
    given = mx.array(js_q.sum(axis=-1).astype(np.float32)).astype(dtype)
    extra = {"kl_backward": [cotangent], "js_backward": [cotangent, given]}.get(name, [])
    shapes = {"kl_forward": [(ROWS,)], "js_forward": [(ROWS,)] * 2}.get(name, [(ROWS, V)])
    got = kernel(
        inputs=[*logits, *extra],
        output_shapes=shapes,
        output_dtypes=[dtype] * len(shapes),
        template=[("T", dtype), ("V", V)],
        grid=(1024, ROWS, 1),
        threadgroup=(1024, 1, 1),
    )
    c = exact(cotangent)[:, None]
    sums = gamma(8 + 10 + 1)
    match name:
        case "kl_forward":
            d = p.logs - q.logs
            d_off = q.off_lse + p.off_lse + 4 * _U * (np.abs(p.x) + np.abs(q.x) + np.abs(q.lse) + np.abs(p.lse))
            error = (p.share * (np.abs(d) * (p.share_off + sums) + d_off)).sum(axis=-1)
            return [compared(name, got[0], (p.share * d).sum(axis=-1), error)]
        case "kl_backward":
            error = np.abs(c) * (q.share * (q.share_off + gamma(2)) + p.share * (p.share_off + gamma(2)))
            return [compared(name, got[0], c * (q.share - p.share), error)]
        case "js_forward":
            js_p, js_p_off = _js(p, q)
            wants = [0.5 * (js_p + js_q).sum(axis=-1), js_q.sum(axis=-1)]
            errors = [(0.5 * (js_p_off + js_q_off) + gamma(2) * 0.5 * (np.abs(js_p) + np.abs(js_q))).sum(axis=-1), js_q_off.sum(axis=-1)]
            return [compared(f"{name}: {what}", *one) for what, *one in zip(("out", "kl_q"), got, wants, errors, strict=True)]
        case _:
            bracket = np.log(2) - np.log1p(np.exp(p.logs - q.logs))
            off = q.share * (_log_off(q, p) + (q.share_off + gamma(5)) * (np.abs(bracket) + np.abs(exact(given))[:, None]))
            return [compared(name, got[0], 0.5 * c * q.share * (bracket - exact(given)[:, None]), 0.5 * np.abs(c) * off)]


def _js(one: Side, other: Side) -> tuple[Array, Array]:
    """The terms of KL(one ‖ mean), and how far they and their sum may be off."""
    bracket = np.log(2) - np.log1p(np.exp(other.logs - one.logs))
    return one.share * bracket, one.share * (np.abs(bracket) * (one.share_off + gamma(8 + 10 + 1)) + _log_off(one, other))


def _log_off(one: Side, other: Side) -> Array:
    """How far log 2 − log(1 + exp(other − one)) may be off: its slope is at most 1; exp is good to 4 u, +, log and − to 4 u in all."""
    difference = other.logs - one.logs
    return one.off + other.off + _U * np.abs(difference) + gamma(4) + gamma(4) * (np.log(2) + np.log1p(np.exp(difference)))
