"""What it costs to compile, launch, run and check a Metal kernel on this CPU: mlx-lm's gated delta kernel, as it is installed.

Times are CPU times, of compilers too, but for what runs in parallel: wall times. Where one of two compilers is missing, its rows are left out
and named. Without mlx-lm nothing can be measured: `nox -s bench -- metal` installs it.
"""

from __future__ import annotations

import functools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from _table import Row, cpu_seconds, show

from gradcheck.metal import NoCompilerError, configured, executor, isolate, tap, toolchain
from gradcheck.metal.build import build, build_many
from gradcheck.metal.compile import Options, prelude, runtime
from gradcheck.metal.launch import launch
from gradcheck.metal.signature import sign
from gradcheck.metal.unit import Job

B, T, HK, HV, DK, DV = 1, 256, 2, 4, 64, 64
VARIANTS = 30
ROUNDS = 5
CHECKED, PLAIN = Options(checked=True), Options(checked=False)


@contextmanager
def compiler(kind: str) -> Iterator[bool]:
    """Within the block kernels are compiled by clang, or by ziglang's; whether it is here."""
    zig = toolchain._zig()  # noqa: SLF001 - both are looked for, not the better
    clang = next((command[0] for one, command in toolchain._candidates(os.environ["PATH"]) if one == "clang"), "")  # noqa: SLF001
    named = f"{zig} clang" if kind == "zig" and zig else clang if kind == "clang" else ""
    with patch.dict(os.environ, {"GRADCHECK_METAL_CXX": named}):
        try:
            yield bool(named) and toolchain.find().kind == kind
        except NoCompilerError:
            raise SystemExit(f"the {kind} that was found is not fit") from None


def cpu_of(function: Callable[[], object]) -> float:
    """CPU time of a call, and of the processes that it started and waited for."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    began = spent()
    function()
    return spent() - began


def wall_of(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def job(kernel: object, changed: int | None = None) -> Job:
    """The kernel for the shapes of this benchmark; another text for each number."""
    text = kernel.text  # type: ignore[attr-defined] # one of ours
    if changed is not None:
        text = replace(text, source=text.source.replace("float kv_mem = 0.0f;", f"float kv_mem = 0.0f * {changed};"))
        assert text != kernel.text  # type: ignore[attr-defined]
    arrays = inputs()
    shapes = [executor.Shape.of(executor.dtype_name(array.dtype), array.ndim, array.size) for array in arrays]
    names = {"InT": "float32", "StT": "float32", "Dk": DK, "Dv": DV, "Hk": HK, "Hv": HV}
    return Job(text, sign(text, shapes, ["float32", "float32"], tuple(names.items())))


def inputs() -> list[mx.array]:
    rng = np.random.default_rng(0)

    def drawn(*shape: int, scale: float = 1.0) -> mx.array:
        return mx.array((rng.random(shape) * scale).astype(np.float32))

    shapes = [(B, T, HK, DK), (B, T, HK, DK), (B, T, HV, DV), (B, T, HV), (B, T, HV), (B, HV, DV, DK)]
    return [*(drawn(*shape, scale=1 / DK) for shape in shapes), mx.array(T)]


def speed(module: object) -> list[Row]:
    """Plain against mlx-lm's own operations, checked against plain; all in this process."""
    arrays = inputs()[:-1]

    def run(function: Callable[..., object], mode: str) -> Callable[[], None]:
        def call() -> None:
            with configured(mode=mode):
                mx.eval(function(*arrays))

        return call

    kernel = module.gated_delta_kernel_unpacked  # type: ignore[attr-defined] # mlx-lm's
    functions = [run(module.gated_delta_ops, "plain"), run(kernel, "plain"), run(kernel, "checked")]  # type: ignore[attr-defined]
    with patch.object(isolate, "run", lambda what, *_: launch(what)):  # in a worker its CPU time would not be ours
        for function in functions:
            function()
        ops, plain, checked = cpu_seconds(functions, ROUNDS)
    print(f"  CPU: operations {1e3 * ops:.1f} ms, plain {1e3 * plain:.1f} ms, checked {1e3 * checked:.1f} ms")
    return [
        Row("plain, of mlx-lm's operations on the CPU", plain / ops, 1.5),
        Row("checked, of plain", checked / plain, 5),
    ]


def overhead() -> list[Row]:
    """A kernel that does next to nothing, in plain mode: its launch is all there is."""
    kernel = mx.fast.metal_kernel(name="nothing", input_names=["a"], output_names=["out"], source="out[0] = a[0];")
    given = [mx.zeros(16)]

    def call() -> None:
        kernel(inputs=given, output_shapes=[(1,)], output_dtypes=[mx.float32], grid=(1, 1, 1), threadgroup=(1, 1, 1))

    def afresh() -> None:
        executor._ready.cache_clear()  # noqa: SLF001 - as in a process that begins
        call()

    with configured(mode="plain"):
        call()
        again, cached = (min(wall_of(function) for _ in range(200)) for function in (call, afresh))
    return [
        Row("a launch", 1e3 * again, 1, " ms"),
        Row("the first launch in a process, the kernel being in the cache", 1e3 * cached, 1, " ms"),
    ]


def compiling(kernel: object) -> list[Row]:
    """Both compilers, the header being warm; every kernel is a text that was never compiled before."""
    rows, checked = [], {}
    numbers = iter(range(10_000))
    for kind in ("clang", "zig"):
        with compiler(kind) as there:
            if not there:
                print(f"  no {kind} here: its rows are left out")
                continue
            for options in (PLAIN, CHECKED):  # warm
                prelude(options, toolchain.find())
            runtime(toolchain.find())
            build(job(kernel, next(numbers)), CHECKED)

            def one(options: Options) -> Callable[[], object]:
                return lambda: build(job(kernel, next(numbers)), options)

            plain = min(cpu_of(one(PLAIN)) for _ in range(ROUNDS))
            checked[kind] = min(cpu_of(one(CHECKED)) for _ in range(ROUNDS))
            print(f"  {toolchain.find()}: plain {1e3 * plain:.0f} ms CPU, checked {1e3 * checked[kind]:.0f} ms CPU")
            if kind == "clang":
                rows.append(Row("compile with clang, plain, CPU", 1e3 * plain, 120, " ms"))
            single = many = float("inf")
            for _ in range(3):  # by turns, so that a busy moment hits both; both cores have to be free for a ratio that means something
                single = min(single, wall_of(one(CHECKED)), wall_of(one(CHECKED)))
                jobs = [job(kernel, next(numbers)) for _ in range(VARIANTS)]
                many = min(many, wall_of(functools.partial(build_many, jobs, CHECKED)))
            rows.append(Row(f"{VARIANTS} variants of a kernel, checked, with {kind}, wall time, of one", many / single, 8))
    if len(checked) == 2:
        rows.append(Row("checked compile with zig, CPU, of clang's", checked["zig"] / checked["clang"], 2))
    return rows


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    try:
        with tap(pretend_gpu=True):
            from mlx_lm.models import gated_delta
    except ImportError as error:
        print(f"mlx-lm is not here ({error}): nox -s bench -- metal")
        return 1
    with (
        tempfile.TemporaryDirectory() as cache,
        patch.dict(os.environ, {"GRADCHECK_CACHE_DIR": cache}),
        tap(pretend_gpu=True),
    ):
        return show("metal on the CPU", [*speed(gated_delta), *overhead(), *compiling(gated_delta._gated_delta_kernel)])  # noqa: SLF001


if __name__ == "__main__":
    sys.exit(main())
