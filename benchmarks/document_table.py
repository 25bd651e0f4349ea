"""What a test by float32 differences says of a right kernel, beside what the truth says: d q … d state of `gated_delta_update`.

The table of the pull request that this project began with (mlx-lm #482 and after: B 1, T 8, Hk 2, Hv 4, Dk 16, Dv 8, float32) gives the
largest |difference| between its VJP and central differences. Its step and its objective are not told, so ours are what we say here.

    python benchmarks/document_table.py [--kernel chunkwise] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from gradcheck import Case
from gradcheck.calibrate.noise import tolerances
from gradcheck.engine.call import call
from gradcheck.engine.manifest import published_for
from gradcheck.engine.measure import measure
from gradcheck.engine.plan import Request
from gradcheck.engine.problem import draw
from gradcheck.engine.selfwork import own_forward
from gradcheck.engine.target import load_target
from gradcheck.engine.truth import answer
from gradcheck.numerics.selfdiff import self_gradients
from gradcheck.suite import load

DOCUMENT = {
    "q": 2.12e-3,
    "k": 7.92e-3,
    "v": 1.34e-2,
    "a": 9.68e-2,
    "b": 1.38e-2,
    "A_log": 4.02e-2,
    "dt_bias": 1.40e-2,
    "state": 3.33e-3,
}
"""Largest |difference| that the document gives for each."""

STEPS = (1e-1, 1e-2, 1e-3)
OP, VARIANT, DTYPE = "gated_delta_update", "scalar", "f32"
SIZES = {"B": 1, "T": 8, "Hk": 2, "Hv": 4, "Dk": 16, "Dv": 8}


def main() -> int:
    """Measure and print; nothing is promised, so nothing can fail but the kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="chunkwise")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    suite = load([Path(__file__).parent.parent])
    op = suite.ops[OP]
    declared = {kernel.name: kernel for kernel in op.kernels}[asked.kernel]
    kernel = load_target(declared.target)
    case = Case(OP, tuple(SIZES.items()), DTYPE, "typical", asked.seed, VARIANT)
    problem, names = draw(op, case), op.recurrence(VARIANT).differentiable
    truth = answer(op, VARIANT, problem)
    got = call(
        kernel,
        problem.inputs,
        problem.cotangents,
        dtype=DTYPE,
        output_shapes=tuple(op.output_shapes(SIZES).values()),
        differentiable=names,
    )
    ours = {name: one.value for name, one in zip(names, got.gradients, strict=True)}
    forward = own_forward(kernel, DTYPE, names)
    by_step = {h: self_gradients(forward, problem.inputs, problem.cotangents, names, points=2, step=h) for h in STEPS}
    published = published_for(Request(OP), suite)
    if published is None:
        print(f"no bands of {OP} are published for these sources: gradcheck calibrate --op {OP}", file=sys.stderr)
        return 1
    limits = tolerances(published.noise[f"{DTYPE}/{declared.carry}"])
    measured = {one.quantity: one for one in measure(op, VARIANT, DTYPE, truth, got.outputs, got.gradients)}
    print(f"{asked.kernel}, {case}\n")
    heads = ["", "the document", *(f"float32 differences, h = {h:g}" for h in STEPS), "the truth", "our tolerance", "largest element"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name in names:
        one, want, value = measured[f"d {name}"], truth.gradients[name].value, ours[name]
        assert value is not None
        largest = float(np.abs(want).max())
        off = float(np.abs(value - want).max())
        # `max` counts in roundings of the case, so that the tolerance in the units of the gradient is this many times the error.
        allowed = off * limits[f"d {name}"]["max"] / one.ratios["max"]
        row = [DOCUMENT[name], *(float(np.abs(value - by_step[h][name]).max()) for h in STEPS), off, allowed, largest]
        print(f"| d {name} | " + " | ".join(f"{number:.1e}" for number in row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
