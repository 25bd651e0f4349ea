"""The gated delta rule as models call it: with the trained parameters of its gate and of beta (Qwen3-Next, Kimi-Linear, OLMo-Hybrid)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gradcheck import F64, Kernel, Shapes, op
from gradcheck.math import exp, log, sigmoid, softplus, where

from ._gated_delta import KEPT, as_mask

Range = tuple[float, float]

LINEAR_ABOVE = 40.0
"""mlx-lm's softplus has no linear branch. Above this the identity and log(1 + e^z) are one in float64, and e^z overflows in no precision."""

LOWER_BOUND = -5.0
"""Of log g, in the branches that have one: what Ling's and Kimi's models set."""


def _draw(
    rng: np.random.Generator, shapes: Shapes, gate: Range = (0.3, 0.95), beta: Range = (0.1, 0.9), A_log: Range = (-1.2, 0)
) -> dict[str, F64]:
    """q, v and state uniform in [-1, 1], keys of length 1, dt_bias in [-0.5, 0.5]; a and b such that gate and beta are as asked for."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    inputs["k"] /= np.sqrt((inputs["k"] ** 2).sum(-1, keepdims=True))
    inputs["dt_bias"] /= 2
    if "mask" in shapes:
        inputs["mask"] = as_mask(rng.random(shapes["mask"]) < KEPT)
    if "lower_bound" in shapes:
        inputs["lower_bound"] = np.array(LOWER_BOUND, np.float32)  # float32, so that it widens no precision
    if "allow_neg_eigval" in shapes:
        inputs["allow_neg_eigval"] = as_mask(np.array(True))
    share = rng.uniform(*beta, shapes["b"])
    inputs["b"] = log(share / (1 - share))
    inputs["A_log"] = rng.uniform(*A_log, shapes["A_log"])
    return _gated(inputs, rng.uniform(*gate, shapes["a"]))


def _gated(inputs: dict[str, F64], gate: F64) -> dict[str, F64]:
    """The inputs, with a such that g is `gate`, or as near as the lower bound lets it be."""
    if "lower_bound" in inputs:
        # The gate is a sigmoid of e^A_log z: of a steep one, or far out on it, no difference says the slope.
        inputs["A_log"] = np.minimum(inputs["A_log"], 0)
    rate = exp(inputs["A_log"])[(..., *(None,) * (inputs["dt_bias"].ndim - 1))]
    if "lower_bound" in inputs:
        share = np.clip(log(gate) / inputs["lower_bound"], 1e-3, 1 - 1e-3)
        z = log(share / (1 - share)) / rate
    else:
        step = -log(gate) / rate
        z = step + log(-np.expm1(-step))
    return inputs | {"a": z - inputs["dt_bias"]}


def typical(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 0.3 to 0.95, beta from 0.1 to 0.9: every path carries weight."""
    return _draw(rng, shapes)


def long_memory(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates within 1e-2 of 1 and small beta: the state of the first step still counts at the last, so that errors of a step add up."""
    return _draw(rng, shapes, (0.99, 0.9999), (0.01, 0.1))


def gate_small(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 1e-6 to 1e-3, or at their lower bound: what is divided by a gate, or forgets to be multiplied by it, is far off."""
    inputs = _draw(rng, shapes)
    return _gated(inputs, 10 ** rng.uniform(-6, -3, shapes["a"]))


def gate_zero(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A_log of 5 and, at a third of the steps, a of 15, where the gate underflows to exactly 0: 0/0, 0·inf and a division by it show."""
    inputs = _draw(rng, shapes, A_log=(4.6, 5.2))
    inputs["a"] = np.where(rng.random(shapes["a"]) < 1 / 3, rng.uniform(14.6, 15.4, shapes["a"]), inputs["a"])
    return inputs


def gate_closed(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A_log of 5, a of 15, b of 8: every gate exactly 0, or near its bound, and 1 - beta by subtraction has lost three digits."""
    inputs = _draw(rng, shapes, A_log=(4.6, 5.2))
    return inputs | {"a": rng.uniform(14.6, 15.4, shapes["a"]), "b": rng.uniform(7.5, 8.5, shapes["b"])}


def beta_saturated(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """b near ±20, where 1 - beta is lost in float32 and its slope of 2e-9 must not be, and ±800, where beta is exactly 0 or 1, and db 0."""
    inputs = _draw(rng, shapes)
    far = rng.choice([-1, 1], shapes["b"]) * rng.choice([20, 800], shapes["b"]) + rng.uniform(-1, 1, shapes["b"])
    return inputs | {"b": np.where(rng.random(shapes["b"]) < 2 / 3, far, inputs["b"])}


def softplus_sweep(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """a from -12 to 25 and slow rates: every stretch of softplus, of which no slope may be wrong unseen; models start at -7 to -2."""
    inputs = _draw(rng, shapes, A_log=(-5, -3.5))
    return inputs | {"a": rng.uniform(-12, 25, shapes["a"])}


def large_bias(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """dt_bias of 4 against a of about -4: what forgets the bias, or adds it in the wrong place, is far off."""
    inputs = _draw(rng, shapes)
    return inputs | {"dt_bias": inputs["dt_bias"] + 4, "a": inputs["a"] - 4}


def unequal_heads(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Value heads that differ by powers of ten: a head that is small in the norm of the whole must be right by itself."""
    inputs = _draw(rng, shapes)
    scale = 10.0 ** -np.linspace(0, 4, shapes["v"][2])
    inputs["v"] *= scale[:, None]
    inputs["state"] *= scale[:, None, None]
    return inputs


def repeated_keys(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """The same key at every step but for a tenth: chunks whose triangular system is as far from the identity as it gets."""
    inputs = _draw(rng, shapes, (0.9, 0.999))
    inputs["k"] = inputs["k"][:, :1] + inputs["k"] / 10
    inputs["k"] /= np.sqrt((inputs["k"] ** 2).sum(-1, keepdims=True))
    return inputs


def masked_sequence(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """The first sequence masked throughout, the others at the end only, as padding is: gradients there must be exactly 0."""
    inputs = _draw(rng, shapes)
    if "mask" in shapes:
        mask = np.ones(shapes["mask"], np.bool_)
        mask[:, 2 * shapes["mask"][1] // 3 :] = False
        mask[0] = False
        inputs["mask"] = as_mask(mask)
    return inputs


def sparse(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Half of q, v and A_log exactly 0, a step of zero keys, and a zero initial state in the first sequence: exact zeros must stay so."""
    inputs = _draw(rng, shapes)
    for name in ("q", "v", "A_log"):
        inputs[name] *= rng.integers(0, 2, shapes[name])
    inputs["k"][:, 0] = 0
    inputs["state"][0] = 0
    return inputs


def _lanes(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Mapping[str, tuple[F64, F64, F64]]:
    """The rows of the state compiled by numba, which is imported only here."""
    from ._gated_delta_lanes import answers_of_update

    return answers_of_update(inputs, w_y, w_s)


@op(
    source="mlx-lm, mlx_lm/models/gated_delta.py (gated_delta_update, compute_g, compute_lower_bound_g); kimi_linear.py, olmo_hybrid.py",
    inputs={
        "q": "B T Hk Dk",
        "k": "B T Hk Dk",
        "v": "B T Hv Dv",
        "a": "B T Hv",
        "b": "B T Hv",
        "A_log": "Hv",
        "dt_bias": "Hv",
        "state": "B Hv Dv Dk",
        "mask": "B T",
        "lower_bound": "",
        "allow_neg_eigval": "",
    },
    variants={
        "scalar": {"mask": None, "lower_bound": None, "allow_neg_eigval": None},
        "vector": {"a": "B T Hv Dk", "dt_bias": "Hv Dk", "mask": None, "lower_bound": None, "allow_neg_eigval": None},
        "scalar-masked": {"lower_bound": None, "allow_neg_eigval": None},
        "vector-masked": {"a": "B T Hv Dk", "dt_bias": "Hv Dk", "lower_bound": None, "allow_neg_eigval": None},
        # Kernels take their inputs by place, so a branch with a later one has those before it: both have a mask, the last a bound too.
        "lower-bound": {"a": "B T Hv Dk", "dt_bias": "Hv Dk", "allow_neg_eigval": None},
        "neg-eigval": {},
    },
    outputs={"y": "B T Hv Dv", "state_T": "B Hv Dv Dk"},
    state="state",
    terms="B Hv Dv Dk",
    linear="q v state",
    constants="mask lower_bound allow_neg_eigval",
    groups={"Hk": "Hv"},
    coupled="Dk",
    separate={"q": "Dk"},
    dims={"B": (1, 2), "T": (1, 5, 33, 65), "Hk": (1, 2), "Hv": (2, 6), "Dk": (5, 16, 33), "Dv": (1, 3)},
    production=dict.fromkeys(("scalar", "vector", "scalar-masked", "vector-masked"), "B1,T16,Hk1,Hv2,Dk128,Dv16"),
    fast=_lanes,
    regimes={
        "typical": typical,
        "long-memory": long_memory,
        "gate-small": gate_small,
        "gate-zero": gate_zero,
        "gate-closed": gate_closed,
        "beta-saturated": beta_saturated,
        "softplus-sweep": softplus_sweep,
        "large-bias": large_bias,
        "unequal-heads": unequal_heads,
        "repeated-keys": repeated_keys,
        "masked-sequence": masked_sequence,
        "sparse": sparse,
    },
    kernels=[
        Kernel(
            name="autodiff",
            target="gradcheck.kernels.gated_delta.update:autodiff",
            sources=("update.py", "gate.py", "autodiff.py"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="checkpointed",
            target="gradcheck.kernels.gated_delta.update:checkpointed",
            sources=("update.py", "gate.py", "checkpointed.py"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (1, 8, 64)},
        ),
        Kernel(
            name="chunkwise",
            target="gradcheck.kernels.gated_delta.update:chunkwise",
            sources=("update.py", "gate.py", "chunkwise.py"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (16, 32, 64)},
        ),
        Kernel(
            name="metal",
            target="gradcheck.kernels.gated_delta.update:metal",
            sources=("update.py", "gate.py", "metal.py", "common.metal", "forward.metal", "backward.metal", "sum.metal"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (1, 5, 1000)},
        ),
    ],
)
def gated_delta_update(  # noqa: PLR0913, PLR0917 - the inputs of the op
    state: F64,
    q: F64,
    k: F64,
    v: F64,
    a: F64,
    b: F64,
    A_log: F64,
    dt_bias: F64,
    mask: npt.NDArray[np.bool_] | None = None,
    lower_bound: npt.NDArray[np.float32] | None = None,
    allow_neg_eigval: npt.NDArray[np.bool_] | None = None,
) -> tuple[F64, tuple[F64, ...]]:
    """One step of the gated delta rule in a model, for value head h and key head h // (Hv / Hk).

        z    = a + dt_bias
        g    = exp(-exp(A_log) softplus(z))                      one number per head (scalar), or per head and key channel (vector)
             = exp(lower_bound sigmoid(exp(A_log) z))            in the branches that have a `lower_bound`
        beta = sigmoid(b), or 2 sigmoid(b) with `allow_neg_eigval`
        S~   = S g
        S    = S~ + beta (v - S~ k) k^T                          state[B,Hv,Dv,Dk]
        y    = S q                                               y[B,T,Hv,Dv]

    There is no scale. A step that `mask` leaves out keeps the state, and its y is 0. Of a vector gate a is [B,T,Hv,Dk], dt_bias [Hv,Dk]
    and A_log [Hv], which Kimi-Linear passes as [Hv,1].
    """
    z, vector = a + dt_bias, a.ndim > b.ndim
    rate = exp(A_log[..., None] if vector else A_log)
    if lower_bound is None:
        g = exp(-rate * softplus(z, LINEAR_ABOVE))
    else:
        g = exp((lower_bound[..., None, None] if vector else lower_bound[..., None]) * sigmoid(rate * z))
    beta = sigmoid(b)
    if allow_neg_eigval is not None:
        beta = where(allow_neg_eigval[..., None], 2 * beta, beta)
    heads_per_key = v.shape[-2] // k.shape[-2]
    q, k = (np.repeat(x, heads_per_key, axis=-2)[..., None, :] for x in (q, k))
    decayed = state * (g[..., None, :] if vector else g[..., None, None])
    new = decayed + (beta[..., None] * (v - (decayed * k).sum(-1)))[..., None] * k
    if mask is None:
        return new, (new * q,)
    kept = mask[..., None, None, None]
    return where(kept, new, state), (where(kept, new * q, 0 * new),)
