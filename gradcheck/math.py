"""The functions of which references are made: one set for float, complex, mpmath and arb numbers.

numpy's own are not enough: `np.exp` fails on an object array of mpmath numbers, and numpy's complex `log1p` loses half the digits
near 0. Every function here takes an array of any numeric dtype (or object dtype holding mpmath or python-flint numbers) and
returns one of the same kind. Branches look at the real part, so that a complex step stays on the branch of its base point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

SOFTPLUS_LINEAR_ABOVE = 20.0
"""ggml's softplus is the identity above this; the jump there is log1p(exp(-20)) = 2.06e-9."""


def real(z: Numbers) -> Numbers:
    """Re z, for branching."""
    z = np.asarray(z)
    return _each(lambda v: v.real, z) if z.dtype == object else z.real


def where(condition: npt.NDArray[np.bool_], yes: Numbers, no: Numbers) -> Numbers:
    """`yes` where the condition holds, else `no`. Both are evaluated: keep each finite."""
    return np.where(condition, yes, no)


def exp(z: Numbers) -> Numbers:
    """e^z."""
    return _apply("exp", np.exp, z)


def log(z: Numbers) -> Numbers:
    """log z, principal branch."""
    return _apply("log", np.log, z)


def sqrt(z: Numbers) -> Numbers:
    """z^(1/2), principal branch."""
    return _apply("sqrt", np.sqrt, z)


def tanh(z: Numbers) -> Numbers:
    """tanh z."""
    return _apply("tanh", np.tanh, z)


def log1p(z: Numbers) -> Numbers:
    """log(1 + z), accurate near z = 0 also for complex z: Re = log1p(x(2 + x) + y^2) / 2, Im = atan2(y, 1 + x).

    For complex z the real part is accurate while x >= -1/2 and y^2 <= |x|: near the circle |1 + z| = 1 its terms cancel.
    """
    z = np.asarray(z)
    if z.dtype == object:
        return _each(lambda v: _exact("log1p", v), z)
    if not np.iscomplexobj(z):
        return np.log1p(z)
    x, y = z.real, z.imag
    out = np.empty_like(z)
    out.real = np.log1p(x * (2 + x) + y * y) / 2
    out.imag = np.arctan2(y, 1 + x)
    return out


def sigmoid(z: Numbers) -> Numbers:
    """1 / (1 + e^-z), without overflow: the exponential is taken of -|Re z| only."""
    z = np.asarray(z)
    positive = real(z) >= 0
    e = exp(where(positive, -z, z))
    return where(positive, 1 / (1 + e), e / (1 + e))


def softplus(z: Numbers, linear_above: float = SOFTPLUS_LINEAR_ABOVE) -> Numbers:
    """log(1 + e^z), and z itself where Re z > `linear_above` (ggml's softplus)."""
    z = np.asarray(z)
    linear = real(z) > linear_above
    return where(linear, z, log1p(exp(where(linear, 0 * z, z))))


def _apply(name: str, function: Callable[[Numbers], Numbers], z: Numbers) -> Numbers:
    z = np.asarray(z)
    return _each(lambda v: _exact(name, v), z) if z.dtype == object else function(z)


def _each(function: Callable[[Any], Any], z: Numbers) -> Numbers:
    out = np.empty(z.shape, dtype=object)
    out.flat[:] = [function(v) for v in z.flat]
    return out


def _exact(name: str, v: Any) -> Any:  # noqa: ANN401 - a number of a library that has no stubs
    """`name` of one mpmath or python-flint number: mpmath contexts carry the functions (`mpf.exp` is an exponent), flint numbers do."""
    context = getattr(v, "context", None)
    return getattr(v, name)() if context is None else getattr(context, name)(v)
