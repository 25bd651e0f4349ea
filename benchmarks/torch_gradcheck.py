"""All gradients of one scan: `torch.autograd.gradcheck` in slow mode, and ours, in CPU seconds of one run. Takes minutes, and torch.

Both are asked the same: is the gradient of L = <w_y, y> + <w_s, s_T> in all inputs right? gradcheck moves every element twice and runs
the whole function again, two points an element, and gives no bound on its own error. `costate` takes two points for inputs that enter
linearly and six for dt and A, and computes an error bound and the scale of rounding beside every value: that is in its time.

    nox -s bench -- torch_gradcheck
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # CPU seconds of one thread

import sys
import time
from pathlib import Path

import numpy as np
import torch
from _table import Row, cpu_seconds, show

from gradcheck import Case
from gradcheck.engine.problem import draw
from gradcheck.engine.truth import answer
from gradcheck.suite import load

SHAPE = (1, 64, 4, 16, 16, 2)
"""(B, T, H, P, N, G) of Mamba-2."""

TIMES = 1000
"""How many times less CPU ours may take, at least."""


def scan(
    s: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(y, s_T) of the scan as one writes it in torch: all heads and channels at once, step by step."""
    q = torch.nn.functional.softplus(dt, threshold=20.0)
    repeat = x.shape[2] // B.shape[2]
    B, C = (a.repeat_interleave(repeat, 2) for a in (B, C))
    decay, u = torch.exp(q * A), q[..., None] * x
    outputs = []
    for t in range(x.shape[1]):
        s = decay[:, t, :, None, None] * s + u[:, t, :, :, None] * B[:, t, :, None, :]
        outputs.append((s * C[:, t, :, None, :]).sum(-1))
    return torch.stack(outputs, 1), s


def main() -> int:
    """Measure, print, and say whether the promise holds."""
    op = load([Path(__file__).parent.parent]).ops["ssm_scan"]
    given = draw(op, Case(op.name, tuple(zip("BTHPNG", SHAPE, strict=True)), "f32", "typical", 0, "mamba2"))
    inputs = [torch.tensor(given.inputs[name], requires_grad=True) for name in op.inputs]
    w_y, w_s = (torch.tensor(w) for w in given.cotangents)

    def loss(*arrays: torch.Tensor) -> torch.Tensor:
        y, state = scan(*arrays)
        return (w_y * y).sum() + (w_s * state).sum()

    truth = answer(op, "mamba2", given)
    for name, gradient in zip(op.inputs, torch.autograd.grad(loss(*inputs), inputs), strict=True):
        want = truth.gradients[name]
        off = float(np.max(np.abs(gradient.numpy() - want.value) / (want.error + np.finfo(float).eps * want.majorant)))
        print(f"  the same function: d {name} of torch is off the truth by {off:.2g} of its error bound")
        if not (off <= 1):
            print("  they are not the same function, so their times mean nothing")
            return 1
    costate, fast = cpu_seconds([lambda: answer(op, "mamba2", given), lambda: answer(op, "mamba2", given, "fast")], 7)
    by = answer(op, "mamba2", given, "fast").oracle
    rows = []
    for threads in (1, torch.get_num_threads()):
        torch.set_num_threads(threads)
        wall, cpu = time.perf_counter(), time.process_time()
        if not torch.autograd.gradcheck(loss, inputs, fast_mode=False):
            return 1
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        elements = sum(a.numel() for a in inputs)
        print(f"  torch {torch.__version__}, {threads} threads, {elements:,} elements: {cpu:.1f} s CPU, {wall:.1f} s wall")
        print(
            f"  costate {1e3 * costate:.1f} ms CPU: {cpu / costate:,.0f} times less; {by} {1e3 * fast:.1f} ms: {cpu / fast:,.0f} times less"
        )
        rows.append(Row(f"costate in units of 1/{TIMES} gradcheck, torch with {threads} threads", costate * TIMES / cpu, 1))
    return show("torch.autograd.gradcheck, slow mode", rows)


if __name__ == "__main__":
    sys.exit(main())
