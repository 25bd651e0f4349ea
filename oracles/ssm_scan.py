"""The selective scan of Mamba, with ggml's semantics in row-major order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gradcheck import F64, Kernel, Shapes, op
from gradcheck.math import exp, softplus


def _draw(rng: np.random.Generator, shapes: Shapes, dt: tuple[float, float], decay: tuple[float, float]) -> dict[str, F64]:
    """Everything uniform in [-1, 1] but dt and A, which set the regime: A is drawn from `decay`."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return inputs | {"dt": rng.uniform(*dt, shapes["dt"]), "A": rng.uniform(*decay, shapes["A"])}


def typical(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 0.3 to 0.9: every path carries weight."""
    return _draw(rng, shapes, (-1, 1), (-1, -0.3))


def long_memory(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates within 1e-3 of 1: the state of the first step still counts at the last, so that errors of a step add up."""
    return _draw(rng, shapes, (-5, -3), (-0.05, -0.01))


def gate_one(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A exactly 0, gates exactly 1: a kernel that divides by log a, or special-cases it, shows."""
    return _draw(rng, shapes, (-1, 1), (-0.0, 0.0))


def gate_half(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates near 0.5, where the derivative through the gate is largest."""
    return _draw(rng, shapes, (0.5, 0.6), (-0.75, -0.65))


def strong_decay(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 1e-3 to 1e-5: what flows through the gate is small beside what flows around it."""
    return _draw(rng, shapes, (0.5, 1.5), (-7, -6))


def gate_zero(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates that underflow to exactly 0 in every precision: 0/0, 0·inf and a division by the gate show."""
    return _draw(rng, shapes, (10, 12), (-120, -100))


def growth(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A above 0, gates up to 1.07: states and costates grow, so that a wrong order of the two shows."""
    return _draw(rng, shapes, (-1, 1), (0.01, 0.05))


def softplus_branches(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """dt near -5, 0, 25 and 100: the exponential, curved and linear part of softplus, and where e^dt overflows; never near its jump at 20."""
    inputs = _draw(rng, shapes, (-0.5, 0.5), (-0.06, -0.02))
    inputs["dt"] += rng.choice([-5.0, 0.0, 25.0, 100.0], shapes["dt"])
    return inputs


def dt_sweep(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """dt from -12 to 19: every stretch of softplus that models train in, so that no slope is wrong unseen. Mamba starts at -7 to -2."""
    return _draw(rng, shapes, (-12, 19), (-0.1, -0.03))


def unequal_heads(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Heads that differ by powers of ten: a head that is small in the norm of the whole must be right by itself."""
    inputs = _draw(rng, shapes, (-1, 1), (-1, -0.3))
    heads = shapes["x"][2]
    scale = 10.0 ** -np.linspace(0, 4, heads)
    inputs["x"] *= scale[:, None]
    inputs["s"] *= scale[:, None, None]
    return inputs


def sparse(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Half of x, B and C exactly 0 and a zero initial state in the first sequence: gradients that are exactly zero must stay so."""
    inputs = _draw(rng, shapes, (-1, 1), (-1, -0.3))
    for name in ("x", "B", "C"):
        inputs[name] *= rng.integers(0, 2, shapes[name])
    inputs["s"][0] = 0
    return inputs


def _lanes(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Mapping[str, tuple[F64, F64, F64]]:
    """The scan compiled by numba, which is imported only here."""
    from ._ssm_scan_lanes import answers

    return answers(inputs, w_y, w_s)


@op(
    source="ggml_ssm_scan (ggml/src/ggml-cpu/ops.cpp); Gu & Dao 2023, Mamba, algorithm 2; Dao & Gu 2024, Mamba-2, eq. (1)",
    inputs={"s": "B H P N", "x": "B T H P", "dt": "B T H", "A": "H", "B": "B T G N", "C": "B T G N"},
    variants={"mamba1": {"A": "H N"}, "mamba2": {"A": "H"}},
    outputs={"y": "B T H P", "s_T": "B H P N"},
    state="s",
    terms="B H P N",
    linear="s x B C",
    groups={"G": "H"},
    dims={"B": (1, 2, 3), "T": (1, 5, 63, 64, 65, 131), "H": (2, 3, 6), "G": (1, 2, 3), "P": (1, 5, 33), "N": (3, 16, 37, 65)},
    production={"mamba1": "B1,T256,H1536,G1,P1,N16", "mamba2": "B1,T32,H24,G1,P64,N128"},  # of 130 M parameters, cut in T
    fast=_lanes,
    regimes={
        "typical": typical,
        "long-memory": long_memory,
        "gate-one": gate_one,
        "gate-half": gate_half,
        "strong-decay": strong_decay,
        "gate-zero": gate_zero,
        "growth": growth,
        "softplus-branches": softplus_branches,
        "dt-sweep": dt_sweep,
        "unequal-heads": unequal_heads,
        "sparse": sparse,
    },
    kernels=[
        Kernel(
            name="mlx",
            target="gradcheck.kernels.ssm_scan.mlx:ssm_scan",
            sources=("mlx.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="mlx-checkpoint",
            target="gradcheck.kernels.ssm_scan.checkpoint:ssm_scan",
            sources=("checkpoint.py", "mlx.py"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="mlx-autodiff",
            target="gradcheck.kernels.ssm_scan.autodiff:ssm_scan",
            sources=("autodiff.py", "mlx.py"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="metal",
            target="gradcheck.kernels.ssm_scan.metal:ssm_scan",
            sources=("metal.py", "common.metal", "forward.metal", "backward.metal", "sum.metal"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"every": (3, 16, 1000)},
        ),
        Kernel(
            name="metal-checkpoint",
            target="gradcheck.kernels.ssm_scan.metal:ssm_scan_checkpoint",
            sources=("metal.py", "common.metal", "forward.metal", "backward.metal", "sum.metal"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"every": (1, 3, 16)},
        ),
        Kernel(
            name="ggml",
            target="gradcheck.kernels.ssm_scan.ggml:ssm_scan",
            carry="f32",
            requires="libggml",
            install="gradcheck[ggml]",
            forward_only=True,
        ),
    ],
)
def ssm_scan(s: F64, x: F64, dt: F64, A: F64, B: F64, C: F64) -> tuple[F64, tuple[F64, ...]]:
    """One step of the selective scan, for head h, channel p, state n and group g = h // (H / G).

        q   = softplus(dt)                         (dt itself above 20)
        s_t = exp(q A) s_{t-1} + q x B_g           s[B,H,P,N]
        y_t = sum_n s_t C_g                        y[B,T,H,P]

    A is one number per head (Mamba-2, A[H]) or per head and state (Mamba-1, A[H,N]).
    """
    q = softplus(dt)[..., None]
    decay = exp(q * (A[..., None] if A.ndim == dt.ndim else A))
    heads_per_group = x.shape[-2] // B.shape[-2]
    B, C = (np.repeat(a, heads_per_group, axis=-2)[..., None, :] for a in (B, C))
    s = decay[..., None, :] * s + (q * x)[..., None] * B
    return s, (s * C,)
