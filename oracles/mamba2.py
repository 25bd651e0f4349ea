"""Mamba-2 as models use it: the selective scan with its trained parameters A_log, dt_bias and D, and bounds on the step size."""

from __future__ import annotations

import numpy as np

from gradcheck import F64, Kernel, Shapes, op
from gradcheck.math import exp, real, softplus, where

LOW, HIGH = 0.001, 100.0
"""Bounds of the step size: `time_step_limit` where an mlx-lm model does not set its own.

softplus(z) meets them at z = -6.9 and z = 100. There, and at z = 20 where softplus changes branch, the function has no derivative:
every regime keeps z at least half a unit away.
"""

Range = tuple[float, float]


def _draw(rng: np.random.Generator, shapes: Shapes, dt: Range, A_log: Range) -> dict[str, F64]:
    """Everything uniform in [-1, 1] but dt and A_log, which set the regime; dt_bias in [-0.5, 0.5]."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    inputs["dt_bias"] /= 2
    return inputs | {"dt": rng.uniform(*dt, shapes["dt"]), "A_log": rng.uniform(*A_log, shapes["A_log"])}


def typical(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 0.2 to 0.9, step sizes within their bounds: every path carries weight."""
    return _draw(rng, shapes, (-1, 1), (-1.2, 0))


def long_memory(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates within 3e-3 of 1: the state of the first step still counts at the last, so that errors of a step add up."""
    return _draw(rng, shapes, (-5, -3), (-4.6, -3))


def gate_zero(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates that underflow to exactly 0 in every precision: 0/0, 0·inf and a division by the gate show."""
    return _draw(rng, shapes, (10, 12), (4.6, 4.8))


def below_the_limit(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """softplus below the lower bound everywhere: the step size is the bound, and dt and dt_bias have no gradient."""
    return _draw(rng, shapes, (-11, -9), (4, 5.5))


def near_the_lower_limit(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Step sizes from 2e-4 to 9e-3 on either side of the lower bound: what a clipped one passes on is as large as what the others do."""
    inputs = _draw(rng, shapes, (-0.25, 0.25), (3, 4.6))
    inputs["dt"] += rng.choice([-8.2, -5.6], shapes["dt"])
    return inputs


def above_the_limit(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """softplus above the upper bound everywhere: the step size is the bound, and dt and dt_bias have no gradient."""
    return _draw(rng, shapes, (105, 120), (-7, -5))


def both_limits(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """dt near -10, 0, 25 and 110: some step sizes at either bound, some between them on both branches of softplus."""
    inputs = _draw(rng, shapes, (-0.5, 0.5), (-7, -5))
    inputs["dt"] += rng.choice([-10.0, 0.0, 25.0, 110.0], shapes["dt"])
    return inputs


def large_bias(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """dt_bias of 4 against dt of -4: what forgets the bias, or adds it in the wrong place, is far off."""
    inputs = _draw(rng, shapes, (-4.5, -3.5), (-1.2, 0))
    inputs["dt_bias"] += 4
    return inputs


def unequal_heads(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Heads that differ by powers of ten: a head that is small in the norm of the whole must be right by itself."""
    inputs = _draw(rng, shapes, (-1, 1), (-1.2, 0))
    scale = 10.0 ** -np.linspace(0, 4, shapes["D"][0])
    inputs["x"] *= scale[:, None]
    inputs["state"] *= scale[:, None, None]
    return inputs


def sparse(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Half of x, B, C and D exactly 0 and a zero initial state in the first sequence: gradients that are exactly zero must stay so."""
    inputs = _draw(rng, shapes, (-1, 1), (-1.2, 0))
    for name in ("x", "B", "C", "D"):
        inputs[name] *= rng.integers(0, 2, shapes[name])
    inputs["state"][0] = 0
    return inputs


@op(
    source="mlx-lm, mlx_lm/models/ssm.py (ssm_update, compute_dt); Dao & Gu 2024, Mamba-2, eq. (1)",
    inputs={
        "x": "B T H P",
        "dt": "B T H",
        "A_log": "H",
        "B": "B T G N",
        "C": "B T G N",
        "D": "H",
        "dt_bias": "H",
        "state": "B H P N",
    },
    outputs={"y": "B T H P", "state_T": "B H P N"},
    state="state",
    terms=("B H P N", "B H P"),
    linear="x B C D state",
    groups={"G": "H"},
    dims={"B": (1, 2, 3), "T": (1, 5, 63, 65, 131), "H": (2, 3, 6), "G": (1, 2, 3), "P": (1, 5, 33), "N": (3, 16, 37)},
    regimes={
        "typical": typical,
        "long-memory": long_memory,
        "gate-zero": gate_zero,
        "below-the-limit": below_the_limit,
        "near-the-lower-limit": near_the_lower_limit,
        "above-the-limit": above_the_limit,
        "both-limits": both_limits,
        "large-bias": large_bias,
        "unequal-heads": unequal_heads,
        "sparse": sparse,
    },
    kernels=[
        Kernel(
            name="mlx",
            target="gradcheck.kernels.mamba2.mlx:mamba2",
            sources=("mlx.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
    ],
)
def mamba2(state: F64, x: F64, dt: F64, A_log: F64, B: F64, C: F64, D: F64, dt_bias: F64) -> tuple[F64, tuple[F64, F64]]:
    """One step of Mamba-2 in a model, for head h, channel p, state n and group g = h // (H / G).

    A = -exp(A_log)
    q = clip(softplus(dt + dt_bias), 0.001, 100)
    S = exp(q A) S + q x B_g                     state[B,H,P,N]
    y = sum_n S C_g + D x                        y[B,T,H,P]
    """
    q = _clip(softplus(dt + dt_bias))
    decay = exp(q * -exp(A_log))
    heads_per_group = x.shape[-2] // B.shape[-2]
    B, C = (np.repeat(a, heads_per_group, axis=-2)[..., None, :] for a in (B, C))
    state = decay[..., None, None] * state + (q[..., None] * x)[..., None] * B
    return state, (state * C, D[..., None] * x)


def _clip(q: F64) -> F64:
    """q between LOW and HIGH. `0 * q` keeps the kind of number."""
    return where(real(q) < LOW, LOW + 0 * q, where(real(q) > HIGH, HIGH + 0 * q, q))
