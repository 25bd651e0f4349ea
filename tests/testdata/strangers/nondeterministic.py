"""Wrong: every number is off by its last digit at random, as with atomics, so that no run can be repeated."""

import numpy as np
from _scan import Scan

_rng = np.random.default_rng()


class Nondeterministic(Scan):
    xp = np
    arrays = "numpy"

    def finish(self, gradients, _inputs):
        return {name: np.nextafter(g, _rng.choice([-9, 9], g.shape).astype(g.dtype) * abs(g)) for name, g in gradients.items()}


scan = Nondeterministic()
