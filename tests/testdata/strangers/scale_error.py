"""Wrong: dC is 0.1 % too large."""

from _scan import Scan


class ScaleError(Scan):
    def finish(self, gradients, _inputs):
        return {**gradients, "C": gradients["C"] * 1.001}


scan = ScaleError().function()
