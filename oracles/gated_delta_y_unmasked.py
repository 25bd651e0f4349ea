"""The gated delta rule as mlx-lm's ops path has it under a mask: a step that is left out keeps the state, and still gives its y."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gradcheck import F64, Kernel, op
from gradcheck.math import where

from ._gated_delta import REGIMES


@op(
    source="mlx-lm, mlx_lm/models/gated_delta.py, gated_delta_ops and _gated_delta_step_ops",
    inputs={
        "q": "B T Hk Dk",
        "k": "B T Hk Dk",
        "v": "B T Hv Dv",
        "g": "B T Hv",
        "beta": "B T Hv",
        "state": "B Hv Dv Dk",
        "mask": "B T",
    },
    variants={"scalar": {}, "vector": {"g": "B T Hv Dk"}},
    outputs={"y": "B T Hv Dv", "state_T": "B Hv Dv Dk"},
    state="state",
    terms="B Hv Dv Dk",
    linear="q v g beta state",
    constants="mask",
    groups={"Hk": "Hv"},
    coupled="Dk",
    separate={"q": "Dk"},
    dims={"B": (1, 2, 3), "T": (1, 5, 33, 65), "Hk": (1, 2, 3), "Hv": (2, 3, 6), "Dk": (3, 16, 33), "Dv": (1, 5)},
    regimes=REGIMES,
    kernels=[
        Kernel(
            name="checkpointed",
            target="gradcheck.kernels.gated_delta.checkpointed:gated_delta_y_unmasked",
            sources=("checkpointed.py",),
            dtypes=("f32", "f16", "bf16"),
            carry="f32",
            requires="mlx",
            chunks={"chunk": (1, 8, 64)},
        ),
    ],
)
def gated_delta_y_unmasked(
    state: F64, q: F64, k: F64, v: F64, g: F64, beta: F64, mask: npt.NDArray[np.bool_]
) -> tuple[F64, tuple[F64, ...]]:
    """One step of `gated_delta`, of whose state alone the mask decides.

        S~ = S g
        d  = beta (v - S~ k)
        S' = S~ + d k^T
        y  = S' q                                  of every step, also of one that is left out
        S  = S' where `mask` is true, else S       state[B,Hv,Dv,Dk]

    The cotangent of y at a step that is left out reaches its q, k, v, g and beta, and the state before it.
    """
    heads_per_key = v.shape[-2] // k.shape[-2]
    q, k = (np.repeat(a, heads_per_key, axis=-2)[..., None, :] for a in (q, k))
    decayed = state * (g[..., None, None] if g.ndim == beta.ndim else g[..., None, :])
    delta = beta[..., None] * (v - (decayed * k).sum(-1))
    new = decayed + delta[..., None] * k
    return where(mask[..., None, None, None], new, state), (new * q,)
