"""Wrong: dx has a constant of 1e-9 in it, which is below rounding while cotangents are about 1."""

import mlx.core as mx
from _scan import Scan


class AssumesUnitCotangents(Scan):
    def finish(self, gradients, _inputs):
        dx = gradients["x"]
        return {**gradients, "x": dx + 1e-9 * mx.sign(dx)}


scan = AssumesUnitCotangents().function()
