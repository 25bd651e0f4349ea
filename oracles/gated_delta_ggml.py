"""The gated delta rule with ggml's semantics in row-major order: heads in tiles, the gate as a logarithm, outputs scaled."""

from __future__ import annotations

from functools import wraps

import numpy as np

from gradcheck import F64, Draw, Kernel, Shapes, op
from gradcheck.math import exp, log

from ._gated_delta import REGIMES, draw

SHUT = -1000.0
"""The logarithm of a gate of 0, which has none: its exponential is exactly 0 in float64 too, and every dtype holds it."""

TILES = {"v": 2, "g": 2, "beta": 2, "state": 1}
"""Where R stands in the inputs that have it; Hk is next."""


def _in_tiles(regime: Draw) -> Draw:
    """A regime of the family, drawn for R · Hk value heads, with the logarithms of its gates."""

    @wraps(regime)
    def drawn(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
        heads = {name: (*shapes[name][:at], shapes[name][at] * shapes[name][at + 1], *shapes[name][at + 2 :]) for name, at in TILES.items()}
        inputs = regime(rng, {**shapes, **heads})
        shut = inputs["g"] == 0
        inputs["g"] = log(inputs["g"] + shut) + SHUT * shut
        return {name: value.reshape(shapes[name]) for name, value in inputs.items()}

    return drawn


def _gate_sweep(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """log g from -20 to -1e-4, even over its decades: the range in which ggml's own test draws it."""
    inputs = draw(rng, shapes)
    return inputs | {"g": exp(-(10 ** rng.uniform(-4, np.log10(20), shapes["g"])))}


@op(
    source="ggml_gated_delta_net (ggml/include/ggml.h, ggml/src/ggml-cpu/ops.cpp), with K = 1",
    inputs={
        "q": "B T Hk Dk",
        "k": "B T Hk Dk",
        "v": "B T R Hk Dv",
        "g": "B T R Hk",
        "beta": "B T R Hk",
        "state": "B R Hk Dv Dk",
    },
    variants={"scalar": {}, "vector": {"g": "B T R Hk Dk"}},
    outputs={"y": "B T R Hk Dv", "state_T": "B R Hk Dv Dk"},
    state="state",
    terms="B R Hk Dv Dk",
    linear="q v beta state",
    coupled="Dk",
    separate={"q": "Dk"},
    dims={"B": (1, 2, 3), "T": (1, 5, 33, 65), "R": (1, 2, 3), "Hk": (1, 2, 3), "Dk": (3, 16, 33), "Dv": (1, 5, 16)},
    production=dict.fromkeys(("scalar", "vector"), "B1,T32,R2,Hk1,Dk128,Dv16"),
    regimes={name: _in_tiles(regime) for name, regime in {**REGIMES, "gate-sweep": _gate_sweep}.items() if name != "masked-sequence"},
    kernels=[
        Kernel(
            name="chunkwise",
            target="gradcheck.kernels.gated_delta.tiled:by_tiles",
            sources=("tiled.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (4, 16, 64)},
        ),
        Kernel(
            name="ggml",
            target="gradcheck.kernels.gated_delta.ggml:gated_delta",
            carry="f32",
            requires="libggml",
            install="gradcheck[ggml]",
            forward_only=True,
        ),
    ],
)
def gated_delta_ggml(state: F64, q: F64, k: F64, v: F64, g: F64, beta: F64) -> tuple[F64, tuple[F64, ...]]:
    """One step of ggml's gated delta rule, for the value head r Hk + h of the key head h.

        S~ = S e^g                                 g one number per head (scalar) or per head and key channel (vector)
        d  = beta (v - S~ k)
        S  = S~ + d k^T                            state[B,R,Hk,Dv,Dk]
        y  = S q / sqrt(Dv)                        y[B,T,R,Hk,Dv]

    A value head hv reads the key head hv mod Hk, so that in row-major order the Hv = R Hk value heads are R tiles of Hk. ggml has
    Dk = Dv only; where they differ, the scale is that of its text, of Dv.
    """
    q, k = (a[..., None, :, None, :] for a in (q, k))
    gate = exp(g)
    decayed = state * (gate[..., None, None] if g.ndim == beta.ndim else gate[..., None, :])
    delta = beta[..., None] * (v - (decayed * k).sum(-1))
    new = decayed + delta[..., None] * k
    return new, (new * q * v.shape[-1] ** -0.5,)
