"""A right selective scan, written step by step by somebody else, for MLX or NumPy. Each stranger beside it changes one thing."""

import mlx.core as mx

NAMES = ("s", "x", "dt", "A", "B", "C")


class Scan:
    """s[B,H,P,N], x[B,T,H,P], dt[B,T,H], A[H] or A[H,N], B[B,T,G,N], C[B,T,G,N] -> y[B,T,H,P], s_T[B,H,P,N]."""

    xp = mx  # a subclass may say numpy
    arrays = "mlx"

    def forward(self, *inputs):
        s, x = inputs[:2]
        *_, Ch = per_step = self.prepare(inputs)
        S = self.states(*per_step)
        y = self.xp.stack([(S[t + 1] * Ch[:, t, :, None, :]).sum(axis=-1) for t in range(x.shape[1])], axis=1)
        return y.astype(x.dtype), S[-1].astype(s.dtype)

    def vjp(self, inputs, cotangents):
        groups, f32 = inputs[4].shape[2], self.xp.float32
        _, x, step, A, Bh, Ch = per_step = self.prepare(inputs)
        dy, ds = (cotangent.astype(f32) for cotangent in cotangents)
        S = self.states(*per_step)
        G = self.seed(ds)
        steps = []
        for t in reversed(range(x.shape[1])):
            P, a = step[:, t], self.decay(step[:, t], A)
            G = G + dy[:, t, :, :, None] * Ch[:, t, :, None, :]
            dC = self.total(dy[:, t, :, :, None] * S[t + 1], -2)
            dB = self.total(G * (x[:, t] * P[..., None])[..., None], -2)
            u = self.total(G * Bh[:, t, :, None, :], -1)
            M = self.total(G * S[t] * a, -2)
            dP = self.total(u * x[:, t], -1) + self.total(M * A, -1)
            steps.append((u * P[..., None], dP, M * P[..., None], self.over_group(dB, groups), self.over_group(dC, groups)))
            G = a * G
        dx, dP, dA, dB, dC = (self.xp.stack(column[::-1], axis=1) for column in zip(*steps, strict=True))
        dt = inputs[2].astype(f32)
        slope = self.xp.where(dt > 20, 1.0, 1 / (1 + self.xp.exp(-dt)))
        dA = dA.sum(axis=(0, 1))
        dA = dA.sum(axis=-1) if inputs[3].ndim == 1 else dA
        gradients = dict(zip(NAMES, (G, dx, dP * slope, dA, dB, dC), strict=True))
        gradients = {name: gradients[name].astype(given.dtype) for name, given in zip(NAMES, inputs, strict=True)}
        return tuple(self.finish(gradients, dict(zip(NAMES, inputs, strict=True))).values())

    def function(self):
        """The scan as a function that MLX differentiates by the VJP above."""
        scan = mx.custom_function(self.forward)
        scan.vjp(lambda primals, cotangents, _outputs: self.vjp(primals, cotangents))
        return scan

    # What strangers change.

    def prepare(self, inputs):
        """State, x, step size, A[H, 1 or N], and B and C per head, in float32."""
        s, x, dt, A, B, C = (given.astype(self.xp.float32) for given in inputs)
        heads_per_group = x.shape[2] // B.shape[2]
        step = self.xp.where(dt > 20, dt, self.xp.logaddexp(dt, self.xp.zeros_like(dt)))
        Bh, Ch = (self.xp.repeat(grouped, heads_per_group, axis=2) for grouped in (B, C))
        return s, x, step, A[:, None] if A.ndim == 1 else A, Bh, Ch

    def states(self, S, x, step, A, Bh, _Ch):
        """S_0 … S_T."""
        states = [S]
        for t in range(x.shape[1]):
            entering = (x[:, t] * step[:, t, :, None])[..., None] * Bh[:, t, :, None, :]
            states.append(self.decay(step[:, t], A) * states[-1] + entering)
        return states

    def decay(self, step, A):
        return self.xp.exp(step[..., None] * A)[..., None, :]

    def seed(self, ds):
        """The adjoint from which the reverse recurrence starts."""
        return ds

    def total(self, array, axis):
        return array.sum(axis=axis)

    def over_group(self, per_head, groups):
        batch, heads, N = per_head.shape
        return per_head.reshape(batch, groups, heads // groups, N).sum(axis=2)

    def finish(self, gradients, _inputs):
        """The last word on the gradients, by name."""
        return gradients
