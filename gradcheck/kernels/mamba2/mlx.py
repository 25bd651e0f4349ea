"""Mamba-2 as models call it, in MLX ops, with a hand-written VJP: the selective scan, and what stands around it in a model.

Around it stand the step size (bias, softplus, clip), the decay rate -exp(A_log), and the skip D x. Inside this file arrays have the
time axis first and are float32, as in `gradcheck.kernels.ssm_scan.mlx`, whose reverse recurrence this is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import mlx.core as mx

from gradcheck.kernels.ssm_scan.mlx import (
    Steps,
    adjoints,
    chain,
    check,
    contract,
    discretise,
    over_group,
    read,
    softplus,
    softplus_slope,
    states,
    time_first,
    time_second,
)

TIME_STEP_LIMIT = (0.001, 100.0)
"""mlx-lm's default bounds of the step size."""


def mamba2(  # noqa: PLR0913 - the eight inputs, and the bounds
    x: mx.array,
    dt: mx.array,
    A_log: mx.array,
    B: mx.array,
    C: mx.array,
    D: mx.array,
    dt_bias: mx.array,
    state: mx.array,
    *,
    time_step_limit: tuple[float, float] = TIME_STEP_LIMIT,
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state. Trainable: all eight inputs have gradients.

    With `P_t = clip(softplus(dt_t + dt_bias), lo, hi)` and `g = h // (H / G)`, per head h::

        S_t = exp(-P_t e^A_log) S_{t-1} + P_t x_t (outer) B_{t,g}
        y_t = S_t C_{t,g} + D x_t

    The backward recomputes and keeps all T + 1 states: memory is O(T · B · H · P · N).

    Args:
        x: [B, T, H, P].
        dt: step size before bias and softplus, [B, T, H].
        A_log: [H].
        B: input projection, [B, T, G, N], where G divides H.
        C: output projection, [B, T, G, N].
        D: skip from input to output, [H].
        dt_bias: [H].
        state: initial state, [B, H, P, N].
        time_step_limit: lo and hi. A step size beyond them has no gradient.

    Returns:
        y [B, T, H, P] in the dtype of x, and the final state [B, H, P, N] in the dtype of `state`. Whatever the input dtypes, all is
        computed in float32; a gradient has the dtype of its input.

    Raises:
        ValueError: a shape does not fit, an input is not of a floating dtype, or the bounds are in the wrong order.
    """
    check({"s": state, "x": x, "dt": dt, "A": A_log, "B": B, "C": C})
    for name, array in {"A_log": A_log, "D": D, "dt_bias": dt_bias}.items():
        if array.shape != (x.shape[2],) or not mx.issubdtype(array.dtype, mx.floating):
            raise ValueError(f"mamba2: {name} is {array.dtype}{array.shape}, need floating numbers of shape {(x.shape[2],)}")
    low, high = time_step_limit
    if not low <= high:
        raise ValueError(f"mamba2: time_step_limit is {time_step_limit}, need (lo, hi) with lo <= hi")
    return _scan(low, high)(x, dt, A_log, B, C, D, dt_bias, state)


@cache
def _scan(low: float, high: float) -> Callable[..., tuple[mx.array, mx.array]]:
    """The scan with these bounds of the step size."""

    def prepare(primals: tuple[mx.array, ...]) -> tuple[mx.array, mx.array, mx.array, Steps, mx.array, mx.array]:
        """Initial state, step size before and after the softplus, steps, decay rate [H, 1] and skip [H, 1]."""
        x, dt, A_log, B, C, D, dt_bias, state = primals
        z = time_first(dt) + dt_bias.astype(mx.float32)
        unclipped = softplus(z)
        steps, rate = discretise(mx.clip(unclipped, low, high), x, -mx.exp(A_log.astype(mx.float32)), B, C)
        return state.astype(mx.float32), z, unclipped, steps, rate, D.astype(mx.float32)[:, None]

    @mx.custom_function
    def scan(*primals: mx.array) -> tuple[mx.array, mx.array]:
        S0, _, _, steps, _, skip = prepare(primals)
        S = states(S0, steps)
        y = read(S, steps) + skip * steps.x
        return time_second(y).astype(primals[0].dtype), S[-1].astype(primals[-1].dtype)

    @scan.vjp
    def _(primals: tuple[mx.array, ...], cotangents: tuple[mx.array, ...], _outputs: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
        """The reverse recurrence of the scan, and the chain rule around it."""
        x, dt, A_log, B, C, D, dt_bias, state = primals
        S0, z, unclipped, steps, rate, skip = prepare(primals)
        dy, ds_T = time_first(cotangents[0]), cotangents[1].astype(mx.float32)
        S = states(S0, steps)
        G, ds = adjoints(ds_T, dy, steps)
        found = contract(S, G, dy, steps)
        dx_scan, dstep, dA = chain(steps, rate, found)

        dx = dx_scan + skip * dy
        dD = (dy * steps.x).sum(axis=(0, 1, 3))
        inside = (unclipped >= low) & (unclipped <= high)
        dz = mx.where(inside, dstep, 0.0) * softplus_slope(z)
        ddt_bias = dz.sum(axis=(0, 1))
        dA_log = dA.sum(axis=-1) * rate[:, 0]  # A = -exp(A_log) is its own derivative

        groups = B.shape[2]
        return (
            time_second(dx).astype(x.dtype),
            time_second(dz).astype(dt.dtype),
            dA_log.astype(A_log.dtype),
            time_second(over_group(found.dB, groups)).astype(B.dtype),
            time_second(over_group(found.dC, groups)).astype(C.dtype),
            dD.astype(D.dtype),
            ddt_bias.astype(dt_bias.dtype),
            ds.astype(state.dtype),
        )

    return cast("Callable[..., tuple[mx.array, mx.array]]", scan)
