"""Wrong: mistakes that mutants of other kernels make as well, in code that shares no line with them, and two that no mutant makes."""

import mlx.core as mx
from _scan import Scan


class DropSoftplusSlope(Scan):
    def finish(self, gradients, inputs):
        dt = inputs["dt"]
        return {**gradients, "dt": gradients["dt"] * mx.where(dt > 20, 1.0, 1 + mx.exp(-dt))}


class SeedWithZeros(Scan):
    def seed(self, ds):
        return 0 * ds


class DropDAPath(Scan):
    def finish(self, gradients, inputs):
        x, dt = inputs["x"], inputs["dt"]
        step = mx.where(dt > 20, dt, mx.log1p(mx.exp(mx.minimum(dt, 20))))
        return {**gradients, "dt": (gradients["x"] * x).sum(axis=-1) / step * mx.where(dt > 20, 1.0, mx.sigmoid(dt))}


class DropYInDS(Scan):
    def vjp(self, inputs, cotangents):
        *_, dC = super().vjp(inputs, cotangents)
        *others, _ = super().vjp(inputs, (0 * cotangents[0], cotangents[1]))
        return (*others, dC)


class PreviousStateInDC(Scan):
    def vjp(self, inputs, cotangents):
        *others, dC = super().vjp(inputs, cotangents)
        S, dy, groups = self.states(*self.prepare(inputs)), cotangents[0], dC.shape[2]
        steps = [self.over_group((dy[:, t, ..., None] * S[t]).sum(axis=-2), groups) for t in range(dC.shape[1])]
        return (*others, mx.stack(steps, axis=1))


class EvenSteps(Scan):
    """No mutant is like this: dx of every other step is half as much again."""

    def finish(self, gradients, inputs):
        dx = gradients["x"]
        odd = mx.arange(dx.shape[1]) % 2
        return {**gradients, "x": dx * mx.where(odd == 0, 1.5, 1.0)[None, :, None, None]}


class OneState(Scan):
    """Nor like this: dB has the wrong sign in the second state."""

    def finish(self, gradients, inputs):
        second = mx.arange(gradients["B"].shape[-1]) == 1
        return {**gradients, "B": mx.where(second, -1.0, 1.0) * gradients["B"]}


drop_softplus_slope = DropSoftplusSlope().function()
seed_ds_with_zeros = SeedWithZeros().function()
drop_dA_path = DropDAPath().function()  # noqa: N816 - the mutant's name
drop_y_in_dS = DropYInDS().function()  # noqa: N816
previous_state_in_dC = PreviousStateInDC().function()  # noqa: N816
even_steps = EvenSteps().function()
one_state = OneState().function()
