"""`mx.fast.metal_kernel` on any machine: on the GPU where there is one, Apple's or NVIDIA's, else on this CPU."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import mlx.core as mx

from gradcheck.metal.arguments import as_arrays, dtype_name, template_value
from gradcheck.metal.errors import KernelFault
from gradcheck.metal.executor import Arguments, execute
from gradcheck.metal.gpu import CudaKernel, GpuKernel
from gradcheck.metal.observe import tell
from gradcheck.metal.settings import current
from gradcheck.metal.signature import Text

Place = Literal["metal", "metal-cuda", "metal-cpu"]
Template = Sequence[tuple[str, "mx.Dtype | int | bool"]]

# MLX's own, also while a tap or `gradcheck sanitize` has put others in their place.
_MLX_KERNEL = inspect.unwrap(mx.fast.metal_kernel)
_HAS_GPU = inspect.unwrap(mx.metal.is_available)

_MATH_MODES = ("safe", "relaxed", "fast")


def place() -> Place:
    """Where kernels run: `metal` is an Apple GPU, `metal-cuda` one of NVIDIA's; what `metal-cpu` computes is not to be counted as a GPU's."""
    return "metal" if _HAS_GPU() else "metal-cuda" if mx.cuda.is_available() else "metal-cpu"


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,  # noqa: FBT001, FBT002 - MLX's own signature
    atomic_outputs: bool = False,  # noqa: FBT001, FBT002
    compile_options: Mapping[str, str] | None = None,
) -> Callable[..., list[mx.array]]:
    """A Metal kernel from the body of its function, with the arguments, defaults and errors of `mx.fast.metal_kernel`.

    On a CPU the outputs are computed when the kernel is called, not when they are looked at. There it has no gradient, as on the GPU:
    `mx.grad` through it raises; wrap the call in an `mx.custom_function` with a `vjp`.

    Args:
        name: part of the function's name.
        input_names: names of the inputs in the body; `<name>_shape`, `<name>_strides` and `<name>_ndim` are there if the body names them.
        output_names: names of the outputs.
        source: the body.
        header: what stands before the function.
        ensure_row_contiguous: copy inputs whose rows do not touch.
        atomic_outputs: outputs are `device atomic<T>*`.
        compile_options: `math_mode`: `safe` (IEEE; the default), `relaxed` or `fast`.

    Returns:
        A callable of keywords only: inputs, output_shapes, output_dtypes, grid, threadgroup, template, init_value, verbose, stream.

    Raises:
        ValueError: no output, or compile options that there are not.
    """
    on_cpu = cpu_kernel(name, input_names, output_names, source, header, ensure_row_contiguous, atomic_outputs, compile_options)
    if place() == "metal":
        # Older MLX has no compile options, and needs none where there are none.
        options = {"compile_options": dict(compile_options)} if compile_options else {}
        on_gpu = _MLX_KERNEL(name, input_names, output_names, source, header, ensure_row_contiguous, atomic_outputs, **options)
        return GpuKernel(on_cpu.text, cast("Callable[..., list[mx.array]]", on_gpu))
    return CudaKernel(on_cpu.text, ensure_row_contiguous) if place() == "metal-cuda" else on_cpu


def cpu_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,  # noqa: FBT001, FBT002
    atomic_outputs: bool = False,  # noqa: FBT001, FBT002
    compile_options: Mapping[str, str] | None = None,
) -> CpuKernel:
    """As `metal_kernel`, but for this CPU also where there is a GPU.

    Raises:
        ValueError: as `metal_kernel`.
    """
    text = Text(name, tuple(input_names), tuple(output_names), source, header, atomic_outputs)
    if not text.output_names:
        raise ValueError("[metal_kernel] Must specify at least one output.")
    return CpuKernel(text, ensure_row_contiguous, _math_mode(compile_options))


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """A kernel that runs on this CPU."""

    text: Text
    contiguous: bool
    math_mode: str

    def __call__(  # noqa: PLR0913 - MLX's own
        self,
        *,
        inputs: Sequence[mx.array | float],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Template | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: object = None,
    ) -> list[mx.array]:
        """Run it.

        Raises:
            ValueError: arguments that do not fit, as in MLX; or a call within mx.compile or mx.vmap, which cannot wait for a CPU's result.
            MetalError: the kernel does not compile, dies, or (checked) does what it may not, see `KernelFault`.
        """
        for what, got, want in (
            ("inputs", inputs, self.text.input_names),
            ("output_shapes", output_shapes, self.text.output_names),
            ("output_dtypes", output_dtypes, self.text.output_names),
        ):
            if len(got) != len(want):
                raise ValueError(f"[metal_kernel] Expected `{what}` to have size {len(want)} but got size {len(got)}.")
        if stream is not None and _is_cpu(stream):
            raise ValueError("[metal_kernel] Only supports the GPU.")
        arguments = tuple((name, template_value(value)) for name, value in template or ())
        arrays = as_arrays(inputs)

        def forward(*given: mx.array) -> list[mx.array]:
            _evaluate(given, self.text.name)
            asked = Arguments(
                given,
                tuple(tuple(shape) for shape in output_shapes),
                tuple(dtype_name(dtype) for dtype in output_dtypes),
                _three("grid", grid),
                _three("threadgroup", threadgroup),
                arguments,
                init_value,
            )
            chosen = current()
            outputs, launched = execute(self.text, asked, chosen, contiguous=self.contiguous, math_mode=self.math_mode, verbose=verbose)
            tell(launched)
            if launched.wrong and not chosen.keep_going:
                raise KernelFault(self.text.name, launched.findings)
            return outputs

        return list(_opaque(forward)(*arrays)) if arrays else forward()


def _opaque(forward: Callable[..., list[mx.array]]) -> Callable[..., list[mx.array]]:
    """The function as a primitive without derivatives. Bare it would be a constant: gradients through it would be zeros."""
    function = mx.custom_function(forward)
    function.vjp(functools.partial(_no_derivative, "vjp"))
    function.jvp(functools.partial(_no_derivative, "jvp"))
    return cast("Callable[..., list[mx.array]]", function)


def _no_derivative(which: str, *_: object) -> object:
    raise ValueError(
        f"[Primitive::{which}] Not implemented for CustomKernel. A Metal kernel has no derivative of its own: "
        f"call it in an mx.custom_function that has a {which}."
    )


def _evaluate(arrays: Sequence[mx.array], name: str) -> None:
    try:
        mx.eval(*arrays)
    except ValueError as error:
        if "transformations" not in str(error):
            raise
        raise ValueError(
            f"[metal_kernel] {name!r} runs on the CPU when it is called, and within mx.compile or mx.vmap its inputs have no values yet: "
            "call it outside of them (mx.disable_compile() turns mx.compile off)."
        ) from error


def _math_mode(options: Mapping[str, str] | None) -> str:
    if options is None:
        return "safe"
    if not isinstance(options, Mapping):
        raise ValueError("[metal_kernel] Expected `compile_options` to be a dict.")  # noqa: TRY004 - MLX's own error
    for key in options:
        if key != "math_mode":
            raise ValueError(f"[metal_kernel] Unknown compile option `{key}`.")
    mode = options.get("math_mode", "safe")
    if mode not in _MATH_MODES:
        raise ValueError("[metal_kernel] Expected math_mode to be 'safe', 'relaxed', or 'fast'.")
    return mode


def _three(what: str, value: Sequence[int]) -> tuple[int, int, int]:
    if len(value) != 3 or not all(isinstance(extent, int) for extent in value):
        raise TypeError(f"[metal_kernel] `{what}` is {value!r}: give a tuple of three ints.")
    if min(value) < 0:
        raise ValueError(f"[metal_kernel] `{what}` is {tuple(value)}: no extent is below zero.")
    return value[0], value[1], value[2]


def _is_cpu(stream: object) -> bool:
    device = getattr(stream, "device", stream)
    return device in {mx.cpu, mx.Device(mx.cpu)} if isinstance(device, mx.DeviceType) else device == mx.Device(mx.cpu)


if (_hook := sys.modules.get("gradcheck.metal.sanitize_hook")) is not None:  # a program under `gradcheck sanitize`
    _hook.loaded(sys.modules[__name__])
