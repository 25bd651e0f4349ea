"""Wrong: A is kept from the first call of each shape. Right as long as no shape comes twice."""

from _scan import Scan


class StaleState(Scan):
    def __init__(self):
        self.kept = {}

    def prepare(self, inputs):
        s, x, step, A, Bh, Ch = super().prepare(inputs)
        return s, x, step, self.kept.setdefault((inputs[1].shape, Bh.shape, inputs[3].shape), A), Bh, Ch


scan = StaleState()
