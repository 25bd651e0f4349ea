"""The oracle `certificate`: the same costate recursion on numbers of 50 digits. It says how good float64 is.

With python-flint (extra `exact`) the numbers are `arb` balls, whose radius bounds the rounding rigorously; else mpmath's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from gradcheck.numerics.costate import Answer, Answers, exact
from gradcheck.numerics.recurrence import Array, Recurrence

DIGITS = 50
"""Decimal digits: enough that a difference with a step of 1e-10 keeps 36."""

Library = Literal["mpmath", "flint"]


def library() -> Library:
    """`flint` where it is installed, else `mpmath`."""
    return "flint" if importlib.util.find_spec("flint") is not None else "mpmath"


def certificate(recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array, using: Library | None = None) -> Answers:
    """Outputs, and all gradients of L = <w_y, y> + <w_s, s_T>, rounded to float64. Arguments as for `costate`.

    The error of each is half a unit in its last place, and with arb the radius of its ball. Majorants are the absolute values.
    """
    number = numbers(using or library())
    y, state, gradients = exact(recurrence, inputs, w_y, w_s, number)
    return Answers((_answer(y), _answer(state)), {name: _answer(value) for name, value in gradients.items()})


def numbers(using: Library) -> Callable[[float], Any]:
    """A maker of numbers of 50 digits. mpmath gets a context of its own; flint has but one precision per process, which is set."""
    if using == "flint":
        import flint

        flint.ctx.dps = DIGITS
        return lambda value: flint.arb(value)  # noqa: PLW0108 - typed as a call of floats
    import mpmath

    context = mpmath.MPContext()
    context.dps = DIGITS
    return lambda value: context.mpf(value)  # noqa: PLW0108 - typed as a call of floats


def _answer(values: Array) -> Answer:
    middle = np.array([float(v.mid()) if hasattr(v, "mid") else float(v) for v in values.flat]).reshape(values.shape)
    radius = np.array([float(v.rad()) if hasattr(v, "rad") else 0.0 for v in values.flat]).reshape(values.shape)
    return Answer(middle, np.spacing(np.abs(middle)) / 2 + radius, np.abs(middle))
