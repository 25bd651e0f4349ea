"""From a kernel's text and its arguments to its outputs, on this CPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from gradcheck.metal import abi, isolate, toolchain
from gradcheck.metal import compile as compiler
from gradcheck.metal.arguments import arrays_of, buffers_of, dtype_name
from gradcheck.metal.build import Built, build
from gradcheck.metal.findings import Finding, findings_of
from gradcheck.metal.launch import Grid, Launch, Outcome, launch
from gradcheck.metal.settings import Settings
from gradcheck.metal.signature import Shape, TemplateValue, Text, render, sign
from gradcheck.metal.unit import Job

MOST_THREADS = 1024
"""Threads of a threadgroup: the most that an Apple GPU takes."""


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch, as a tap keeps it.

    Args:
        text: what the kernel was made of.
        place: where it ran: `metal`, `metal-cuda` or `metal-cpu`.
        source: the whole Metal source for these arguments, as MLX would compile it.
        findings: what the checker found. Nothing is found on a GPU, and in plain mode only what ends a kernel.
        warnings: what the compiler and the rules of Metal have to say, each with its place.
        grid: and `threadgroup`: as they were given.
        mode: `checked` or `plain`, or nothing on a GPU.
        finished: whether it ran to its end.
    """

    text: Text
    place: str
    source: str
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    grid: Grid
    threadgroup: Grid
    mode: str = ""
    finished: bool = True

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that make the kernel wrong."""
        return tuple(finding for finding in self.findings if not finding.benign)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of a kernel, as `metal_kernel` says; dtypes by name."""

    inputs: tuple[mx.array, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    grid: Grid
    threadgroup: Grid
    template: tuple[tuple[str, TemplateValue], ...]
    init_value: float | None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What the kernel's signature depends on."""
        return tuple(Shape.of(dtype_name(array.dtype), array.ndim, array.size) for array in self.inputs)


@dataclass(frozen=True, slots=True)
class Ready:
    """A kernel for arguments of given types: its job, its source, its machine code, the runtime."""

    job: Job
    source: str
    built: Built
    runtime: Path


def execute(
    text: Text, given: Arguments, settings: Settings, *, contiguous: bool, math_mode: str, verbose: bool
) -> tuple[list[mx.array], Launched]:
    """Run a kernel, whose inputs have been evaluated; what its outputs are worth is for the caller to read off the launch.

    Raises:
        ValueError: the threadgroup is too large.
        MetalError: it does not compile, or it died.
    """
    threads = given.threadgroup[0] * given.threadgroup[1] * given.threadgroup[2]
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(
            f"Thread group size ({threads}) is greater than the maximum allowed threads per threadgroup ({MOST_THREADS})."
            if threads
            else f"[metal_kernel] The threadgroup {given.threadgroup} has no thread: give at least 1 in each direction."
        )
    ready = _ready(text, given.shapes, given.output_dtypes, given.template, settings.mode == "checked", math_mode, settings.contract)
    if verbose:
        print(f"Generated source code for `{text.name}`:\n```\n{ready.source}\n```")  # noqa: T201 - what `verbose` asks for
    built = ready.built
    what = Launch(
        ready.runtime,
        built.library,
        built.entry,
        built.loop,
        buffers_of(ready.job.signature, given.inputs, given.output_shapes, given.output_dtypes, given.init_value, contiguous=contiguous),
        given.grid,
        given.threadgroup,
        settings.mode == "checked",
        settings.schedule,
        settings.seed,
        settings.threads or compiler.cores(),
        settings.seconds if settings.mode == "checked" else 0.0,
    )
    if not min(given.grid):  # no thread, as on a GPU
        outcome = Outcome(tuple(buffer.data.view(np.uint8) for buffer in what.buffers if buffer.kind == abi.OUTPUT), (), True, 0, 0)
    else:
        outcome = launch(what) if settings.mode == "plain" else isolate.run(what, text.name, settings.seconds)
    findings = findings_of(what, built, text.name, outcome.reports)
    launched = Launched(
        text, "metal-cpu", ready.source, findings, built.warnings, given.grid, given.threadgroup, settings.mode, outcome.finished
    )
    return arrays_of(outcome.outputs, given.output_shapes, given.output_dtypes), launched


@functools.lru_cache(maxsize=4096)
def _ready(
    text: Text,
    shapes: Sequence[Shape],
    outputs: Sequence[str],
    template: Sequence[tuple[str, TemplateValue]],
    checked: bool,  # noqa: FBT001 - a part of the key
    math_mode: str,
    contract: str,
) -> Ready:
    signature = sign(text, shapes, outputs, template)
    job = Job(text, signature)
    built = build(job, compiler.Options(checked, math_mode, contract))
    return Ready(job, render(text, signature), built, compiler.runtime(toolchain.find()))
