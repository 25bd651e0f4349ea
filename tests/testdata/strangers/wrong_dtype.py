"""Wrong: dx comes back in float16 for a float32 input, and in float32 for a float16 one."""

import mlx.core as mx
from _scan import Scan


class WrongDtype(Scan):
    def finish(self, gradients, inputs):
        return {**gradients, "x": gradients["x"].astype(mx.float16 if inputs["x"].dtype == mx.float32 else mx.float32)}


scan = WrongDtype().function()
