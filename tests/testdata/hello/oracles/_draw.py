"""How the inputs of both ops are drawn."""

from __future__ import annotations

import numpy as np

from gradcheck import F64, Shapes


def uniform(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Every input random, none near 0: each path carries weight."""
    return {name: rng.uniform(0.3, 0.9, shape) * rng.choice([-1.0, 1.0], shape) for name, shape in shapes.items()}


def forgetful(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """As uniform, from a state of zeros: sees a kernel that needs to have been somewhere before."""
    inputs = uniform(rng, shapes)
    state = next(iter(inputs))
    return inputs | {state: np.zeros(shapes[state])}
