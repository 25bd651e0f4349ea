"""Wrong: step sizes are kept by a checksum of dt that does not know the order of its elements."""

import numpy as np
from _scan import Scan


class BatchOrderDependent(Scan):
    xp = np
    arrays = "numpy"

    def __init__(self):
        self.kept = {}

    def prepare(self, inputs):
        s, x, step, *rest = super().prepare(inputs)
        return s, x, self.kept.setdefault((step.shape, np.sort(inputs[2], axis=None).tobytes()), step), *rest


scan = BatchOrderDependent()
