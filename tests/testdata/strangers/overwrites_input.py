"""Wrong: a NumPy kernel that takes the softplus of dt in place, in the caller's own array. Its outputs and gradients are right."""

import numpy as np
from _scan import Scan


class OverwritesInput(Scan):
    xp = np
    arrays = "numpy"

    def forward(self, *inputs):
        outputs = super().forward(*inputs)
        dt = inputs[2]
        np.logaddexp(dt, np.zeros_like(dt), out=dt)
        return outputs


scan = OverwritesInput()
