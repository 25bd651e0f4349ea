"""Kernels whose texts lie in `.metal` files beside the Python that launches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

Grid = tuple[int, int, int]
Template = tuple[tuple[str, int | bool], ...]
Outputs = Mapping[str, tuple[tuple[int, ...], mx.Dtype]]


def launch(
    folder: Path,
    prefix: str,
    name: str,
    inputs: Mapping[str, mx.array],
    outputs: Outputs,
    grid: Grid,
    threadgroup: Grid,
    template: Template,
) -> list[mx.array]:
    """Run `<name>.metal` of `folder`, behind its `common.metal`; the kernel is called `<prefix>_<name>`.

    Args:
        folder: where the texts are.
        prefix: the op.
        name: the kernel.
        inputs: by the names in the text.
        outputs: shape and dtype, by the names in the text.
        grid: threads in all.
        threadgroup: threads of a threadgroup, at most; fewer where the grid has fewer.
        template: arguments.
    """
    fitted = cast("Grid", tuple(min(threads, size) for threads, size in zip(threadgroup, grid, strict=True)))
    found: list[mx.array] = kernel(folder, prefix, name, tuple(inputs), tuple(outputs))(
        inputs=list(inputs.values()),
        output_shapes=[shape for shape, _ in outputs.values()],
        output_dtypes=[dtype for _, dtype in outputs.values()],
        grid=grid,
        threadgroup=fitted,
        template=list(template) or None,
    )
    return found


@cache
def kernel(folder: Path, prefix: str, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Callable[..., Any]:
    """The kernel of `<name>.metal`, whose text is read at its first use."""
    from gradcheck.metal import metal_kernel  # where a kernel is launched, not where its file is imported

    return metal_kernel(
        name=f"{prefix}_{name}",
        input_names=list(inputs),
        output_names=list(outputs),
        source=(folder / f"{name}.metal").read_text(encoding="utf-8"),
        header=(folder / "common.metal").read_text(encoding="utf-8"),
    )
