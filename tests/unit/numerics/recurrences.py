"""Recurrences to try the numerics on, one for each thing that an op may be, and an independent backward of the scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck import Op
from gradcheck.math import exp, sigmoid, softplus, tanh, where
from gradcheck.numerics.recurrence import Array, Recurrence, axes
from gradcheck.suite import load

OPS: Mapping[str, Op] = load().ops
SCAN = OPS["ssm_scan"]
BRANCHES = tuple(SCAN.variants)
GATED = [(name, branch) for name in ("gated_delta", "gated_delta_update") for branch in OPS[name].variants]
"""The branches of the gated delta rule, whose state is coupled."""


@dataclass(frozen=True)
class Sample:
    """Inputs and cotangents of one call."""

    recurrence: Recurrence
    inputs: Mapping[str, Array]
    w_y: Array
    w_s: Array

    def solve(self, oracle: Callable[..., object]):
        return oracle(self.recurrence, self.inputs, self.w_y, self.w_s)


def scan(branch: str, regime: str, seed: int, **sizes: int) -> Sample:
    """A call of the shipped scan; sizes not given are small, and with two groups of three heads."""
    sizes = {"B": 2, "T": 7, "H": 6, "G": 2, "P": 2, "N": 3} | sizes
    rng = np.random.default_rng([seed, BRANCHES.index(branch)])
    drawn = SCAN.regimes[regime].draw(rng, SCAN.shapes(sizes, branch))
    return sample(SCAN.recurrence(branch), rng, sizes, drawn)


def gated(name: str, branch: str, regime: str, seed: int, **sizes: int) -> Sample:
    """A call of the shipped op `name`; sizes not given are small, and with two key heads of two value heads each."""
    sizes = {"B": 2, "T": 4, "Hk": 2, "Hv": 4, "Dk": 3, "Dv": 2} | sizes
    rng = np.random.default_rng([seed, GATED.index((name, branch))])
    drawn = OPS[name].regimes[regime].draw(rng, OPS[name].shapes(sizes, branch))
    return sample(OPS[name].recurrence(branch), rng, sizes, drawn)


def sample(recurrence: Recurrence, rng: np.random.Generator, sizes: Mapping[str, int], drawn: Mapping[str, Array] | None = None) -> Sample:
    """Inputs normal, booleans for constants, unless they are given; cotangents normal."""
    inputs: dict[str, Array] = {}
    for name, names in recurrence.inputs.items():
        value = rng.normal(size=[sizes[axis] for axis in names])
        inputs[name] = value > 0 if name in recurrence.constants else value
    state = recurrence.inputs[recurrence.state]
    w_y, w_s = (rng.normal(size=[sizes[axis] for axis in names]) for names in (recurrence.output, state))
    return Sample(recurrence, inputs | dict(drawn or {}), w_y, w_s)


DELTA_SIZES = {"B": 2, "T": 5, "H": 4, "G": 2, "V": 2, "K": 3}


def delta_rule(S, q, k, v, a, beta):
    """S~ = sigmoid(a) S; S' = S~ + beta (v - S~ k) k^T; y = S' q. Gate a[H], or a[H, K]; key heads shared by groups of value heads."""
    q, k = (np.repeat(array, v.shape[-2] // array.shape[-2], axis=-2)[..., None, :] for array in (q, k))
    gate = sigmoid(a)
    S = S * (gate[..., None, None] if a.ndim == beta.ndim else gate[..., None, :])
    S = S + (beta[..., None] * (v - (S * k).sum(-1)))[..., None] * k
    return S, (S * q,)


def delta(*, vector: bool = False, **changes: object) -> Recurrence:
    declared: dict[str, object] = {
        "step": delta_rule,
        "inputs": {
            "q": axes("B T G K"),
            "k": axes("B T G K"),
            "v": axes("B T H V"),
            "a": axes("B T H K" if vector else "B T H"),
            "beta": axes("B T H"),
            "S": axes("B H V K"),
        },
        "state": "S",
        "terms": (axes("B H V K"),),
        "output": axes("B T H V"),
        "linear": frozenset({"q", "v", "beta", "S"}),
        "groups": {"G": "H"},
        "coupled": frozenset({"K"}),
        "separate": {"q": frozenset({"K"})},
    }
    return Recurrence(**(declared | changes))  # type: ignore[arg-type]


def _squash(s, x, a):
    s = tanh(a * s + x)
    return s, (s,)


SQUASH = Recurrence(
    step=_squash,
    inputs={"x": axes("B T D"), "a": axes("D"), "s": axes("B D")},
    state="s",
    terms=(axes("B D"),),
    output=axes("B T D"),
    linear=frozenset(),
)
"""s' = tanh(a s + x): the state enters nonlinearly."""


def _skip(S, x, k, q, D):
    S = 0.75 * S + x[..., None] * k[..., None, :]
    return S, (S * q[..., None, :], D * x)


SKIP = Recurrence(
    step=_skip,
    inputs={"S": axes("B P N"), "x": axes("B T P"), "k": axes("B T N"), "q": axes("B T N"), "D": axes("P")},
    state="S",
    terms=(axes("B P N"), axes("B P")),
    output=axes("B T P"),
    linear=frozenset({"S", "x", "k", "q", "D"}),
)
"""y = S' q + D x: two terms, of which one lacks the axis that the other is summed over."""


def _masked(h, x, a, bias, mask):
    mask = mask[..., None]
    h = where(mask, exp(-softplus(a)) * h + x + bias, h)
    return h, (where(mask, h, 0 * h),)


MASKED = Recurrence(
    step=_masked,
    inputs={"x": axes("B T D"), "a": axes("D"), "bias": axes("D"), "mask": axes("B T"), "h": axes("B D")},
    state="h",
    terms=(axes("B D"),),
    output=axes("B T D"),
    linear=frozenset({"h", "x", "bias"}),
    constants=frozenset({"mask"}),
)
"""h' = e^-softplus(a) h + x + bias, unless masked: inputs shared by time and sequences, and one without a gradient."""

TOYS: dict[str, tuple[Recurrence, dict[str, int]]] = {
    "delta, scalar gate": (delta(), DELTA_SIZES),
    "delta, vector gate": (delta(vector=True), DELTA_SIZES),
    "tanh of the state": (SQUASH, {"B": 2, "T": 6, "D": 3}),
    "two terms": (SKIP, {"B": 2, "T": 5, "P": 2, "N": 3}),
    "static and masked": (MASKED, {"B": 2, "T": 6, "D": 3}),
}


def toy(name: str, seed: int) -> Sample:
    recurrence, sizes = TOYS[name]
    return sample(recurrence, np.random.default_rng(seed), sizes)


def scan_backward(call: Sample) -> dict[str, Array]:
    """The gradients of the scan by its reverse recurrence, in long double: no difference is taken and nothing of ours is used."""
    s, x, dt, A, B, C = (np.asarray(call.inputs[name], np.longdouble) for name in ("s", "x", "dt", "A", "B", "C"))
    heads, groups = x.shape[2], B.shape[2]
    linear = dt > 20
    e = np.exp(np.where(linear, 0, dt))
    q, slope = np.where(linear, dt, np.log1p(e)), np.where(linear, 1, e / (1 + e))
    fine_B, fine_C = (np.repeat(array, heads // groups, 2) for array in (B, C))
    rate = A[:, None] if A.ndim == 1 else A
    gate = np.exp(q[..., None] * rate)  # B T H N
    states = [s]
    for t in range(dt.shape[1]):
        states.append(gate[:, t, :, None] * states[-1] + (q[:, t, :, None] * x[:, t])[..., None] * fine_B[:, t, :, None])
    G = np.asarray(call.w_s, np.longdouble)
    dx, ddt, dA = np.zeros_like(x), np.zeros_like(dt), np.zeros((heads, B.shape[-1]), np.longdouble)
    d_fine_B, d_fine_C = np.zeros_like(fine_B), np.zeros_like(fine_C)
    for t in reversed(range(dt.shape[1])):
        dy = np.asarray(call.w_y[:, t], np.longdouble)
        G = G + dy[..., None] * fine_C[:, t, :, None]
        d_fine_C[:, t] = (dy[..., None] * states[t + 1]).sum(2)
        d_fine_B[:, t] = (G * (q[:, t, :, None] * x[:, t])[..., None]).sum(2)
        u = (G * fine_B[:, t, :, None]).sum(-1)
        dx[:, t] = u * q[:, t, :, None]
        M = (G * states[t] * gate[:, t, :, None]).sum(2)  # B H N
        dA += (M * q[:, t, :, None]).sum(0)
        ddt[:, t] = slope[:, t] * ((u * x[:, t]).sum(-1) + (M * rate).sum(-1))
        G = G * gate[:, t, :, None]
    fold = (*B.shape[:3], heads // groups, B.shape[3])
    dB, dC = (array.reshape(fold).sum(3) for array in (d_fine_B, d_fine_C))
    return {"s": G, "x": dx, "dt": ddt, "A": dA.sum(1) if A.ndim == 1 else dA, "B": dB, "C": dC}
