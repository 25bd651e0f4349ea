"""A gradient is linear in the cotangent: scaled by a power of two it scales exactly, and of nothing it is nothing."""

from __future__ import annotations

import numpy as np

from gradcheck.engine.checks.alike import Alike
from gradcheck.engine.checks.bench import Bench, Found, Result, few, repeated, unequal
from gradcheck.engine.problem import Problem

FACTORS = (2.0**-20, -(2.0**20))
"""Powers of two only move the exponent: every rounding is the same. Far enough apart that a constant that does not scale shows."""

LEAST = 2.0**-90
"""Gradients below this, scaled down, are left out: in float32 what they were summed from may underflow."""


def scaling(bench: Bench) -> Found:
    """vjp(c w) = c vjp(w) bit by bit for c a power of two, and vjp(0) = 0: sees "assumes dy = 1" and sums that start from something."""
    first, wrong = repeated(bench)
    gradients = [name for name, got in first.gots.items() if name.startswith("d ") and got.value is not None]
    if wrong:
        return Found(wrong)
    said, compared, alike = [], 0, Alike.of(bench)
    for factor in FACTORS:
        got = _scaled(bench, factor)
        for name in gradients:
            want = factor * first.value(name)
            safe = (want == 0) | (np.abs(want) >= LEAST)
            compared += int(safe.sum())
            if text := alike.unequal(name, want, got.value(name), safe, factor=factor):
                said.append(f"with cotangents times {factor:g}, {name} {text}")
    nothing = _scaled(bench, 0.0)
    for name in gradients:
        compared += first.value(name).size
        if text := unequal(bench.axes[name], np.zeros_like(first.value(name)), nothing.value(name)):
            said.append(f"with cotangents of zeros, {name} {text}")
    return Found(few(said), compared, alike.remark)


def _scaled(bench: Bench, factor: float) -> Result:
    y, state = bench.problem.cotangents
    return bench.call(Problem(bench.problem.inputs, (factor * y, factor * state)))
