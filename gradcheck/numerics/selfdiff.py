"""Gradients of a function by float32 differences of that function's own values, one element at a time: what ggml's tests do.

Nothing here knows what the function should return, so a wrong forward is compared with itself and agrees. What is measured is the
truncation of the step and the rounding of the forward, both far above the error of a float32 gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Inputs = Mapping[str, npt.NDArray[np.generic]]
Forward = Callable[[Inputs], Sequence[F64]]
Loss = Callable[[np.float32], np.float32]

STENCILS = (2, 4)
"""Points of a difference: ggml's default, and the one that it calls precise."""


def self_gradients(
    forward: Forward, inputs: Inputs, weights: Sequence[F64], names: Iterable[str], *, points: int, step: float
) -> dict[str, F64]:
    """d<weights, forward(inputs)> / d(inputs[name]), for each name, by central differences in float32.

        2 points    (f(x + h) - f(x - h)) / 2h                                        in float32
        4 points    (8 f(x + h/2) + f(x - h) - 8 f(x - h/2) - f(x + h)) / 6h          in float64, of float32 values

    Truncation falls as h^2 and h^4; an input in which f is affine has none. The quotient is by h, not by what is left of it in x + h.

    Args:
        forward: from the inputs by name to the outputs; it is called `points` times per element, never on two changes at once.
        inputs: those that are moved hold float32 numbers.
        weights: of the outputs, in their shapes.
        names: the inputs to differentiate by.
        points: one of `STENCILS`.
        step: h, in the units of the inputs.

    Returns:
        float32 numbers. Those that are not finite stay: to judge them is for the caller.
    """
    return {name: _gradient(forward, inputs, weights, name, points, np.float32(step)) for name in names}


def objective(outputs: Sequence[F64], weights: Sequence[F64]) -> np.float32:
    """<weights, outputs> as ggml computes it: products in float32, their sum in float64, the result rounded to float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = [w.astype(np.float32) * out.astype(np.float32) for w, out in zip(weights, outputs, strict=True)]
        return np.float32(sum(float(p.sum(dtype=np.float64)) for p in products))


def _gradient(forward: Forward, inputs: Inputs, weights: Sequence[F64], name: str, points: int, h: np.float32) -> F64:
    here = inputs[name].astype(np.float32)
    out = np.empty(here.shape, np.float64)
    for index in np.ndindex(here.shape):

        def loss(move: np.float32, index: tuple[int, ...] = index) -> np.float32:
            moved = here.copy()
            moved[index] += move
            return objective(forward({**inputs, name: moved.astype(np.float64)}), weights)

        out[index] = _slope(loss, points, h)
    return out


def _slope(loss: Loss, points: int, h: np.float32) -> np.float32:
    with np.errstate(over="ignore", invalid="ignore"):
        if points == 2:
            return (loss(h) - loss(-h)) / (np.float32(2) * h)
        near, far = (float(loss(move)) - float(loss(-move)) for move in (h / np.float32(2), h))
        return np.float32((8 * near - far) / (6 * float(h)))
