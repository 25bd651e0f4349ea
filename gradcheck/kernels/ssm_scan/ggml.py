"""ggml's own forward of SSM_SCAN, which has no backward.

Its s[N,P,H,B], x[P,H,T,B], dt[H,T,B], A[1 or N,H] and B,C[N,G,T,B] are the row-major arrays of this op as they are.
"""

from __future__ import annotations

import numpy as np

from gradcheck.kernels.ggml import F32, recur


class GgmlScan:
    """The kernel: a forward, and no `vjp`. NumPy arrays in float32."""

    arrays = "numpy"

    def forward(self, s: F32, x: F32, dt: F32, A: F32, B: F32, C: F32) -> tuple[F32, F32]:
        """y and the final state of the selective scan.

        Args:
            s: initial state, [B, H, P, N].
            x: [B, T, H, P].
            dt: step size before the softplus, [B, T, H].
            A: decay rate, [H] (Mamba-2) or [H, N] (Mamba-1).
            B: input projection, [B, T, G, N].
            C: output projection, [B, T, G, N].

        Raises:
            RuntimeError: the wheel's libraries cannot be used, or ggml reports that it failed. Shapes that ggml's own assertions
                refuse end the process.
        """
        rate = A if A.ndim == 2 else A[:, None]
        rows = np.arange(len(s), dtype=np.int32)  # ids: sequence b begins at state b
        y, last = recur("ggml_ssm_scan", (s, x, dt, rate, B, C, rows), (x.shape, s.shape))
        return y, last


ssm_scan = GgmlScan()
