"""The gated delta rule (Gated DeltaNet, Qwen3-Next; Kimi Delta Attention with a gate per key channel), with mlx-lm's semantics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gradcheck import F64, Kernel, op
from gradcheck.math import where

from ._gated_delta import REGIMES


def _lanes(inputs: Mapping[str, F64], w_y: F64, w_s: F64) -> Mapping[str, tuple[F64, F64, F64]]:
    """The rows of the state compiled by numba, which is imported only here."""
    from ._gated_delta_lanes import answers

    return answers(inputs, w_y, w_s)


@op(
    source="mlx-lm, mlx_lm/models/gated_delta.py (its kernels); Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, eq. (10)",
    inputs={
        "q": "B T Hk Dk",
        "k": "B T Hk Dk",
        "v": "B T Hv Dv",
        "g": "B T Hv",
        "beta": "B T Hv",
        "state": "B Hv Dv Dk",
        "mask": "B T",
    },
    variants={
        "scalar": {"mask": None},
        "vector": {"g": "B T Hv Dk", "mask": None},
        "scalar-masked": {},
        "vector-masked": {"g": "B T Hv Dk"},
    },
    outputs={"y": "B T Hv Dv", "state_T": "B Hv Dv Dk"},
    state="state",
    terms="B Hv Dv Dk",
    linear="q v g beta state",
    constants="mask",
    groups={"Hk": "Hv"},
    coupled="Dk",
    separate={"q": "Dk"},
    dims={"B": (1, 2, 3), "T": (1, 5, 63, 64, 65, 131), "Hk": (1, 2, 3), "Hv": (2, 3, 6), "Dk": (3, 16, 33, 64), "Dv": (1, 5, 34)},
    production=dict.fromkeys(("scalar", "vector", "scalar-masked", "vector-masked"), "B1,T32,Hk1,Hv2,Dk128,Dv16"),
    fast=_lanes,
    regimes=REGIMES,
    kernels=[
        Kernel(
            name="autodiff",
            target="gradcheck.kernels.gated_delta.autodiff:gated_delta",
            sources=("autodiff.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="checkpointed",
            target="gradcheck.kernels.gated_delta.checkpointed:gated_delta",
            sources=("checkpointed.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (1, 16, 1000)},
        ),
        Kernel(
            name="mx-fast",
            target="gradcheck.kernels.gated_delta.mx_fast:gated_delta",
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
        ),
        Kernel(
            name="chunkwise",
            target="gradcheck.kernels.gated_delta.chunkwise:gated_delta",
            sources=("chunkwise.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (4, 16, 64)},
        ),
        Kernel(
            name="metal",
            target="gradcheck.kernels.gated_delta.metal:gated_delta",
            sources=("metal.py", "common.metal", "forward.metal", "backward.metal", "sum.metal"),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            variants=("scalar", "vector", "scalar-masked", "vector-masked"),
            requires="mlx",
            chunks={"chunk": (1, 5, 1000)},
        ),
    ],
)
def gated_delta(
    state: F64, q: F64, k: F64, v: F64, g: F64, beta: F64, mask: npt.NDArray[np.bool_] | None = None
) -> tuple[F64, tuple[F64, ...]]:
    """One step of the gated delta rule, for value head h and key head h // (Hv / Hk).

        S~ = S g                                   g one number per head (scalar) or per head and key channel (vector)
        d  = beta (v - S~ k)
        S  = S~ + d k^T                            state[B,Hv,Dv,Dk]
        y  = S q                                   y[B,T,Hv,Dv]

    There is no scale. A step that `mask` leaves out keeps the state, and its y is 0.
    """
    heads_per_key = v.shape[-2] // k.shape[-2]
    q, k = (np.repeat(a, heads_per_key, axis=-2)[..., None, :] for a in (q, k))
    decayed = state * (g[..., None, None] if g.ndim == beta.ndim else g[..., None, :])
    delta = beta[..., None] * (v - (decayed * k).sum(-1))
    new = decayed + delta[..., None] * k
    if mask is None:
        return new, (new * q,)
    kept = mask[..., None, None, None]
    return where(kept, new, state), (where(kept, new * q, 0 * new),)
