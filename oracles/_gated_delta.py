"""Inputs of the gated delta rule that let its defects be seen: drawn alike for every op of its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from gradcheck import F64, Draw, Shapes

Range = tuple[float, float]

KEPT = 0.7
"""Share of the steps that a mask keeps: runs of masked and of unmasked steps are then a few steps long."""


def draw(rng: np.random.Generator, shapes: Shapes, gate: Range = (0.3, 0.95), beta: Range = (0.1, 0.9)) -> dict[str, F64]:
    """q, v and state uniform in [-1, 1], keys of length 1, as models have them: the delta rule then contracts while beta <= 2."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    inputs["k"] /= np.sqrt((inputs["k"] ** 2).sum(-1, keepdims=True))
    inputs |= {"g": rng.uniform(*gate, shapes["g"]), "beta": rng.uniform(*beta, shapes["beta"])}
    if "mask" in shapes:
        inputs["mask"] = as_mask(rng.random(shapes["mask"]) < KEPT)
    return inputs


def as_mask(kept: npt.NDArray[np.bool_]) -> F64:
    """A mask is no number and stays one of truths; the type of a draw knows numbers only."""
    return cast("F64", kept)


def typical(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 0.3 to 0.95, beta from 0.1 to 0.9: every path carries weight."""
    return draw(rng, shapes)


def long_memory(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates within 1e-2 of 1 and small beta: the state of the first step still counts at the last, so that errors of a step add up."""
    return draw(rng, shapes, (0.99, 0.9999), (0.01, 0.1))


def gate_one(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates exactly 1, the plain delta rule: a kernel that divides by log g, or special-cases it, shows."""
    return draw(rng, shapes, (1, 1))


def gate_half(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates of a half to within 0.1: what decays and what enters are of one size."""
    return draw(rng, shapes, (0.4, 0.6))


def gate_small(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates from 1e-6 to 1e-3: products of a few underflow in half precision, and their inverses overflow."""
    inputs = draw(rng, shapes)
    return inputs | {"g": 10 ** rng.uniform(-6, -3, shapes["g"])}


def gate_zero(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A third of the gates exactly 0: 0/0, 0·inf and a division by the gate show."""
    inputs = draw(rng, shapes)
    inputs["g"] *= rng.random(shapes["g"]) < 2 / 3
    return inputs


def beta_zero(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """A third of the betas exactly 0: nothing is written there, dv is exactly 0 and dbeta is not."""
    inputs = draw(rng, shapes)
    inputs["beta"] *= rng.random(shapes["beta"]) < 2 / 3
    return inputs


def beta_one(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """beta exactly 1 on keys of length 1: what the state held under a key is replaced to the last bit."""
    return draw(rng, shapes, beta=(1, 1))


def negative_eigenvalues(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """beta from 1 to 2 (`allow_neg_eigval`): the transition reflects, and signs alternate from step to step."""
    return draw(rng, shapes, beta=(1, 2))


def growth(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Gates up to 1.05: states and costates grow, so that a wrong order of the two shows."""
    return draw(rng, shapes, (1, 1.05), (0.01, 0.1))


def repeated_keys(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """The same key at every step but for a tenth: chunks whose triangular system is as far from the identity as it gets."""
    inputs = draw(rng, shapes, (0.9, 1))
    inputs["k"] = inputs["k"][:, :1] + inputs["k"] / 10
    inputs["k"] /= np.sqrt((inputs["k"] ** 2).sum(-1, keepdims=True))
    return inputs


def unequal_heads(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Value heads that differ by powers of ten: a head that is small in the norm of the whole must be right by itself."""
    inputs = draw(rng, shapes)
    scale = 10.0 ** -np.linspace(0, 4, shapes["v"][2])
    inputs["v"] *= scale[:, None]
    inputs["state"] *= scale[:, None, None]
    return inputs


def masked_sequence(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """The first sequence masked throughout, the others at the end only, as padding is: gradients there must be exactly 0."""
    inputs = draw(rng, shapes)
    if "mask" in shapes:
        mask = np.ones(shapes["mask"], np.bool_)
        mask[:, 2 * shapes["mask"][1] // 3 :] = False
        mask[0] = False
        inputs["mask"] = as_mask(mask)
    return inputs


def sparse(rng: np.random.Generator, shapes: Shapes) -> dict[str, F64]:
    """Half of q and v exactly 0, a step of zero keys, and a zero initial state in the first sequence: exact zeros must stay so."""
    inputs = draw(rng, shapes)
    for name in ("q", "v"):
        inputs[name] *= rng.integers(0, 2, shapes[name])
    inputs["k"][:, 0] = 0
    inputs["state"][0] = 0
    return inputs


REGIMES: Mapping[str, Draw] = {
    "typical": typical,
    "long-memory": long_memory,
    "gate-one": gate_one,
    "gate-half": gate_half,
    "gate-small": gate_small,
    "gate-zero": gate_zero,
    "beta-zero": beta_zero,
    "beta-one": beta_one,
    "negative-eigenvalues": negative_eigenvalues,
    "growth": growth,
    "repeated-keys": repeated_keys,
    "unequal-heads": unequal_heads,
    "masked-sequence": masked_sequence,
    "sparse": sparse,
}
