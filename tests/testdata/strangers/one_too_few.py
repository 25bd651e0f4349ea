"""Wrong: the gradient of C is not returned. MLX silently yields a cotangent for it."""

from _scan import Scan


class OneTooFew(Scan):
    def finish(self, gradients, _inputs):
        return {name: gradient for name, gradient in gradients.items() if name != "C"}


scan = OneTooFew().function()
