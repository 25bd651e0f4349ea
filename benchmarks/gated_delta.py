"""What a training step of the gated delta rule costs on this machine: forward and backward, at B1 Hk4 Hv8 Dk64 Dv64.

The baseline is `autodiff`, the operations of mlx-lm's loop over steps (`gated_delta_ops`: equal bits), differentiated by MLX. Times are
CPU times, the least of a few rounds; memory is MLX's own peak, inputs included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mlx.core as mx
import numpy as np
from _table import Row, cpu_seconds, show

from gradcheck.kernels.gated_delta import autodiff, checkpointed, chunkwise

B, HK, HV, DK, DV = 1, 4, 8, 64, 64
LENGTHS = (256, 1024, 4096)
ROUNDS = 3

Op = Callable[..., tuple[mx.array, mx.array]]


def inputs(T: int, *, vector: bool) -> list[mx.array]:
    rng = np.random.default_rng(0)
    k = rng.normal(size=(B, T, HK, DK))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = rng.uniform(0.9, 1, (B, T, HV, DK) if vector else (B, T, HV))
    drawn = [rng.normal(size=(B, T, HK, DK)), k, rng.normal(size=(B, T, HV, DV)), g, rng.uniform(0, 1, (B, T, HV))]
    arrays = [mx.array(a.astype(np.float32)) for a in (*drawn, rng.normal(size=(B, HV, DV, DK)))]
    mx.eval(arrays)
    return arrays


def step(op: Op, arrays: list[mx.array]) -> Callable[[], None]:
    """Forward and backward."""
    weights = [mx.full(arrays[2].shape, 0.5), mx.full(arrays[5].shape, 0.5)]

    def call() -> None:
        mx.eval(*mx.vjp(lambda *moved: list(op(*moved)), arrays, weights))

    return call


def peak(call: Callable[[], None]) -> float:
    """MiB."""
    mx.reset_peak_memory()
    call()
    return mx.get_peak_memory() / 2**20


def at(T: int, *, vector: bool) -> list[Row]:
    """Against step by step at one length."""
    arrays = inputs(T, vector=vector)
    gate = "vector gate" if vector else "scalar gate"
    calls = [step(op, arrays) for op in (autodiff.gated_delta, checkpointed.gated_delta, chunkwise.gated_delta)]
    peaks = [peak(call) for call in calls]
    seconds = cpu_seconds(calls, ROUNDS)
    for name, time, memory in zip(("autodiff", "checkpointed", "chunkwise"), seconds, peaks, strict=True):
        print(f"  T = {T}, {gate}: {name:<12} {1e3 * time:8.1f} ms CPU {memory:8.1f} MiB")
    if T < 1024:
        return []
    # What was promised is promised of the scalar gate. A gate per channel has no products of matrices within a sub-chunk.
    time, memory = (1 / 3, 1 / 8) if vector else (1 / 10, 1 / 10)
    return [
        Row(f"chunkwise, {gate}, T = {T}, time of autodiff's", seconds[2] / seconds[0], time),
        Row(f"chunkwise, {gate}, T = {T}, peak of autodiff's", peaks[2] / peaks[0], memory),
    ]


def growth() -> list[Row]:
    """From T = 1024 to 4096: memory and time must not grow faster than T."""
    calls = [step(chunkwise.gated_delta, inputs(T, vector=False)) for T in LENGTHS[1:]]
    peaks = [peak(call) for call in calls]
    seconds = cpu_seconds(calls, ROUNDS)
    return [
        Row("chunkwise, peak at T = 4096 of that at 1024", peaks[1] / peaks[0], 4.4),
        Row("chunkwise, time at T = 4096 of that at 1024", seconds[1] / seconds[0], 4.4),
    ]


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    mx.set_default_device(mx.cpu)
    rows = [row for T in LENGTHS[:2] for vector in (False, True) for row in at(T, vector=vector)]
    return show("the gated delta rule, forward and backward", [*rows, *growth()])


if __name__ == "__main__":
    sys.exit(main())
