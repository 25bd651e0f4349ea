"""The scan lane by lane, compiled by numba: all that `costate` says of it, in a fraction of the time.

Nothing is believed of this file: `gradcheck.numerics.fast` tries it on a part of every problem against `costate` in NumPy, and
refuses it where the two differ by more than their bounds. As there, no derivative is written down: `advance` and `read` are the step,
and slopes are differences and complex steps of them. What a step does with dt and A alone is the same for all channels of a head, so it
is computed beforehand, in NumPy, at every point where it is wanted.

The notation is that of `costate`: P is the slope of the loss in the state, and a majorant the same recursion on absolute slopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gradcheck import F64
from gradcheck.math import exp, softplus

from ._compiled import run

COARSE, HEADROOM, UNIT = 2.0**-12, 2.0**20, 8 * 2.0**-53
"""The step for scales, the headroom of large steps, and the rounding of a step: `costate`'s."""

BACK = 1 / COARSE
TINY = 2.0**-60
SHRUNK = 1 / TINY
"""The complex step, and what takes an imaginary part back to a slope."""

C128 = npt.NDArray[np.complex128]
Number = Any
"""A float, or a complex number at a complex step."""
Found = dict[str, tuple[F64, F64, F64]]
Pair = tuple[F64, F64]
Pairs = tuple[Pair, Pair]
Parts = tuple[F64, F64, F64, F64, F64]


def answers(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Found:
    """(value, error, majorant) of y, s_T and the gradient of every input, in float64."""
    s, x, dt, A, B, C = (np.ascontiguousarray(inputs[name], np.float64) for name in ("s", "x", "dt", "A", "B", "C"))
    rate = A[:, None] if A.ndim == 1 else A
    q, tilted = np.stack([softplus(dt), softplus(dt + COARSE)], -1), softplus(dt + 1j * TINY)
    shape = (*dt.shape, B.shape[3])
    decays = _stacked(shape, exp(q[..., :1] * rate), exp(q[..., 1:] * rate), exp(q[..., :1] * (rate + COARSE)))
    turned = _stacked(shape, exp(tilted[..., None] * rate), exp(q[..., :1] * (rate + 1j * TINY)))
    arrays = (s, x, decays, turned, q, tilted, B, C, np.ascontiguousarray(w_y), np.ascontiguousarray(w_s))
    outputs, state, (d_x, d_dt, d_A, d_B, d_C) = run(sweep, *arrays)
    roundings = UNIT * (dt.shape[1] + 1)
    whole = {name: (value, roundings * scale, scale) for name, (value, scale) in zip(("y", "s_T", "s"), (*outputs, state), strict=True)}
    if A.ndim == 1:
        d_A = d_A.sum(-1)
    value, error, majorant = _settled(d_A, roundings)
    return {
        **whole,
        "x": _settled(d_x, roundings),
        "dt": _settled(d_dt, roundings),
        "A": (value.sum(0), error.sum(0), majorant.sum(0)),
        "B": _settled(d_B, roundings),
        "C": _settled(d_C, roundings),
    }


def _stacked(shape: tuple[int, ...], *arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Arrays over (B, T, H, N or 1) side by side, before the last axis."""
    return np.stack([np.broadcast_to(a, shape) for a in arrays], -2)


def _settled(parts: F64, roundings: float) -> tuple[F64, F64, F64]:
    """(value, error, majorant) from (value, scale, size of what was differenced) of what each step contributes."""
    value, scale, size = parts
    scale = np.maximum(scale, np.abs(value))
    return value, roundings * scale + UNIT * size, scale


@njit(forceinline=True)
def advance(s: float, decay: Number, q: Number, x: float, B: float) -> Number:
    """The state after a step of `ssm_scan`, in one lane, real or at a complex step."""
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
def slope(turned: complex) -> float:
    """The slope of what was computed at a complex step."""
    return turned.imag * SHRUNK


@njit(cache=True, error_model="numpy")
def sweep(  # noqa: PLR0913, PLR0915, PLR0917
    s: F64, x: F64, decays: F64, turned: C128, q: F64, tilted: C128, B: F64, C: F64, w_y: F64, w_s: F64
) -> tuple[Pairs, Pair, Parts]:
    """Forward, and back, through every lane of every head.

    decays[B,T,H,3,N] is what it is, and with dt and with A moved by COARSE; turned[B,T,H,2,N] with dt and with A at a complex step;
    q[B,T,H,2] and tilted[B,T,H] are softplus(dt) so.
    """
    rows, steps, heads, channels = x.shape
    groups, width = B.shape[2], B.shape[3]
    y, y_scale, s_T, s_scale = np.zeros(x.shape), np.zeros(x.shape), np.empty(s.shape), np.empty(s.shape)
    d_s, d_s_scale = np.empty(s.shape), np.empty(s.shape)
    d_x, d_dt, d_A = np.zeros((3, *x.shape)), np.zeros((3, rows, steps, heads)), np.zeros((3, steps, heads, width))
    d_B, d_C = np.zeros((3, *B.shape)), np.zeros((3, *B.shape))
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
                half, q0, a, Bt, Ct = 0.5 / h, q[b, t, head, 0], decays[b, t, head, 0], B[b, t, g], C[b, t, g]
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
                h, Bt, Ct, q0, q1, qi = large[t], B[b, t, g], C[b, t, g], q[b, t, head, 0], q[b, t, head, 1], tilted[b, t, head]
                a0, by_dt, by_A = decays[b, t, head, 0], decays[b, t, head, 1], decays[b, t, head, 2]
                half, inverse, turned_dt, turned_A = 0.5 / h, 1 / h, turned[b, t, head, 0], turned[b, t, head, 1]
                b0, b1, b2, c0, c1 = d_B[0, b, t, g], d_B[1, b, t, g], d_B[2, b, t, g], d_C[0, b, t, g], d_C[1, b, t, g]
                r0, r1, r2 = d_A[0, t, head], d_A[1, t, head], d_A[2, t, head]
                dt0, dt1, dt2 = 0.0, 0.0, 0.0
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
                        # A, then dt: complex steps
                        r0[n] += slope(advance(z, turned_A[n], q0, xp, Bn)) * v
                        r1[n] += larger(advance(m, by_A[n], q0, xp, Bn), top, advance(-m, by_A[n], q0, xp, Bn), low) * V * BACK
                        r2[n] += size
                        dt0 = add(dt0, slope(advance(z, turned_dt[n], qi, xp, Bn)) * v)
                        dt1 = add(dt1, larger(advance(m, by_dt[n], q1, xp, Bn), top, advance(-m, by_dt[n], q1, xp, Bn), low) * V)
                        # the state: P one step earlier
                        moved = (advance(z + h, a, q0, xp, Bn) - advance(z - h, a, q0, xp, Bn)) * half
                        tails[n], tail[n] = abs(moved) * V, moved * v
                    d_x[0, b, t, head, p], d_x[1, b, t, head, p], d_x[2, b, t, head, p] = x0 * half, x1 * inverse, x2 * inverse
                    dt2 += x2
                d_dt[0, b, t, head], d_dt[1, b, t, head], d_dt[2, b, t, head] = dt0, dt1 * BACK, dt2
            d_s[b, head], d_s_scale[b, head] = P, PM
    d_C[2] = d_B[2]
    return ((y, y_scale), (s_T, s_scale)), (d_s, d_s_scale), (d_x, d_dt, d_A, d_B, d_C)
