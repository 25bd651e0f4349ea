"""What a training step of the gated delta rule costs on this machine: forward and backward, at B1 Hk4 Hv8 Dk64 Dv64.

The baseline is `autodiff`, the operations of mlx-lm's loop over steps (`gated_delta_ops`: equal bits), differentiated by MLX. Times are
CPU times, the least of a few rounds, each kernel in a process of its own; memory is MLX's own peak, inputs included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from multiprocessing import get_context

import mlx.core as mx
import numpy as np
from _table import Row, show

KERNELS = ("autodiff", "checkpointed", "chunkwise")
B, HK, HV, DK, DV = 1, 4, 8, 64, 64
LENGTHS = (256, 1024, 4096)
ROUNDS = 7

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


@cache
def prepared(kernel: str, T: int, vector: bool) -> Callable[[], None]:  # noqa: FBT001 - goes by position to another process
    """A step of this kernel, kept by the process that measures it."""
    mx.set_default_device(mx.cpu)
    return step(import_module(f"gradcheck.kernels.gated_delta.{kernel}").gated_delta, inputs(T, vector=vector))


def cost(kernel: str, T: int, vector: bool, times: int) -> tuple[float, float]:  # noqa: FBT001 - as above
    """CPU seconds of one step, over so many, and their peak MiB."""
    call = prepared(kernel, T, vector)
    mx.reset_peak_memory()
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times, mx.get_peak_memory() / 2**20


def costs(wanted: Sequence[tuple[str, int, bool, int]]) -> list[tuple[float, float]]:
    """The least CPU time and the greatest peak of each, interleaved round by round, each in a process of its own.

    In one process the kernels would not be measured alone: `autodiff` leaves a heap of hundreds of MiB, over which all that is made
    after it lies scattered.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in wanted]
        rounds = [[worker.submit(cost, *one).result() for worker, one in zip(workers, wanted, strict=True)] for _ in range(1 + ROUNDS)]
    return [(min(seconds for seconds, _ in of), max(peak for _, peak in of)) for of in zip(*rounds, strict=True)]


def at(T: int, *, vector: bool) -> list[Row]:
    """Against step by step at one length."""
    gate = "vector gate" if vector else "scalar gate"
    found = dict(zip(KERNELS, costs([(kernel, T, vector, 1) for kernel in KERNELS]), strict=True))
    for name, (seconds, peak) in found.items():
        print(f"  T = {T}, {gate}: {name:<12} {1e3 * seconds:8.1f} ms CPU {peak:8.1f} MiB")
    if T < 1024:
        return []
    # What was promised is promised of the scalar gate. A gate per channel has no products of matrices within a sub-chunk.
    time_bound, peak_bound = (1 / 3, 1 / 8) if vector else (1 / 10, 1 / 10)
    (seconds, peak), (seconds_of_autodiff, peak_of_autodiff) = found["chunkwise"], found["autodiff"]
    return [
        Row(f"chunkwise, {gate}, T = {T}, time of autodiff's", seconds / seconds_of_autodiff, time_bound),
        Row(f"chunkwise, {gate}, T = {T}, peak of autodiff's", peak / peak_of_autodiff, peak_bound),
    ]


def growth() -> list[Row]:
    """From T = 1024 to 4096: memory and time must not grow faster than T."""
    short, long = LENGTHS[1:]
    # As many steps in both: on a machine that is shared the least of short times is of a quieter moment than that of long ones.
    (seconds, peak), (longer, larger) = costs([("chunkwise", short, False, long // short), ("chunkwise", long, False, 1)])
    return [
        Row("chunkwise, peak at T = 4096 of that at 1024", larger / peak, 4.4),
        Row("chunkwise, time at T = 4096 of that at 1024", longer / seconds, 4.4),
    ]


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    rows = [row for T in LENGTHS[:2] for vector in (False, True) for row in at(T, vector=vector)]
    return show("the gated delta rule, forward and backward", [*rows, *growth()])


if __name__ == "__main__":
    sys.exit(main())
