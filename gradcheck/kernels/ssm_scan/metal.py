"""The selective scan in Metal, with its reverse recurrence as the VJP: `common`, `forward`, `backward` and `sum.metal` beside this file.

The forward keeps the state at the begin of every chunk of steps, and the backward makes the others anew, chunk by chunk. The same
text serves chunks of one step, where nothing is made twice because every state was kept. Outputs and gradients do not depend on the
length of a chunk: they are the same operations in the same order, so the same bits.

There are no atomics. A sum over rows that one threadgroup holds is made in threadgroup memory; what is left over is written down as
partial sums, which `sum.metal` adds in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import cast

import mlx.core as mx

from gradcheck.metal.beside import Grid, Template, launch

from .mlx import check

LANES = 32  # of a simdgroup
ROWS = 16  # simdgroups per threadgroup, at most: 512 threads and 8 KB, so that a kernel that needs many registers still fits

_launch = partial(launch, Path(__file__).parent, "ssm_scan")


def ssm_scan(s: mx.array, x: mx.array, dt: mx.array, A: mx.array, B: mx.array, C: mx.array, *, every: int = 1) -> tuple[mx.array, mx.array]:
    """Selective scan, as `mlx.ssm_scan`: equations, shapes and dtypes are told there. Trainable: all six inputs have gradients.

    Memory between forward and backward is O(T / every) states, and `every` more in the backward. By default all states are kept and
    the backward is fastest; `every=T` keeps the initial state alone, which is right where no gradient is wanted. Results do not
    depend on it, to the last bit.

    Args:
        s: initial state, [B, H, P, N].
        x: [B, T, H, P].
        dt: step size before the softplus, [B, T, H].
        A: decay rate, [H] (Mamba-2) or [H, N] (Mamba-1).
        B: input projection, [B, T, G, N].
        C: output projection, [B, T, G, N].
        every: steps per chunk.

    Returns:
        y [B, T, H, P] in the dtype of x, and s_T [B, H, P, N] in the dtype of s.

    Raises:
        ValueError: a shape does not fit, an input is not of a floating dtype, or `every` is below 1.
    """
    check({"s": s, "x": x, "dt": dt, "A": A, "B": B, "C": C})
    if every < 1:
        raise ValueError(f"ssm_scan: every is {every}, need at least 1 step per chunk")
    y, s_T, _ = _scan(min(every, x.shape[1]))(s, x, dt, A, B, C)
    return y, s_T


def ssm_scan_checkpoint(
    s: mx.array, x: mx.array, dt: mx.array, A: mx.array, B: mx.array, C: mx.array, *, every: int | None = None
) -> tuple[mx.array, mx.array]:
    """`ssm_scan` in chunks of the whole part of √T steps if `every` is not given, which needs the least memory: about 2 √T states."""
    return ssm_scan(s, x, dt, A, B, C, every=math.isqrt(x.shape[1]) if every is None else every)


@cache
def _scan(every: int) -> Callable[..., tuple[mx.array, mx.array, mx.array]]:
    """The scan in chunks of `every` steps. Its third output holds the state at the begin of each chunk, [chunks, B, H, P, N]."""

    @mx.custom_function
    def scan(*primals: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        s, x = primals[:2]
        y, s_T, kept = _launch(
            "forward",
            {**dict(zip(("s", "x", "dt", "A", "B", "C"), primals, strict=True)), "every": mx.array(every)},
            {
                "y": (x.shape, x.dtype),
                "s_T": (s.shape, s.dtype),
                "kept": ((-(-x.shape[1] // every), *s.shape), mx.float32),
            },
            *_rows(primals),
        )
        return y, s_T, kept

    @scan.vjp
    def _(primals: tuple[mx.array, ...], cotangents: tuple[mx.array, ...], outputs: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
        s, x, dt, A, B, C = primals
        dy, ds_T = cotangents[:2]
        batch, T, heads, P = x.shape
        groups = B.shape[2]
        tiles = -(-(heads // groups * P) // ROWS)
        dx, ds, ddt_rows, dA_rows, dB_partial, dC_partial, _ = _launch(
            "backward",
            {"x": x, "dt": dt, "A": A, "B": B, "C": C, "kept": outputs[2], "dy": dy, "ds_T": ds_T, "every": mx.array(every)},
            {
                "dx": (x.shape, x.dtype),
                "ds": (s.shape, s.dtype),
                "ddt_rows": (x.shape, mx.float32),
                "dA_rows": ((batch * P, *A.shape), mx.float32),
                "dB_partial": ((tiles, *B.shape), mx.float32),
                "dC_partial": ((tiles, *C.shape), mx.float32),
                "before": ((every, *s.shape), mx.float32),
            },
            *_rows(primals),
        )
        return (
            ds,
            dx,
            _sum(ddt_rows.reshape(batch * T * heads, P, 1), dt),
            _sum(dA_rows.reshape(1, batch * P, A.size), A),
            _sum(dB_partial.reshape(1, tiles, B.size), B),
            _sum(dC_partial.reshape(1, tiles, C.size), C),
        )

    return cast("Callable[..., tuple[mx.array, mx.array, mx.array]]", scan)


def _rows(primals: Sequence[mx.array]) -> tuple[Grid, Grid, Template]:
    """Grid, threadgroup and template of the kernels in which a simdgroup is a row of the state."""
    _, x, _, A, B, _ = primals
    batch, _, heads, P = x.shape
    groups, N = B.shape[2:]
    template = (("STATES", -(-N // LANES)), ("ROWS", ROWS), ("PER_STATE", A.ndim == 2))
    return (LANES, heads // groups * P, batch * groups), (LANES, ROWS, 1), template


def _sum(partial: mx.array, like: mx.array) -> mx.array:
    """[outer, count, inner] summed over its middle axis, in the shape and dtype of `like`."""
    outer, _, inner = partial.shape
    (total,) = _launch("sum", {"partial": partial}, {"total": (like.shape, like.dtype)}, (inner, outer, 1), (256, 1, 1), ())
    return total
