"""Small problems of the selective scan, and its equations in float64."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from gradcheck.engine.call import call

NAMES = ("s", "x", "dt", "A", "B", "C")
EPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
ROUNDINGS = 32  # of the largest element: sums over at most five steps and a few lanes
BRANCHES = ("mamba1", "mamba2")


def draw(branch, *, batch=2, T=5, H=4, P=3, N=2, G=2, seed=0):
    rng = np.random.default_rng(seed)
    dt = rng.normal(0.0, 2.0, (batch, T, H))
    dt.flat[:3] = 25.0, -30.0, 19.0  # both branches of the softplus, away from the jump between them
    inputs = {
        "s": rng.normal(size=(batch, H, P, N)),
        "x": rng.normal(size=(batch, T, H, P)),
        "dt": dt,
        "A": -np.exp(rng.normal(-2.0, 1.0, (H,) if branch == "mamba2" else (H, N))),
        "B": rng.normal(size=(batch, T, G, N)),
        "C": rng.normal(size=(batch, T, G, N)),
    }
    cotangents = [rng.normal(size=(batch, T, H, P)), rng.normal(size=(batch, H, P, N))]
    return {name: rounded(value, "f32") for name, value in inputs.items()}, [rounded(value, "f32") for value in cotangents]


def rounded(value, dtype):
    array = mx.array(value.astype(np.float32))
    return np.array(array.astype({"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[dtype]).astype(mx.float32)).astype(np.float64)


def reference(s, x, dt, A, B, C):
    """The equations, element by element of time, in float64."""
    step = np.where(dt > 20, dt, np.logaddexp(dt, 0))
    rate = A[:, None] if A.ndim == 1 else A
    heads = np.arange(x.shape[2]) // (x.shape[2] // B.shape[2])
    S, y = s, []
    for t in range(x.shape[1]):
        P = step[:, t, :, None, None]
        S = np.exp(P * rate[:, None, :]) * S + P * x[:, t, :, :, None] * B[:, t, heads][:, :, None, :]
        y.append((S * C[:, t, heads][:, :, None, :]).sum(-1))
    return np.stack(y, axis=1), S


def central_differences(inputs, cotangents, h=2.0**-17):
    """Gradient of `sum of cotangents · outputs`, one element of one input at a time."""

    def objective(name, index, by):
        moved = inputs[name].copy()
        moved[index] += by
        return sum(float((w * out).sum()) for w, out in zip(cotangents, reference(**{**inputs, name: moved}), strict=True))

    return {
        name: np.array([(objective(name, i, h) - objective(name, i, -h)) / (2 * h) for i in np.ndindex(value.shape)]).reshape(value.shape)
        for name, value in inputs.items()
    }


def run(kernel, inputs, cotangents, dtype="f32"):
    shapes = [w.shape for w in cotangents]
    got = call(kernel, inputs, cotangents, dtype=dtype, output_shapes=shapes, differentiable=NAMES)
    assert [g.problem for g in (*got.outputs, *got.gradients)] == [""] * 8
    assert got.notes == ()
    return [g.value for g in got.outputs], {name: g.value for name, g in zip(NAMES, got.gradients, strict=True)}


def distance(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())
