"""Kernels that MLX runs on a GPU: an Apple one, or one of NVIDIA's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from gradcheck.metal.arguments import as_arrays, dtype_name, template_value
from gradcheck.metal.cuda import cuda_kernel, fitted, translate
from gradcheck.metal.executor import Launched
from gradcheck.metal.observe import tell, watched
from gradcheck.metal.signature import Shape, Signature, Text, render, sign


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel of MLX's own, noted by the tap."""

    text: Text
    function: Callable[..., list[mx.array]]

    def __call__(self, **arguments: Any) -> list[mx.array]:  # noqa: ANN401 - MLX's own
        """Call it."""
        outputs = self.function(**arguments)
        _note(self.text, "metal", arguments)
        return outputs


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel of an NVIDIA GPU, noted by the tap. Like MLX's own it has no gradient."""

    text: Text
    contiguous: bool

    def __call__(self, **arguments: Any) -> list[mx.array]:  # noqa: ANN401 - MLX's own
        """Call it, with the arguments of a Metal kernel.

        Raises:
            ValueError: arguments that do not fit, see `fitted`.
            RuntimeError: MLX's, where the text does not compile.
        """
        inputs = as_arrays(arguments["inputs"])
        grid = tuple(arguments["grid"])
        threadgroup, ragged = fitted(grid, tuple(arguments["threadgroup"]))
        text = translate(self.text, _signature(self.text, arguments), ragged=ragged)
        size = [mx.array(grid, mx.uint32)] if ragged else []
        blocks = [math.ceil(extent / each) * each for extent, each in zip(grid, threadgroup, strict=True)]
        taken = {
            name: arguments[name] for name in ("output_shapes", "output_dtypes", "init_value", "verbose", "stream") if name in arguments
        }
        made = cuda_kernel(text, self.text.name, self.contiguous)
        outputs = made(inputs=[*inputs, *size], grid=tuple(blocks), threadgroup=threadgroup, **taken)
        _note(self.text, "metal-cuda", arguments)
        return outputs


def _note(text: Text, place: str, arguments: Mapping[str, Any]) -> None:
    if watched():
        source = render(text, _signature(text, arguments))
        tell(Launched(text, place, source, (), (), arguments["grid"], arguments["threadgroup"]))


def _signature(text: Text, arguments: Mapping[str, Any]) -> Signature:
    shapes = [Shape.of(dtype_name(array.dtype), array.ndim, array.size) for array in as_arrays(arguments["inputs"])]
    template = [(name, template_value(value)) for name, value in arguments.get("template") or ()]
    return sign(text, shapes, [dtype_name(dtype) for dtype in arguments["output_dtypes"]], template)
