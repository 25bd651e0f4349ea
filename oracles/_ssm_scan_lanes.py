"""The scan lane by lane, compiled by numba: all that `costate` says of it, in a fraction of the time.

Nothing is believed of this file: `gradcheck.numerics.fast` tries it on a part of every problem against `costate` in NumPy, and
refuses it where the two differ by more than their bounds. As there, no derivative is written down: `advance` and `read` are the step,
and slopes are differences of them. What a step does with dt and A alone is the same for all channels of a head, so it is computed
beforehand, in NumPy, at every point of the differences.

The notation is that of `costate`: P is the slope of the loss in the state, and a majorant the same recursion on absolute slopes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit

from gradcheck import F64
from gradcheck.math import exp, softplus

SPACING, COARSE, HEADROOM, UNIT = 2.0**-11, 2.0**-12, 2.0**20, 8 * 2.0**-53
"""Spacing of the six-point difference, the step for scales, the headroom of large steps, and the rounding of a step: `costate`'s."""

NEAR, FAR = (2 / 3) / SPACING, (-1 / 12) / SPACING
GAP = (2 * NEAR / 15, (2 * FAR - NEAR) / 15, -FAR / 15)
V1, V2, V3 = 2 * NEAR + GAP[0], 2 * FAR + GAP[1], GAP[2]
E1, E2, E3 = 1.1 * GAP[0], 1.1 * GAP[1], 1.1 * GAP[2]
"""Weights of f(+j) - f(-j) at j = k/2, k, 2k: of the slope, and of the bound on its truncation."""

MOVES = (0.0, SPACING / 2, SPACING, 2 * SPACING, -SPACING / 2, -SPACING, -2 * SPACING, COARSE)
BACK = 1 / COARSE
AMPLIFIED = 2 * (abs(V1) + abs(V2) + abs(V3))

Found = dict[str, tuple[F64, F64, F64]]
Pair = tuple[F64, F64]
Pairs = tuple[Pair, Pair]
Parts = tuple[F64, F64, F64, F64, F64]


def answers(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Found:
    """(value, error, majorant) of y, s_T and the gradient of every input, in float64."""
    s, x, dt, A, B, C = (np.ascontiguousarray(inputs[name], np.float64) for name in ("s", "x", "dt", "A", "B", "C"))
    rate = A[:, None] if A.ndim == 1 else A
    q = np.stack([softplus(dt + move) for move in MOVES], -1)
    decays = np.empty((*dt.shape, 2, len(MOVES), B.shape[3]))
    for i, move in enumerate(MOVES):
        decays[:, :, :, 0, i] = exp(q[..., i, None] * rate)
        decays[:, :, :, 1, i] = exp(q[..., 0, None] * (rate + move))
    outputs, state, (d_x, d_dt, d_A, d_B, d_C) = sweep(s, x, decays, q, B, C, np.ascontiguousarray(w_y), np.ascontiguousarray(w_s))
    roundings = UNIT * (dt.shape[1] + 1)
    whole = {name: (value, roundings * scale, scale) for name, (value, scale) in zip(("y", "s_T", "s"), (*outputs, state), strict=True)}
    if A.ndim == 1:
        d_A = d_A.sum(-1)
    value, error, majorant = _settled(d_A, roundings, AMPLIFIED)
    return {
        **whole,
        "x": _settled(d_x, roundings),
        "dt": _settled(d_dt, roundings, AMPLIFIED),
        "A": (value.sum(0), error.sum(0), majorant.sum(0)),
        "B": _settled(d_B, roundings),
        "C": _settled(d_C, roundings),
    }


def _settled(parts: F64, roundings: float, amplified: float = 1.0) -> tuple[F64, F64, F64]:
    """(value, error, majorant) from (value, scale, size of what was differenced, truncation) of what each step contributes."""
    value, scale, size, truncation = parts
    scale = np.maximum(scale, np.abs(value))
    return value, roundings * scale + UNIT * amplified * size + truncation, scale


@njit(forceinline=True)
def advance(s: float, decay: float, q: float, x: float, B: float) -> float:
    """The state after a step of `ssm_scan`, in one lane."""
    return decay * s + (q * x) * B


@njit(forceinline=True)
def read(s: float, C: float) -> float:
    """What the lane adds to y."""
    return s * C


@njit(forceinline=True, fastmath={"reassoc", "nsz"})
def add(a: float, b: float) -> float:
    """a + b in a sum over lanes, which may be taken in any order; nothing else may be reordered or fused, or differences lose digits."""
    return a + b


@njit(forceinline=True)
def larger(a: float, b: float, c: float, d: float) -> float:
    """The larger of two changes, in absolute value."""
    return max(abs(a - b), abs(c - d))


@njit(forceinline=True)
def slope(up1: float, up2: float, up3: float, down1: float, down2: float, down3: float) -> tuple[float, float]:
    """(slope, bound on its truncation) by the six-point difference, from the values at j = k/2, k, 2k and their opposites."""
    one, two, three = up1 - down1, up2 - down2, up3 - down3
    return V1 * one + V2 * two + V3 * three, abs(E1 * one + E2 * two + E3 * three)


@njit(cache=True, error_model="numpy")
def sweep(s: F64, x: F64, decays: F64, q: F64, B: F64, C: F64, w_y: F64, w_s: F64) -> tuple[Pairs, Pair, Parts]:  # noqa: PLR0915
    """Forward, and back, through every lane of every head. decays[B,T,H,2,8,N] and q[B,T,H,8] at MOVES of dt (0) and of A (1)."""
    rows, steps, heads, channels = x.shape
    groups, width = B.shape[2], B.shape[3]
    y, y_scale, s_T, s_scale = np.zeros(x.shape), np.zeros(x.shape), np.empty(s.shape), np.empty(s.shape)
    d_s, d_s_scale = np.empty(s.shape), np.empty(s.shape)
    d_x, d_dt, d_A = np.zeros((4, *x.shape)), np.zeros((4, rows, steps, heads)), np.zeros((4, steps, heads, width))
    d_B, d_C = np.zeros((4, *B.shape)), np.zeros((4, *B.shape))
    S, M = np.empty((steps + 1, channels, width)), np.empty((steps + 1, channels, width))
    P, PM, large = np.empty((channels, width)), np.empty((channels, width)), np.empty(steps)
    given = max(1.0, np.abs(x).max(), np.abs(B).max(), np.abs(C).max())
    for b in range(rows):
        for head in range(heads):
            g = head // (heads // groups)
            S[0], M[0] = s[b, head], np.abs(s[b, head])
            P[:], PM[:] = w_s[b, head], np.abs(w_s[b, head])
            most = max(given, np.abs(S[0]).max())
            for t in range(steps):
                h = HEADROOM * 2.0 ** np.ceil(np.log2(most))
                half, q0, a, Bt, Ct = 0.5 / h, q[b, t, head, 0], decays[b, t, head, 0, 0], B[b, t, g], C[b, t, g]
                for p in range(channels):
                    xp, total, scale = x[b, t, head, p], 0.0, 0.0
                    now, after, before, behind = S[t, p], S[t + 1, p], M[t, p], M[t + 1, p]
                    for n in range(width):
                        base, up, down = (
                            advance(now[n], a[n], q0, xp, Bt[n]),
                            advance(now[n] + h, a[n], q0, xp, Bt[n]),
                            advance(now[n] - h, a[n], q0, xp, Bt[n]),
                        )
                        moved, told = (up - down) * half, (read(up, Ct[n]) - read(down, Ct[n])) * half
                        term = read(base, Ct[n])
                        after[n] = base
                        behind[n] = abs(base - moved * now[n]) + abs(moved) * before[n]
                        total = add(total, term)
                        scale = add(scale, abs(term - told * now[n]) + abs(told) * before[n])
                    y[b, t, head, p], y_scale[b, t, head, p] = total, scale
                most = max(most, np.abs(S[t + 1]).max())
                large[t] = HEADROOM * 2.0 ** np.ceil(np.log2(most))
            s_T[b, head], s_scale[b, head] = S[steps], M[steps]
            for t in range(steps - 1, -1, -1):
                h, Bt, Ct, D, R, Q = large[t], B[b, t, g], C[b, t, g], decays[b, t, head, 0], decays[b, t, head, 1], q[b, t, head]
                half, inverse, q0, a0, a7 = 0.5 / h, 1 / h, Q[0], D[0], D[7]
                b0, b1, b2, c0, c1 = d_B[0, b, t, g], d_B[1, b, t, g], d_B[2, b, t, g], d_C[0, b, t, g], d_C[1, b, t, g]
                r0, r1, r2, r3, r7 = d_A[0, t, head], d_A[1, t, head], d_A[2, t, head], d_A[3, t, head], R[7]
                dt0, dt1, dt2, dt3 = 0.0, 0.0, 0.0, 0.0
                for p in range(channels):
                    xp, w, now, bound, tail, tails = x[b, t, head, p], w_y[b, t, head, p], S[t, p], M[t, p], P[p], PM[p]
                    W, x0, x1, x2 = abs(w), 0.0, 0.0, 0.0
                    for n in range(width):
                        a, z, m, Bn, Cn = a0[n], now[n], bound[n], Bt[n], Ct[n]
                        top, low, base = advance(m, a, q0, xp, Bn), advance(-m, a, q0, xp, Bn), advance(z, a, q0, xp, Bn)
                        # The loss sees the new state through the tail, and through what is read of it now.
                        told = (read(base + h, Cn) - read(base - h, Cn)) * half
                        v, V = tail[n] + told * w, tails[n] + abs(told) * W
                        size = abs(base) * tails[n] + abs(read(base, Cn)) * W
                        # x, B, C are affine: two points far apart
                        x0 = add(x0, (advance(z, a, q0, xp + h, Bn) - advance(z, a, q0, xp - h, Bn)) * v)
                        x1 = add(x1, larger(advance(m, a, q0, xp + h, Bn), top, advance(-m, a, q0, xp + h, Bn), low) * V)
                        x2 = add(x2, size)
                        b0[n] += (advance(z, a, q0, xp, Bn + h) - advance(z, a, q0, xp, Bn - h)) * v * half
                        b1[n] += larger(advance(m, a, q0, xp, Bn + h), top, advance(-m, a, q0, xp, Bn + h), low) * V * inverse
                        b2[n] += size * inverse
                        c0[n] += (read(base, Cn + h) - read(base, Cn - h)) * w * half
                        c1[n] += larger(read(top, Cn + h), read(top, Cn), read(low, Cn + h), read(low, Cn)) * W * inverse
                        # A, then dt: six points
                        value, off = slope(
                            advance(z, R[1, n], q0, xp, Bn),
                            advance(z, R[2, n], q0, xp, Bn),
                            advance(z, R[3, n], q0, xp, Bn),
                            advance(z, R[4, n], q0, xp, Bn),
                            advance(z, R[5, n], q0, xp, Bn),
                            advance(z, R[6, n], q0, xp, Bn),
                        )
                        r0[n] += value * v
                        r1[n] += larger(advance(m, r7[n], q0, xp, Bn), top, advance(-m, r7[n], q0, xp, Bn), low) * V * BACK
                        r2[n] += size
                        r3[n] += off * V
                        value, off = slope(
                            advance(z, D[1, n], Q[1], xp, Bn),
                            advance(z, D[2, n], Q[2], xp, Bn),
                            advance(z, D[3, n], Q[3], xp, Bn),
                            advance(z, D[4, n], Q[4], xp, Bn),
                            advance(z, D[5, n], Q[5], xp, Bn),
                            advance(z, D[6, n], Q[6], xp, Bn),
                        )
                        dt0 = add(dt0, value * v)
                        dt1 = add(dt1, larger(advance(m, a7[n], Q[7], xp, Bn), top, advance(-m, a7[n], Q[7], xp, Bn), low) * V)
                        dt3 = add(dt3, off * V)
                        # the state: P one step earlier
                        moved = (advance(z + h, a, q0, xp, Bn) - advance(z - h, a, q0, xp, Bn)) * half
                        tails[n], tail[n] = abs(moved) * V, moved * v
                    d_x[0, b, t, head, p], d_x[1, b, t, head, p], d_x[2, b, t, head, p] = x0 * half, x1 * inverse, x2 * inverse
                    dt2 += x2
                d_dt[0, b, t, head], d_dt[1, b, t, head], d_dt[2, b, t, head], d_dt[3, b, t, head] = dt0, dt1 * BACK, dt2, dt3
            d_s[b, head], d_s_scale[b, head] = P, PM
    d_C[2] = d_B[2]
    return ((y, y_scale), (s_T, s_scale)), (d_s, d_s_scale), (d_x, d_dt, d_A, d_B, d_C)
