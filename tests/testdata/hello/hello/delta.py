"""A delta rule in NumPy: an object with `forward` and `vjp`."""

import numpy as np


def _states(S, k, v, beta):
    """S_0 … S_T, each [B, K, V], and the errors v_t - S_{t-1}' k_t."""
    states, errors = [S], []
    for t in range(k.shape[1]):
        errors.append(v[:, t] - np.einsum("bkv,bk->bv", states[-1], k[:, t]))
        states.append(states[-1] + beta[:, t, None, None] * k[:, t, :, None] * errors[-1][:, None, :])
    return states, errors


class DeltaRule:
    def forward(self, S, q, k, v, beta):
        states, _ = _states(S, k, v, beta)
        return np.stack([np.einsum("bkv,bk->bv", states[t + 1], q[:, t]) for t in range(q.shape[1])], axis=1), states[-1]

    def vjp(self, inputs, cotangents):
        S, q, k, v, beta = inputs
        dy, G = cotangents
        states, errors = _states(S, k, v, beta)
        dq, dk, dv, dbeta = np.empty_like(q), np.empty_like(k), np.empty_like(v), np.empty_like(beta)
        for t in reversed(range(q.shape[1])):
            dq[:, t] = np.einsum("bkv,bv->bk", states[t + 1], dy[:, t])
            G = G + q[:, t, :, None] * dy[:, t, None, :]
            Gu = np.einsum("bkv,bv->bk", G, errors[t])
            dbeta[:, t] = (Gu * k[:, t]).sum(axis=-1)
            du = beta[:, t, None] * np.einsum("bkv,bk->bv", G, k[:, t])
            dk[:, t] = beta[:, t, None] * Gu - np.einsum("bkv,bv->bk", states[t], du)
            dv[:, t] = du
            G = G - k[:, t, :, None] * du[:, None, :]
        return G, dq, dk, dv, dbeta


delta_rule = DeltaRule()
