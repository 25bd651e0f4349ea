"""A function under test, called in a chosen precision: arrays in and out as NumPy's float64, whatever library it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck._errors import UsageError
from gradcheck._truth import F64
from gradcheck.engine.arrays import Arrays, arrays_of, is_object

Values = npt.NDArray[np.generic]
LONG = "float64"
FLOATING = ("float32", "float16", "bfloat16", LONG)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a function is called with.

    Args:
        values: by name, in the order of its arguments; the floating ones in float64, exactly representable in `dtype`.
        differentiable: names of the floating ones.
        dtype: long name of the dtype in which they were given, `float32`; what was given in float64 is rounded to float32.
    """

    values: Mapping[str, Values]
    differentiable: tuple[str, ...]
    dtype: str

    def with_(self, name: str, value: F64) -> Inputs:
        """The same with another value of one input."""
        return Inputs({**self.values, name: value}, self.differentiable, self.dtype)


@dataclass(frozen=True, slots=True)
class Function:
    """A callable on MLX arrays, or an object with `forward` and `vjp`. `arrays` is the library whose arrays it takes."""

    it: Any
    arrays: Arrays

    def forward(self, inputs: Inputs, dtype: str) -> list[object]:
        """Its outputs as it returns them, on floating inputs of `dtype`."""
        with self._place(dtype):
            returned = (self.it.forward if is_object(self.it) else self.it)(*self._given(inputs, dtype))
            outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            self.arrays.evaluate(*outputs)
        return outputs

    def numbers(self, inputs: Inputs, dtype: str) -> list[F64]:
        """Its outputs in float64, on floating inputs of `dtype`."""
        return [self.arrays.numbers(output) for output in self.forward(inputs, dtype)]

    def vjp(self, inputs: Inputs, weights: Sequence[F64]) -> list[F64 | None]:
        """Its own gradients in float64, one per differentiable input; None where it gives none of that dtype and shape."""
        with self._place(LONG):
            given = self._given(inputs, LONG)
            cotangents = [self._array(weight, LONG) for weight in weights]
            names = inputs.differentiable
            if is_object(self.it):
                found = list(self.it.vjp(tuple(given), tuple(cotangents)))
                names = tuple(inputs.values) if len(found) == len(inputs.values) else names
            else:
                found = self._mlx_vjp(inputs, given, cotangents)
            by_name = dict(zip(names, found, strict=False))
            return [self._long(by_name.get(name), inputs.values[name].shape) for name in inputs.differentiable]

    def _mlx_vjp(self, inputs: Inputs, given: list[object], cotangents: list[object]) -> list[object]:
        import mlx.core as mx  # MLX only where a function needs it

        order = list(inputs.values)
        places = [order.index(name) for name in inputs.differentiable]

        def moving(*primals: mx.array) -> list[mx.array]:
            arguments = list(given)
            for place, primal in zip(places, primals, strict=True):
                arguments[place] = primal
            returned = self.it(*arguments)
            return list(returned) if isinstance(returned, (tuple, list)) else [returned]

        primals: Any = [given[place] for place in places]
        _, gradients = mx.vjp(moving, primals, cotangents)  # type: ignore[arg-type] # arrays of MLX, since `arrays` is MLX
        self.arrays.evaluate(*gradients)
        return list(gradients)

    def _long(self, got: object, shape: tuple[int, ...]) -> F64 | None:
        fits = self.arrays.is_array(got) and self.arrays.dtype_of(got) == LONG and self.arrays.shape_of(got) == shape
        return self.arrays.numbers(got) if fits else None

    def _given(self, inputs: Inputs, dtype: str) -> list[object]:
        return [self._array(value, dtype if name in inputs.differentiable else "") for name, value in inputs.values.items()]

    def _array(self, value: Values, dtype: str) -> object:
        if self.arrays.NAME != "mlx":
            return np.array(value, dtype=dtype or value.dtype)
        import mlx.core as mx

        if not dtype:
            return mx.array(value)
        # mx.array takes NumPy's float64 for float32 unless it is told.
        return mx.array(value, dtype=mx.float64) if dtype == LONG else mx.array(value.astype(np.float32)).astype(getattr(mx, dtype))

    def _place(self, dtype: str) -> AbstractContextManager[object]:
        """Where it runs: MLX has float64 on the CPU alone."""
        if self.arrays.NAME != "mlx" or dtype != LONG:
            return nullcontext()
        import mlx.core as mx

        return mx.stream(mx.cpu)


def function_of(fn: object) -> Function:
    """The function under test.

    Raises:
        UsageError: it is neither a callable on MLX arrays nor an object with `forward` and `vjp`.
    """
    if not (is_object(fn) or callable(fn)):
        raise UsageError(f"{fn!r} is neither a callable nor an object with `forward` and `vjp`; give one of them")
    arrays = arrays_of(fn)
    if arrays.NAME != "mlx" and not is_object(fn):
        raise UsageError(
            f"{fn!r} is a callable on NumPy arrays, which nothing can differentiate: give an object with `forward` and `vjp`, "
            "or, if it takes MLX arrays, set its attribute arrays = 'mlx'"
        )
    return Function(fn, arrays)


def inputs_of(given: object, rounding: Callable[[F64, str], F64]) -> Inputs:
    """The inputs, named by their key or position. `rounding` takes float64 numbers to the nearest of a dtype.

    Raises:
        UsageError: none of them is floating, they are of several floating dtypes, or have no element or one that is not finite.
    """
    named = given if isinstance(given, Mapping) else dict(enumerate(given if isinstance(given, (tuple, list)) else (given,)))
    values: dict[str, Values] = {}
    dtypes: dict[str, str] = {}
    for key, one in named.items():
        name = str(key) if isinstance(given, Mapping) else f"input {key}"
        kind = str(getattr(one, "dtype", "")).removeprefix("mlx.core.") or str(np.asarray(one).dtype)
        if kind not in FLOATING:
            values[name] = np.asarray(one)
            continue
        dtypes[name] = "float32" if kind == LONG else kind
        values[name] = rounding(_long(one), dtypes[name])
        if not np.isfinite(values[name]).all():
            raise UsageError(f"{name} has an element that is not finite in {dtypes[name]}: no difference can be taken there")
    if not sum(values[name].size for name in dtypes):
        raise UsageError(f"nothing to compare: none of the {len(values)} inputs has a floating element; give arrays of float32")
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise UsageError(f"the inputs are of several dtypes ({found}); cast them to one, since a tolerance is of one dtype")
    return Inputs(values, tuple(dtypes), next(iter(dtypes.values())))


def _long(array: object) -> F64:
    """NumPy's float64 of an array of NumPy or MLX, or of numbers."""
    if str(getattr(array, "dtype", "")) == "mlx.core.bfloat16":  # NumPy has none
        import mlx.core as mx

        assert isinstance(array, mx.array)
        array = array.astype(mx.float32)
    return np.asarray(array).astype(np.float64)
