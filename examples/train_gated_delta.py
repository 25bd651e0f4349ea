"""Train a tiny gated delta layer by each path that is named, and print the losses: to rounding they are one curve.

    python examples/train_gated_delta.py autodiff chunkwise metal

The layer has to say what it saw six steps ago.
"""
# ruff: noqa: INP001, T201 - a script, and it prints

from __future__ import annotations

import sys

import mlx.core as mx
from mlx import nn
from mlx.optimizers import Adam

from gradcheck.kernels.gated_delta.update import Path, gated_delta_update_vjp

WIDTH, HEADS, SIZE, LENGTH, LAG, STEPS = 8, 2, 16, 24, 6, 40


class Layer(nn.Module):
    """Queries, keys, values, gates and betas by one projection; the gated delta rule; and a projection back."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.into, self.out = nn.Linear(WIDTH, HEADS * (3 * SIZE + 2)), nn.Linear(HEADS * SIZE, WIDTH)
        self.A_log, self.dt_bias = mx.full((HEADS,), -2.0), mx.zeros((HEADS,))

    def __call__(self, x: mx.array) -> mx.array:  # noqa: D102 - as every module of MLX is called
        parts = self.into(x).reshape(*x.shape[:2], HEADS, 3 * SIZE + 2)
        q, k, v, a, b = mx.split(parts, [SIZE, 2 * SIZE, 3 * SIZE, 3 * SIZE + 1], axis=-1)
        k = k * mx.rsqrt(k.square().sum(-1, keepdims=True) + 1e-6)
        y, _ = gated_delta_update_vjp(q, k, v, a[..., 0], b[..., 0], self.A_log, self.dt_bias, path=self.path)
        return self.out(y.reshape(*x.shape[:2], -1))


def train(path: Path) -> list[float]:
    """The loss at each step."""
    mx.random.seed(0)
    layer, optimiser = Layer(path), Adam(learning_rate=1e-2)
    x = mx.random.normal((8, LENGTH, WIDTH))
    loss_and_gradients = nn.value_and_grad(layer, lambda x: (layer(x)[:, LAG:] - x[:, :-LAG]).square().mean())
    losses = []
    for _ in range(STEPS):
        loss, gradients = loss_and_gradients(x)
        optimiser.update(layer, gradients)
        mx.eval(layer.parameters(), optimiser.state)
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    curves = {path: train(path) for path in sys.argv[1:] or ("autodiff", "chunkwise")}
    print("step", *curves)
    for step, losses in enumerate(zip(*curves.values(), strict=True)):
        print(f"{step:4}", *(f"{loss:.6f}" for loss in losses))
