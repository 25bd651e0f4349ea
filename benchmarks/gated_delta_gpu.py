"""The gated delta rule on a GPU, forward and backward: our Metal text beside what MLX users have, in one run.

The shape is that of the source document: B 1, Hk 16, Hv 64, Dk 192, Dv 128, bfloat16. Runs unchanged on a Mac and, with
`pip install mlx[cuda13]`, on an NVIDIA GPU. Without a GPU nothing is measured, and the exit code says so.

    python benchmarks/gated_delta_gpu.py [--peer FILE] [T …]

`--peer` is a file of other fused kernels with `gated_delta_vjp(q, k, v, g, beta, state)`, such as one made of unsloth-zoo's: theirs is
then the one to beat, at T = 1024: faster, in at most half the memory, and bitwise the same twice.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import mlx.core as mx
from _table import Row, show

from gradcheck.kernels.gated_delta import autodiff, metal
from gradcheck.metal import place

B, HK, HV, DK, DV = 1, 16, 64, 192, 128
AT = 1024
"""The length at which the peer is to be beaten."""

LOOP = 512
"""Steps from which the step-by-step loop is left out: at 1024 it took 26.6 GB on an H200."""

Function = Callable[..., tuple[mx.array, mx.array]]


def inputs(T: int) -> tuple[list[mx.array], mx.array]:
    """q, k, v, g, beta, state, and the cotangent of y; keys of length 1, gates near 1, as models have them."""
    mx.random.seed(0)
    half = mx.bfloat16
    q, k = (mx.random.normal((B, T, HK, DK)) for _ in range(2))
    k = k / mx.linalg.norm(k, axis=-1, keepdims=True)
    v, dy = (mx.random.normal((B, T, HV, DV)) for _ in range(2))
    g, beta = mx.random.uniform(0.9, 1, (B, T, HV)), mx.random.uniform(0, 1, (B, T, HV))
    arrays = [(q / DK).astype(half), k.astype(half), v.astype(half), g, beta.astype(half), mx.zeros((B, HV, DV, DK))]
    mx.eval(arrays, dy)
    return arrays, dy.astype(half)


def gradients(function: Function, arrays: Sequence[mx.array], dy: mx.array) -> list[mx.array]:
    """All gradients of <y, dy>, computed."""
    _, found = mx.vjp(lambda *given: function(*given)[0], list(arrays), [dy])
    mx.eval(found)
    return found


def measure(function: Function, arrays: Sequence[mx.array], dy: mx.array, rounds: int = 11) -> tuple[float, float, bool]:
    """Median milliseconds and peak gigabytes of forward and backward, and whether two runs give the same bits."""
    first = gradients(function, arrays, dy)
    again = gradients(function, arrays, dy)
    same = all(bool(mx.array_equal(a.view(mx.uint8), b.view(mx.uint8))) for a, b in zip(first, again, strict=True))
    del first, again
    mx.clear_cache()
    mx.reset_peak_memory()
    times = []
    for _ in range(rounds):
        mx.synchronize()
        began = time.perf_counter()
        gradients(function, arrays, dy)
        mx.synchronize()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times), mx.get_peak_memory() / 1e9, same


def fused(q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    """MLX's own."""
    return mx.fast.gated_delta_update(q, k, v, g, beta, state)


def functions(peer: Path | None) -> dict[str, Function]:
    """What is compared, by name."""
    found: dict[str, Function] = {f"gradcheck, {place()}": metal.gated_delta, "loop of ops, autodiff": autodiff.gated_delta}
    if hasattr(mx.fast, "gated_delta_update"):
        found["mx.fast.gated_delta_update"] = fused
    if peer is not None:
        spec = importlib.util.spec_from_file_location("peer", peer)
        if spec is None or spec.loader is None:
            sys.exit(f"{peer} is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found["peer"] = module.gated_delta_vjp
    return found


def main() -> int:
    """Measure, print, and say whether the promise holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, default=None)
    parser.add_argument("T", type=int, nargs="*", default=[256, 512, 1024, 2048])
    asked = parser.parse_args()
    if place() == "metal-cpu":
        print("not run: there is no GPU here (an Apple one, or an NVIDIA one with mlx[cuda13]), and a CPU's time is no GPU's")
        return 1
    compared = functions(asked.peer)
    found: dict[tuple[str, int], tuple[float, float, bool]] = {}
    for T in asked.T:
        arrays, dy = inputs(T)
        for name, function in compared.items():
            if function is autodiff.gated_delta and T > LOOP:
                continue
            try:
                found[name, T] = measure(function, arrays, dy)
            except (RuntimeError, ValueError) as error:
                print(f"  T {T:5}  {name:<28} does not run: {str(error).splitlines()[0]}")
                continue
            milliseconds, gigabytes, same = found[name, T]
            print(
                f"  T {T:5}  {name:<28} {milliseconds:9.2f} ms {gigabytes:7.2f} GB  {'the same bits twice' if same else 'not the same twice'}"
            )
    ours, theirs = found.get((f"gradcheck, {place()}", AT)), found.get(("peer", AT))
    if ours is None or theirs is None:
        print(f"no promise was looked at: it is about --peer at T = {AT}")
        return 1
    rows = [
        Row(f"time at T = {AT}, of the peer's", ours[0] / theirs[0], 1),
        Row(f"peak memory at T = {AT}, of the peer's", ours[1] / theirs[1], 0.5),
        Row("runs that differ from another in some bit", 0.0 if ours[2] else 1.0, 0, ""),
    ]
    return show("gated delta rule on a GPU", rows)


if __name__ == "__main__":
    sys.exit(main())
