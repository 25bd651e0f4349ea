"""A right gated delta rule that gets the state before a step back from the one after it for d g alone, and then divides by the gate.

What it brings to a and A_log is right to rounding; d g itself is not where the gate is nearly closed. `rule` is it; the others have a mistake in d g
beside.
"""

from __future__ import annotations

import numpy as np

TINY = np.float32(1e-30)  # of a gate that is exactly 0


class Rule:
    arrays = "numpy"

    def forward(self, q, k, v, g, beta, state):
        y, states, _ = self.steps(q, k, v, g, beta, state)
        return y, states[-1].copy()

    def steps(self, q, k, v, g, beta, state):
        ratio = v.shape[2] // k.shape[2]
        q, k = (np.repeat(a, ratio, axis=2) for a in (q, k))
        g = g[:, :, :, None, None] if g.ndim == 3 else g[:, :, :, None, :]
        y, states, deltas = np.empty_like(v), [state], []
        for t in range(v.shape[1]):
            decayed = states[-1] * g[:, t]
            deltas.append(v[:, t] - np.einsum("bhvk,bhk->bhv", decayed, k[:, t]))
            new = decayed + (beta[:, t, :, None] * deltas[-1])[..., None] * k[:, t, :, None, :]
            y[:, t] = np.einsum("bhvk,bhk->bhv", new, q[:, t])
            states.append(new)
        return y, states, deltas

    def vjp(self, inputs, cotangents):
        q, k, v, g, beta, _ = inputs
        dy, G = cotangents
        _, states, deltas = self.steps(*inputs)
        ratio = v.shape[2] // k.shape[2]
        qs, ks = (np.repeat(a, ratio, axis=2) for a in (q, k))
        gate = g[:, :, :, None, None] if g.ndim == 3 else g[:, :, :, None, :]
        dq, dk, dv, dg, dbeta = (np.empty_like(a) for a in (qs, ks, v, g, beta))
        for t in reversed(range(v.shape[1])):
            kt, bt, delta = ks[:, t], beta[:, t, :, None], deltas[t]
            G = G + dy[:, t, :, :, None] * qs[:, t, :, None, :]
            dq[:, t] = np.einsum("bhvk,bhv->bhk", states[t + 1], dy[:, t])
            into = np.einsum("bhvk,bhk->bhv", G, kt)
            dv[:, t] = bt * into
            dbeta[:, t] = (into * delta).sum(-1)
            dk[:, t] = np.einsum("bhvk,bhv->bhk", G, bt * delta) - np.einsum("bhvk,bhv->bhk", states[t] * gate[:, t], bt * into)
            G = G - (bt * into)[..., None] * kt[:, :, None, :]
            before = states[t + 1] - (bt * delta)[..., None] * kt[:, :, None, :]
            dg[:, t] = self.of_gate((G * before).sum((-2, -1) if g.ndim == 3 else -2), g[:, t])
            G = G * gate[:, t]

        def back(a):  # to the key heads
            return a.reshape(*a.shape[:2], -1, ratio, a.shape[-1]).sum(3)

        return back(dq), back(dk), dv, dg, dbeta, G

    def of_gate(self, log_slope, g):
        return log_slope / np.maximum(g, TINY)


class Scaled(Rule):
    def of_gate(self, log_slope, g):
        return super().of_gate(log_slope, g) * np.float32(1.001)


class Noisy(Rule):
    """Keeps ten bits of what it divides: that is rounding, and shows in a as well."""

    def of_gate(self, log_slope, g):
        return super().of_gate(log_slope.astype(np.float16).astype(np.float32), g)


class ZeroAtZero(Rule):
    """Says that a gate which is exactly 0 has no gradient."""

    def of_gate(self, log_slope, g):
        return np.where(g == 0, np.float32(0), super().of_gate(log_slope, g))


rule, scaled, noisy, zero_at_zero = Rule(), Scaled(), Noisy(), ZeroAtZero()
