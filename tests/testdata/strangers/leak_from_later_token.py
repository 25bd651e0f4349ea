"""Wrong: y at t takes up x at t + 1, times 1e-12. No number shows it: in float32 that is 1."""

import mlx.core as mx
from _scan import Scan


class LeakFromLaterToken(Scan):
    def forward(self, *inputs):
        y, s_T = super().forward(*inputs)
        x = inputs[1]
        later = mx.concatenate([x[:, 1:], mx.zeros_like(x[:, :1])], axis=1)
        return y * (1 + 1e-12 * later), s_T


scan = LeakFromLaterToken().function()
