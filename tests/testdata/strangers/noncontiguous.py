"""Right: every gradient is a transposed view, so that none is contiguous."""

import mlx.core as mx
from _scan import Scan


class Noncontiguous(Scan):
    def finish(self, gradients, _inputs):
        return {name: mx.contiguous(gradient.T).T for name, gradient in gradients.items()}


scan = Noncontiguous().function()
