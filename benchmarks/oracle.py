"""The oracles `costate` and `fast` against the numpy forward of the same reference: time, growth over T, memory.

`fast` is timed with its trial on a part of the problem, and without its compilation, which numba keeps on disk.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # CPU seconds of one thread

import sys
import tracemalloc
from pathlib import Path

import numpy as np
from _table import Row, cpu_seconds, show

from gradcheck import Case, Op
from gradcheck.engine.problem import Problem, draw
from gradcheck.engine.truth import answer, numba_version
from gradcheck.numerics.costate import costate
from gradcheck.numerics.forward import forward, sequence
from gradcheck.suite import load

SHAPES = {(1, 64, 4, 16, 16, 2): 16.0, (2, 256, 8, 32, 16, 2): 40.0}
"""(B, T, H, P, N, G) of Mamba-2, and how many forwards all gradients may cost."""

FAST = 4.0
"""How many forwards all gradients may cost at the larger shape, compiled."""

GATED_SHAPE = (2, 256, 4, 8, 32, 32)
"""(B, T, Hk, Hv, Dk, Dv) of the gated delta rule, with scalar gates."""

GATED_SECONDS = {"costate": 60.0, "fast": 2.0}
"""CPU seconds that all gradients may cost there."""

LENGTHS = (64, 128, 256, 512, 1024)
EXPONENT = 1.25


def problem(op: Op, shape: tuple[int, ...]) -> Problem:
    """Typical inputs of this shape."""
    return draw(op, Case(op.name, tuple(zip("BTHPNG", shape, strict=True)), "f32", "typical", 0, "mamba2"))


def gated(op: Op) -> Problem:
    """Typical inputs of an op of the gated delta rule."""
    dims = tuple(zip(("B", "T", "Hk", "Hv", "Dk", "Dv"), GATED_SHAPE, strict=True))
    return draw(op, Case(op.name, dims, "f32", "typical", 0, "scalar"))


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    ops = load([Path(__file__).parent.parent]).ops
    op = ops["ssm_scan"]
    recurrence = op.recurrence("mamba2")
    rows = []
    for shape, bound in SHAPES.items():
        given = problem(op, shape)
        elements = sum(value.size for value in given.inputs.values())
        one, all_ = cpu_seconds(
            [lambda g=given: forward(sequence(recurrence, g.inputs)), lambda g=given: costate(recurrence, g.inputs, *g.cotangents)], 7
        )
        rows.append(Row(f"costate at {shape}, {elements:,} elements, in numpy forwards", all_ / one, bound))
    if numba_version() is not None:
        given = problem(op, max(SHAPES, key=SHAPES.__getitem__))
        one, all_ = cpu_seconds([lambda: forward(sequence(recurrence, given.inputs)), lambda: answer(op, "mamba2", given, "fast")], 7)
        who = answer(op, "mamba2", given, "fast").oracle  # `costate`, where it was refused
        rows.append(Row(f"{who} asked as fast, all of a truth, in numpy forwards", all_ / one, FAST))
    for name in ("gated_delta", "gated_delta_update"):
        given, elements = gated(ops[name]), sum(value.size for value in gated(ops[name]).inputs.values())
        for oracle, bound in GATED_SECONDS.items():
            if oracle == "fast" and numba_version() is None:
                continue
            who = answer(ops[name], "scalar", given, oracle).oracle if oracle == "fast" else oracle  # compiled, before it is timed
            seconds = cpu_seconds([lambda n=name, o=oracle, g=given: answer(ops[n], "scalar", g, o)], 1)[0]
            rows.append(Row(f"{name} by {who} at {GATED_SHAPE}, {elements:,} elements, CPU", seconds, bound, "s"))
    givens = [problem(op, (1, length, 4, 16, 16, 2)) for length in LENGTHS]
    seconds = cpu_seconds([lambda g=g: costate(recurrence, g.inputs, *g.cotangents) for g in givens], 5)
    exponent = float(np.polyfit(np.log(LENGTHS), np.log(seconds), 1)[0])
    rows.append(Row(f"growth over T = {LENGTHS[0]} … {LENGTHS[-1]}: exponent", exponent, EXPONENT, ""))
    peaks = [peak(recurrence, g) for g in givens]
    growth = float(np.polyfit(np.log(LENGTHS), np.log(peaks), 1)[0])
    rows.append(Row(f"peak memory over the same T: exponent ({peaks[-1] / 2**20:.0f} MiB at T = {LENGTHS[-1]})", growth, 1.05, ""))
    return show("oracle", rows)


def peak(recurrence: object, given: Problem) -> float:
    """Peak bytes that costate allocates."""
    tracemalloc.start()
    costate(recurrence, given.inputs, *given.cotangents)  # type: ignore[arg-type]
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(size)


if __name__ == "__main__":
    sys.exit(main())
