"""What is true: a value, how far it can be off, and the scale against which rounding is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One output or one gradient, elementwise: `|true - value| <= error`.

    `majorant` is the sum of the absolute values of the terms that were added to get `value`: `u * majorant` is what one rounding
    of each term costs, with u the unit roundoff of the kernel under test. Where it is 0 the value is structurally zero.
    """

    value: F64
    error: F64
    majorant: F64


@dataclass(frozen=True, slots=True)
class Truth:
    """The outputs and the gradients of one case, as one oracle gives them.

    Args:
        oracle: the oracle's name: `costate`, `replay`, `blackbox` or `certificate`.
        outputs: by the names of the op's outputs, in packed order.
        gradients: by the names of the op's differentiable inputs, in input order.
    """

    oracle: str
    outputs: Mapping[str, Quantity]
    gradients: Mapping[str, Quantity]

    def quantities(self) -> dict[str, Quantity]:
        """Outputs first, then gradients as `d x`."""
        return {**self.outputs, **{f"d {name}": q for name, q in self.gradients.items()}}
