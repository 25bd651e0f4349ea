"""One random direction at the sizes of a real model, where the whole truth is too dear: four forwards of the reference.

D = <grad L, d> is a central difference of the reference along d. The kernel's gradient must have the same product with d. Rounding is
measured by S = sum |w| |dy/dd|, the terms of D one by one: u S is one rounding of each, and the tolerance in rounding units is that
of the comparison with the truth, by z, the largest of all gradients. d is random in sign, so that the errors of a correct kernel do not
add up along it. It is one number for all gradients: what is wrong in a whole head or tile stands out, one element or two parts in a
thousand of one gradient may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck._truth import F64
from gradcheck.engine.checks.bench import Bench, Found, Result, few, size_of
from gradcheck.engine.measure import INFORMATIVE
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.forward import forward, sequence

LARGEST_MOVE = 2.0**-9
"""How far an element is moved: the fourth power, the truncation of the extrapolated difference, is 1e-11."""

SAFETY = 1.1
"""On the estimate of the truncation."""


@dataclass(frozen=True, slots=True)
class _Slope:
    """D, the sum S of its terms' absolute values, and a bound on its truncation."""

    value: float
    scale: float
    error: float


def production(bench: Bench) -> Found:
    """<vjp(w), d> = (L(p + hd) - L(p - hd)) / 2h along one random d, each gradient weighted so that all count alike; <w, y> too."""
    got = bench.call()
    if broken := [f"{name}: {g.problem or 'is not finite'}" for name, g in got.gots.items() if g.value is None or not _finite(g.value)]:
        return Found(few(broken), 1)
    said = _outputs(bench, got)
    compared = size_of(got)
    if bench.forward_only:
        return Found(few(said), compared)
    rng = np.random.default_rng(bench.case.seed)
    directions = {name: _direction(got.value(f"d {name}"), rng) for name in bench.recurrence.differentiable}
    whole = _slope(bench, directions)
    mine = _product(got, directions)
    tolerance = _tolerance(bench, whole)
    if not (tolerance * INFORMATIVE <= np.sqrt(len(directions))):
        return Found(few(said), 0)
    if not (abs(mine - whole.value) <= tolerance):
        said += _blame(bench, got, directions) or [
            f"along a random direction the slope is {mine:.9g}, want {whole.value:.9g} ± {tolerance:.2g}"
        ]
    return Found(few(said), compared)


def _outputs(bench: Bench, got: Result) -> list[str]:
    """What is wrong with the outputs: their products with the cotangents against those of the reference."""
    said = []
    for (name, want), w in zip(_forward(bench, bench.problem.inputs).items(), bench.problem.cotangents, strict=True):
        unit = max(bench.tolerances[name]["z"], 1.0) * DTYPES[bench.case.dtype].u
        tolerance = unit * float(np.abs(w * want).sum())
        mine, true = float((w * got.value(name)).sum()), float((w * want).sum())
        if not (abs(mine - true) <= tolerance):
            said.append(f"{name}: its product with random weights is {mine:.9g}, want {true:.9g} ± {tolerance:.2g}")
    return said


def _blame(bench: Bench, got: Result, directions: Mapping[str, F64]) -> list[str]:
    """The gradients that are wrong by themselves: the same along each input alone."""
    said = []
    for name, direction in directions.items():
        alone = {name: direction}
        slope, mine = _slope(bench, alone), _product(got, alone)
        tolerance = _tolerance(bench, slope)
        if not (abs(mine - slope.value) <= tolerance):
            said.append(f"d {name}: along a random direction the slope is {mine:.9g}, want {slope.value:.9g} ± {tolerance:.2g}")
    return said


def _direction(gradient: F64, rng: np.random.Generator) -> F64:
    """Random signs, sized so that the product with this gradient is about 1, whatever its size."""
    size = float(np.sqrt((gradient**2).sum()))
    return rng.choice([-1.0, 1.0], gradient.shape) / (size or 1.0)


def _product(got: Result, directions: Mapping[str, F64]) -> float:
    return sum(float((got.value(f"d {name}") * d).sum()) for name, d in directions.items())


def _tolerance(bench: Bench, slope: _Slope) -> float:
    """Largest difference that rounding explains."""
    units = max(row["z"] for name, row in bench.tolerances.items() if name.startswith("d "))
    return units * DTYPES[bench.case.dtype].u * slope.scale + slope.error


def _slope(bench: Bench, directions: Mapping[str, F64]) -> _Slope:
    """D by central differences with h and 2h, extrapolated: (4 D(h) - D(2h)) / 3, off by less than |D(h) - D(2h)| / 3."""
    h = LARGEST_MOVE / 2 / max(float(np.abs(d).max()) for d in directions.values())
    near, far = (_difference(bench, directions, move) for move in (h, 2 * h))
    terms = [(4 * a - b) / 3 for a, b in zip(near, far, strict=True)]
    gap = abs(sum(float((a - b).sum()) for a, b in zip(near, far, strict=True))) / 3
    return _Slope(sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms), SAFETY * gap)


def _difference(bench: Bench, directions: Mapping[str, F64], h: float) -> Sequence[F64]:
    """The terms w dy/dd of both outputs, by a central difference."""
    inputs = bench.problem.inputs
    high, low = (
        _forward(bench, {**inputs, **{name: inputs[name] + side * h * d for name, d in directions.items()}}).values() for side in (1, -1)
    )
    return [w * (a - b) / (2 * h) for w, a, b in zip(bench.problem.cotangents, high, low, strict=True)]


def _forward(bench: Bench, inputs: Mapping[str, F64]) -> dict[str, F64]:
    y, states = forward(sequence(bench.recurrence, inputs))
    return dict(zip(bench.op.outputs, (y, states[-1]), strict=True))


def _finite(values: F64) -> bool:
    return bool(np.isfinite(values).all())
