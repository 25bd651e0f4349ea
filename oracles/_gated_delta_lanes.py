"""The gated delta rule row by row, compiled by numba: all that `costate` says of it, in a fraction of the time.

Nothing is believed of this file: `gradcheck.numerics.fast` tries it on a part of every problem against `costate` in NumPy, and
refuses it where the two differ by more than their bounds. Unlike `costate` it has the slopes of a step written out, since a state of
Dk columns would else be moved column by column. In one row of the state, of which v is one number,

    held = sum_j S_j g_j k_j,    delta = beta (v - held),    S'_i = S_i g_i + delta k_i,    y = sum_i S'_i q_i

so whatever moves `held` reaches all columns through delta alone, in proportion to k, and one of them directly. What a model computes
its gate and beta from is differenced in NumPy, and meets the rows as the slope of either.

The notation is that of `costate`: P is the slope of the loss in the state, and a majorant the same recursion on absolute slopes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from gradcheck import F64
from gradcheck.math import exp, sigmoid, softplus

from ._compiled import run

COARSE, HEADROOM, UNIT, TINY = 2.0**-12, 2.0**20, 8 * 2.0**-53, 2.0**-60
"""The step for scales, the headroom of large steps, the rounding of a step, and the complex step: `costate`'s."""

LINEAR_ABOVE = 40.0
"""Of the softplus of `gated_delta_update`."""

Bools = npt.NDArray[np.bool_]
Answer = tuple[F64, F64, F64]
Found = dict[str, Answer]
Part = tuple[F64, F64]


def answers(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Found:
    """(value, error, majorant) of y, state_T and the gradient of every input of `gated_delta`, in float64."""
    g, beta = inputs["g"], inputs["beta"]
    rows = _rows(inputs, g, beta, np.ones(1), w_y, w_s)
    value, scale = rows.by_gate(g.ndim > beta.ndim)
    return rows.whole | {
        "g": rows.settled(value, scale, rows.like(value), rows.large(g)),
        "beta": rows.settled(*rows.beta, rows.size, rows.large(beta)),
    }


def answers_of_update(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Found:
    """(value, error, majorant) of y, state_T and the gradient of every input of `gated_delta_update`, in float64."""
    a, b, A_log, dt_bias = (inputs[name] for name in ("a", "b", "A_log", "dt_bias"))
    bound, vector = inputs.get("lower_bound"), a.ndim > b.ndim
    most = 2.0 if inputs.get("allow_neg_eigval") else 1.0

    def gate(a: F64, A_log: F64) -> F64:
        z, rate = a + dt_bias, exp(A_log[:, None] if vector else A_log)
        return exp(-rate * softplus(z, LINEAR_ABOVE)) if bound is None else exp(bound * sigmoid(rate * z))

    (g, by_z, size_z), (_, by_rate, size_rate) = _moved(lambda z: gate(z, A_log), a), _moved(lambda rate: gate(a, rate), A_log)
    beta, by_b, size_b = _moved(lambda b: most * sigmoid(b), b)
    rows = _rows(inputs, g, beta, size_rate if vector else np.ones(1), w_y, w_s)
    value, scale = rows.by_gate(vector)
    of_b = rows.beta[0] * by_b, rows.beta[1] * np.abs(size_b)
    of_z, of_rate = (value * by_z, scale * np.abs(size_z)), (value * by_rate, scale * np.abs(size_rate))
    if vector:  # A_log moves the gates of all channels of a head at once
        of_rate = of_rate[0].sum(-1), rows.together
    return rows.whole | {
        "a": rows.settled(*of_z, rows.like(a)),
        "b": rows.settled(*of_b, rows.size),
        "A_log": rows.added(*of_rate, rows.size),
        "dt_bias": rows.added(*of_z, rows.like(a)),
    }


def _moved(f: Callable[[F64], F64], point: F64) -> tuple[F64, F64, F64]:
    """(f, its slope by a complex step, its slope to three digits)."""
    base = f(point)
    return base, f(point + 1j * TINY).imag / TINY, (f(point + COARSE) - base) / COARSE  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the rows say, added up over those of a head.

    Args:
        whole: answers that need nothing further, by name.
        gate, beta: (value, scale) of what each step contributes to the slope in the gate of each channel, and in beta.
        together: scale of the slope in all gates of a head, moved at once.
        size: [B,T,Hv], what a step returns, as the loss weights it.
        most: [T], the largest element of the states before and after each step.
        roundings: the rounding of all steps.
    """

    whole: Found
    gate: Part
    beta: Part
    together: F64
    size: F64
    most: F64
    roundings: float

    def by_gate(self, vector: bool) -> Part:  # noqa: FBT001 - which kind of gate
        """(value, scale) in the gate as it is given, of a head or of each of its channels."""
        return self.gate if vector else (self.gate[0].sum(-1), self.together)

    def like(self, gate: F64) -> F64:
        """`size`, to be laid beside what is of a head or of each of its channels."""
        return self.size[..., None] if gate.ndim > self.size.ndim else self.size

    def large(self, point: F64) -> F64:
        """By how much a difference amplifies a rounding, where `point` [B,T,…] is moved by a large step of its own at each t."""
        return _large(self.most, point)

    def settled(self, value: F64, scale: F64, size: F64, amplified: F64 | float = 1.0) -> Answer:
        """(value, error, majorant) of what each step contributes by itself."""
        return _settled(value, scale, size, amplified, self.roundings)

    def added(self, value: F64, scale: F64, size: F64) -> Answer:
        """The same of an input that all steps and sequences share."""
        settled = self.settled(value.sum(0), scale.sum(0), size.sum(0))
        return settled[0].sum(0), settled[1].sum(0), settled[2].sum(0)


def _rows(inputs: Mapping[str, F64], g: F64, beta: F64, along: F64, w_y: F64, w_s: F64) -> _Rows:
    """All rows of a call, whose gates are `g` and may move together along `along`."""
    # Copies throughout: numba compiles anew for an array that may not be written to.
    q, k, v, state = (np.array(inputs[name], np.float64, order="C") for name in ("q", "k", "v", "state"))
    shape = (*v.shape[:3], q.shape[3])
    gates = [np.array(np.broadcast_to(x[..., None] if x.ndim == 3 else x, shape), order="C") for x in (g, along)]
    kept = np.array(inputs.get("mask", np.ones(v.shape[:2])), np.bool_, order="C")
    rest = (np.array(x, np.float64, order="C") for x in (w_y, w_s))
    pairs, (d_q, d_k, d_v), gate, of_beta, (together, size, states) = run(
        sweep, state, q, k, v, *gates, np.array(beta, order="C"), kept, *rest
    )
    most, roundings = np.maximum(states[:-1], states[1:]), UNIT * (v.shape[1] + 1)
    whole = {name: (value, roundings * scale, scale) for name, (value, scale) in zip(("y", "state_T", "state"), pairs, strict=True)}
    for name, parts, point in (("q", d_q, q), ("v", d_v, v)):
        whole[name] = _settled(parts[0], parts[1], parts[2], _large(most, point), roundings)
    whole["k"] = _settled(d_k[0], d_k[1], d_k[2], 1.0, roundings)
    return _Rows(whole, gate, of_beta, together, size, most, roundings)


def _large(most: F64, point: F64) -> F64:
    largest = np.maximum(np.maximum(most, np.abs(point).max((0, *range(2, point.ndim)))), 1.0)
    h = HEADROOM * np.exp2(np.ceil(np.log2(largest)))
    return np.asarray(2 / h.reshape(-1, *(1,) * (point.ndim - 2)))


def _settled(value: F64, scale: F64, size: F64, amplified: F64 | float, roundings: float) -> Answer:
    scale = np.maximum(scale, np.abs(value))
    return value, roundings * scale + UNIT * amplified * size, scale


@njit(forceinline=True, fastmath={"reassoc", "nsz"})
def add(a: float, b: float) -> float:
    """a + b in a sum over columns, which may be taken in any order; nothing else may be reordered or fused."""
    return a + b


@njit(forceinline=True)
def others(parts: F64, out: F64) -> None:
    """out_i = the sum of all parts but the i-th, of which none is subtracted: what is zero stays so."""
    total = 0.0
    for i in range(parts.size):
        out[i] = total
        total += parts[i]
    total = 0.0
    for i in range(parts.size - 1, -1, -1):
        out[i] += total
        total += parts[i]


@njit(cache=True, error_model="numpy")
def sweep(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one pass forward and one back, over arrays
    state: F64, q: F64, k: F64, v: F64, decay: F64, along: F64, beta: F64, kept: Bools, w_y: F64, w_s: F64
) -> tuple[tuple[Part, Part, Part], tuple[F64, F64, F64], Part, Part, tuple[F64, F64, F64]]:
    """Forward, and back, through every row of every head. decay and along [B,T,Hv,Dk], kept[B,T].

    Returns (value, scale) of y, of the final state and in the initial one; (value, scale, size) in q, k, v; (value, scale) in the
    gates and in beta; and what `_Rows` calls `together` and `size`, and the largest element of each state.
    """
    batch, steps, heads, width = decay.shape
    channels, shared = v.shape[3], heads // q.shape[2]
    y, y_scale, state_T, state_scale = np.zeros(v.shape), np.zeros(v.shape), np.empty(state.shape), np.empty(state.shape)
    d_state, d_state_scale = np.empty(state.shape), np.empty(state.shape)
    d_q, d_k, d_v = np.zeros((3, *q.shape)), np.zeros((3, *k.shape)), np.zeros((3, *v.shape))
    d_g, d_beta, together, size = np.zeros((2, *decay.shape)), np.zeros((2, *beta.shape)), np.zeros(beta.shape), np.zeros(beta.shape)
    S, M = np.empty((steps + 1, channels, width)), np.empty((steps + 1, channels, width))
    P, PM, most = np.empty((channels, width)), np.empty((channels, width)), np.zeros(steps + 1)
    parts, rest, u, U = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for b in range(batch):
        for head in range(heads):
            group = head // shared
            S[0], M[0] = state[b, head], np.abs(state[b, head])
            P[:], PM[:] = w_s[b, head], np.abs(w_s[b, head])
            most[0] = max(most[0], M[0].max())
            for t in range(steps):
                if not kept[b, t]:
                    S[t + 1], M[t + 1] = S[t], M[t]
                    most[t + 1] = max(most[t + 1], np.abs(S[t + 1]).max())
                    continue
                Q, K, G, strength = q[b, t, group], k[b, t, group], decay[b, t, head], beta[b, t, head]
                for c in range(channels):
                    now, after, before, behind, held, total, scale = S[t, c], S[t + 1, c], M[t, c], M[t + 1, c], 0.0, 0.0, 0.0
                    for j in range(width):
                        held = add(held, now[j] * G[j] * K[j])
                        parts[j] = abs(strength * K[j] * G[j]) * before[j]
                    others(parts, rest)
                    came = strength * v[b, t, head, c]
                    delta = strength * (v[b, t, head, c] - held)
                    for i in range(width):
                        after[i] = now[i] * G[i] + delta * K[i]
                        behind[i] = abs(came * K[i]) + abs(G[i] - strength * K[i] * G[i] * K[i]) * before[i] + abs(K[i]) * rest[i]
                        total = add(total, after[i] * Q[i])
                        scale = add(scale, abs(Q[i]) * behind[i])
                    y[b, t, head, c], y_scale[b, t, head, c] = total, scale
                most[t + 1] = max(most[t + 1], np.abs(S[t + 1]).max())
            state_T[b, head], state_scale[b, head] = S[steps], M[steps]
            for t in range(steps - 1, -1, -1):
                Q, K, G, E, strength = q[b, t, group], k[b, t, group], decay[b, t, head], along[b, t, head], beta[b, t, head]
                q0, q1, q2 = d_q[0, b, t, group], d_q[1, b, t, group], d_q[2, b, t, group]
                k0, k1, k2 = d_k[0, b, t, group], d_k[1, b, t, group], d_k[2, b, t, group]
                g0, g1, every = d_g[0, b, t, head], d_g[1, b, t, head], 0.0
                for c in range(channels):
                    now, after, before, tail, tails = S[t, c], S[t + 1, c], M[t, c], P[c], PM[c]
                    w, value, row = w_y[b, t, head, c], v[b, t, head, c], 0.0
                    if not kept[b, t]:
                        for i in range(width):
                            own = abs(after[i]) * tails[i]
                            q2[i] += own
                            row += own
                        d_v[2, b, t, head, c] = row
                        every += row
                        continue
                    held, above, moved, through, whole = 0.0, 0.0, 0.0, 0.0, 0.0
                    for i in range(width):
                        # The loss sees the new state through the tail, and through what is read of it now.
                        u[i], U[i] = tail[i] + w * Q[i], tails[i] + abs(w * Q[i])
                        held = add(held, now[i] * G[i] * K[i])
                        above = add(above, before[i] * G[i] * K[i])
                        moved = add(moved, before[i] * E[i] * K[i])
                        through = add(through, K[i] * u[i])
                        parts[i] = abs(K[i]) * U[i]
                        whole = add(whole, parts[i])
                        row = add(row, abs(after[i]) * U[i])
                    others(parts, rest)
                    delta, top, low = strength * (value - held), strength * (value - above), strength * (value + above)
                    lump = 0.0
                    for i in range(width):
                        Ki, Gi, si, mi = K[i], G[i], strength * K[i], strength * before[i] * G[i]
                        largest = max(abs(before[i] * Gi + top * Ki), abs(low * Ki - before[i] * Gi))
                        q0[i] += after[i] * w
                        q1[i] += largest * abs(w)
                        q2[i] += abs(after[i]) * U[i]
                        k0[i] += delta * u[i] - strength * now[i] * Gi * through
                        k1[i] += max(abs(top - mi * (Ki + COARSE)), abs(low + mi * (Ki + COARSE))) * U[i] + abs(mi) * rest[i]
                        g0[i] += now[i] * (u[i] - si * through)
                        g1[i] += before[i] * (abs(1 - si * Ki) * U[i] + abs(si) * rest[i])
                        lump = add(lump, abs(before[i] * E[i] - si * moved) * U[i])
                        tail[i] = Gi * (u[i] - si * through)
                        tails[i] = abs(Gi - si * Gi * Ki) * U[i] + abs(si * Gi) * rest[i]
                    together[b, t, head] += lump
                    d_v[0, b, t, head, c], d_v[1, b, t, head, c], d_v[2, b, t, head, c] = strength * through, abs(strength) * whole, row
                    d_beta[0, b, t, head] += (value - held) * through
                    d_beta[1, b, t, head] += max(abs(value - above), abs(value + above)) * whole
                    every += row
                size[b, t, head] = every
                for i in range(width):
                    k2[i] += every
            d_state[b, head], d_state_scale[b, head] = P, PM
    pairs = ((y, y_scale), (state_T, state_scale), (d_state, d_state_scale))
    return pairs, (d_q, d_k, d_v), (d_g[0], d_g[1]), (d_beta[0], d_beta[1]), (together, size, most)
