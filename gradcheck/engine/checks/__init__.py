"""Checks that need no tolerance: what must hold of every kernel, bit by bit or within the noise that the truth is judged by.

They see what a comparison with the truth cannot: a leak far below rounding, a constant that happens to be small, a result that
depends on where an array lies or on what was computed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradcheck.engine.checks.bench import Bench, Found, KernelRaised
from gradcheck.engine.checks.chunks import chunks
from gradcheck.engine.checks.declared import bench_of
from gradcheck.engine.checks.determinism import determinism
from gradcheck.engine.checks.layout import layout
from gradcheck.engine.checks.permutation import permutation
from gradcheck.engine.checks.production import production
from gradcheck.engine.checks.scaling import scaling
from gradcheck.engine.checks.split import split
from gradcheck.engine.checks.taint import taint

DTYPE = "f32"
"""Checks are made in float32, where powers of two neither overflow nor underflow and a state is handed over as it is."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Args:
        name: as it is reported.
        find: what it finds on a kernel.
        why: what it sees that numbers alone do not.
        backward: it is about gradients alone, so that it is left out with them.
        large: it is made at the production sizes of the op, once per branch.
        optional: it is about what a kernel declares, and left out where it declares nothing.
    """

    name: str
    find: Callable[[Bench], Found]
    why: str
    backward: bool = False
    large: bool = False
    optional: bool = False


CHECKS = (
    Check("taint", taint, "a leak from a later step, another row or head, however small"),
    Check("scaling", scaling, "a gradient that assumes a cotangent of a certain size", backward=True),
    Check("split", split, "a state, or its gradient, that is not handed over whole"),
    Check("permutation", permutation, "a result that depends on the place of a row or group"),
    Check("determinism", determinism, "a stale cache, a buffer that accumulates, a race"),
    Check("layout", layout, "strides that are taken for granted"),
    Check("chunks", chunks, "a size of chunk that is not the default", optional=True),
    Check("production", production, "a defect that exists only at the sizes of a real model", large=True),
)

__all__ = ["CHECKS", "DTYPE", "Bench", "Check", "Found", "KernelRaised", "bench_of"]
