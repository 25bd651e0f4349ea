"""The selective scan in plain MLX ops, differentiated by MLX itself: what a hand-written VJP is up against.

No backward is written here, so a mistake in one cannot be repeated here. MLX keeps every intermediate of every step.
"""

from __future__ import annotations

import mlx.core as mx

from .mlx import check, prepare, read, states, time_second


def ssm_scan(s: mx.array, x: mx.array, dt: mx.array, A: mx.array, B: mx.array, C: mx.array) -> tuple[mx.array, mx.array]:
    """Selective scan, as `mlx.ssm_scan`: equations, shapes and dtypes are told there; the outputs are the same bits.

    Args:
        s: initial state, [B, H, P, N].
        x: [B, T, H, P].
        dt: step size before the softplus, [B, T, H].
        A: decay rate, [H] (Mamba-2) or [H, N] (Mamba-1).
        B: input projection, [B, T, G, N].
        C: output projection, [B, T, G, N].

    Returns:
        y [B, T, H, P] and s_T [B, H, P, N].

    Raises:
        ValueError: a shape does not fit, or an input is not of a floating dtype.
    """
    check({"s": s, "x": x, "dt": dt, "A": A, "B": B, "C": C})
    S0, steps, _ = prepare((s, x, dt, A, B, C))
    S = states(S0, steps)
    return time_second(read(S, steps)).astype(x.dtype), S[-1].astype(s.dtype)
