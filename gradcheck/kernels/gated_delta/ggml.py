"""ggml's own forward of GATED_DELTA_NET, which has no backward.

Its q,k[S,Hk,T,B], v[S,Hv,T,B], g[1 or S,Hv,T,B], beta[1,Hv,T,B] and state[S,S,Hv,B] are row-major arrays of the op with the
tiles and the key heads as one axis: value head hv reads key head hv mod Hk. ggml has as many key channels as value channels; where this op
has fewer of the one kind they are filled up with zeros, which change nothing but the scale 1/√S, and q is scaled for that.
"""

from __future__ import annotations

import numpy as np

from gradcheck.kernels.ggml import F32, recur


class GgmlGatedDelta:
    """The kernel: a forward, and no `vjp`. NumPy arrays in float32."""

    arrays = "numpy"

    def forward(self, q: F32, k: F32, v: F32, g: F32, beta: F32, state: F32) -> tuple[F32, F32]:
        """y and the final state of the gated delta rule.

        Args:
            q: [B, T, Hk, Dk].
            k: [B, T, Hk, Dk].
            v: [B, T, R, Hk, Dv].
            g: logarithm of the decay, [B, T, R, Hk] or [B, T, R, Hk, Dk].
            beta: [B, T, R, Hk].
            state: initial state, [B, R, Hk, Dv, Dk].

        Raises:
            RuntimeError: the wheel's libraries cannot be used, or ggml reports that it failed. Shapes that ggml's own assertions
                refuse end the process.
        """
        batch, length, tiles, heads, Dv = v.shape
        Dk, channels = q.shape[-1], max(q.shape[-1], Dv)
        head = (batch, length, tiles * heads)
        gate = g.reshape(*head, 1) if g.ndim == beta.ndim else _filled(g.reshape(*head, Dk), channels)
        y, last = recur(
            "ggml_gated_delta_net",
            (
                _filled(q, channels) * np.float32(channels / Dv) ** np.float32(0.5),
                _filled(k, channels),
                _filled(v.reshape(*head, Dv), channels),
                gate,
                beta.reshape(*head, 1),
                _filled(state.reshape(batch, tiles * heads, Dv, Dk), channels, channels),
            ),
            ((*head, channels), (batch, tiles * heads, channels, channels)),
        )
        return y[..., :Dv].reshape(v.shape), last[..., :Dv, :Dk].reshape(state.shape)


def _filled(array: F32, *sizes: int) -> F32:
    """The last axes filled up with zeros to these sizes."""
    lead = array.ndim - len(sizes)
    return np.pad(array, [(0, 0)] * lead + [(0, size - have) for size, have in zip(sizes, array.shape[lead:], strict=True)])


gated_delta = GgmlGatedDelta()
