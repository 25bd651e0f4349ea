"""What models train behind the gate and beta of the gated delta rule: a, A_log and b, as in the op `gated_delta_update`.

    g    = exp(-r softplus(z))       r = exp(A_log), z = a + dt_bias
    beta = sigmoid(b), or 2 sigmoid(b) with `allow_neg_eigval`

So, with softplus(z) = -log(g) / r and softplus'(z) = sigmoid(z) = 1 - exp(-softplus(z)),

    dg / da     = -g r sigmoid(z)    = -g r (1 - g^(1/r))
    dg / dA_log = -g r softplus(z)   = g log g
    dbeta / db  = beta (1 - beta), or beta (1 - beta / 2)

All of them vanish where g or beta is 0. There a kernel that divides by the gate loses d g, or that gets the state before a step back from the
one after it; what it brings to a is right all the same. Near g = 1 it is the rate r that says whether the gate is saturated, and the core of
the rule is not told it: an error must be small at each of `RATES`. A_log is one number per head, so its gradient is a sum.

It lies beside the ops, not in their files: it changes no truth, so none need be computed anew when it changes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradcheck import F64, Trained
from gradcheck.math import log

RATES = (1 / 16, 1.0, 16.0)
"""A slow, a usual and the fastest rate: mlx-lm's models begin with r uniform in (0, 16)."""

SOURCE = "mlx-lm, mlx_lm/models/gated_delta.py, compute_g and gated_delta_update; qwen3_next.py for the range of A"


def _of_a(g: F64, rate: float) -> F64:
    return -g * rate * (1 - g ** (1 / rate))


def _of_log_rate(g: F64) -> F64:
    return g * log(np.where(g > 0, g, 1.0))


def _of_b(beta: F64) -> F64:
    most = 1.0 if beta.max(initial=0.0) <= 1 else 2.0
    return beta * (1 - beta / most)


a_slow, a, a_fast = (Trained("gated_delta", "g", partial(_of_a, rate=rate), SOURCE, name=f"a at exp(A_log) = {rate:g}") for rate in RATES)
A_log = Trained("gated_delta", "g", _of_log_rate, SOURCE, axes="Hv")
b = Trained("gated_delta", "beta", _of_b, SOURCE)

_NAMED = (a_slow, a, a_fast, replace(A_log, name="A_log"), replace(b, name="b"))
slow_unmasked, a_unmasked, fast_unmasked, A_log_unmasked, b_unmasked = (replace(one, op="gated_delta_y_unmasked") for one in _NAMED)
