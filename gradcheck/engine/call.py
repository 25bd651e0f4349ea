"""The one place where a kernel under test is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from gradcheck import F64, GradcheckError, UsageError
from gradcheck.engine.arrays import Arrays, arrays_of, is_object

if TYPE_CHECKING:
    from gradcheck.engine.tap import Backward

Values = npt.NDArray[np.generic]


class NoBackward(GradcheckError):
    """The kernel has no VJP at all, so that no gradient can be checked."""


@dataclass(frozen=True, slots=True)
class Got:
    """One output or gradient as the kernel returned it: its value in float64, or the problem that keeps it from having one."""

    value: F64 | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of a kernel yielded.

    Args:
        outputs: in packed order.
        gradients: one per differentiable input, in input order; empty when only the forward was asked for.
        notes: failures by themselves, whatever the numbers are: `forward overwrites its input x`.
    """

    outputs: tuple[Got, ...]
    gradients: tuple[Got, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """What `call` was asked, and the arrays it is asked with."""

    inputs: Mapping[str, Values]
    cotangents: Sequence[F64]
    dtype: str
    output_shapes: Sequence[tuple[int, ...]]
    differentiable: tuple[str, ...]
    arrays: Arrays
    layout: str

    def fresh(self) -> dict[str, object]:
        """New arrays of every input, so that a kernel that writes on them spoils nothing."""
        return {name: self._make(value, self.dtype if name in self.differentiable else "") for name, value in self.inputs.items()}

    def weights(self, dtypes: Sequence[str]) -> tuple[object, ...]:
        """New arrays of every cotangent."""
        return tuple(self._make(value, dtype) for value, dtype in zip(self.cotangents, dtypes, strict=True))

    def _make(self, value: Values, dtype: str) -> object:
        # Only a first axis that is the batch may be broadcast, and values that differ along it cannot be.
        same = self.layout != "broadcast" or (np.ndim(value) > 1 and bool((value == value[:1]).all()))
        return self.arrays.make(value, dtype, self.layout if same else "")

    @property
    def want(self) -> str:
        """Dtype of a gradient."""
        return self.arrays.DTYPES[self.dtype]

    def outputs(self, returned: object) -> tuple[Got, ...]:
        """The outputs. A half-precision kernel may return its outputs, such as a state that it carries, in float32."""
        dtypes = tuple(dict.fromkeys((self.want, "float32")))
        return _gots(self.arrays, returned, self.output_shapes, dtypes, "the forward returned {} outputs for {}")

    def gradients(self, returned: object) -> tuple[Got, ...]:
        """The gradients, out of one per differentiable input or one per input."""
        names = tuple(self.inputs) if len(_sequence(returned)) == len(self.inputs) else self.differentiable
        shapes = [np.shape(self.inputs[name]) for name in names]
        gots = _gots(self.arrays, returned, shapes, (self.want,), "the vjp returned {} gradients for {} inputs")
        by_name = dict(zip(names, gots, strict=True))
        return tuple(by_name[name] for name in self.differentiable)

    def overwritten(self, who: str, given: Mapping[str, object]) -> list[str]:
        """Notes on the inputs that no longer hold what they held."""
        return [
            f"{who} overwrites its input {name}"
            for name, array in given.items()
            if not np.array_equal(self.arrays.numbers(array), np.asarray(self.inputs[name], dtype=np.float64), equal_nan=True)
        ]


def call(
    kernel: object,
    inputs: Mapping[str, Values],
    cotangents: Sequence[F64],
    *,
    dtype: str,
    output_shapes: Sequence[tuple[int, ...]],
    differentiable: Sequence[str],
    forward_only: bool = False,
    layout: str = "",
) -> Call:
    """Call a kernel and its VJP once, on fresh arrays, and look at all that they return.

    Two kinds of kernel:

    * a callable on MLX arrays, which takes the inputs in order and returns the outputs; differentiated by `mx.vjp`;
    * an object with `forward(*inputs) -> outputs` and `vjp(inputs, cotangents) -> gradients`, over NumPy or MLX arrays; it gets two
      tuples and returns one gradient per differentiable input, or one per input.

    `arrays_of` says which array library a kernel gets. One array instead of a tuple of one is accepted. Numbers that are not finite
    are no problem here: the metrics judge them.

    Args:
        kernel: the kernel.
        inputs: in the op's order; the differentiable ones in float64, already rounded to `dtype`; the others keep their own dtype.
        cotangents: one per output, in float64, already rounded to `dtype`.
        dtype: `f32`, `f16` or `bf16`: of the arrays that the kernel gets.
        output_shapes: shape of each output.
        differentiable: the inputs that have a gradient, in order.
        forward_only: leave the VJP alone.
        layout: one of `LAYOUTS`: how the arrays lie in memory. By default row by row.

    Raises:
        NoBackward: the kernel has no VJP, and one was asked for.
        UsageError: it is not a kernel, or its array library lacks the dtype.
        Exception: whatever the kernel raises.
    """
    if not callable(kernel) and not callable(getattr(kernel, "forward", None)):
        raise UsageError(f"not a kernel: {kernel!r} is neither callable nor an object with `forward` and `vjp`")
    arrays = arrays_of(kernel)
    if dtype not in arrays.DTYPES:
        known = ", ".join(arrays.DTYPES)
        raise UsageError(
            f"a kernel on {arrays.NAME} arrays cannot take {dtype}: {arrays.NAME} has {known}; use one of these, or MLX arrays"
        )
    request = _Request(inputs, cotangents, dtype, output_shapes, tuple(differentiable), arrays, layout)
    if arrays.NAME == "mlx":
        from gradcheck.engine.tap import tap_custom_functions  # MLX only where a kernel needs it

        tap: Any = tap_custom_functions()
    else:
        tap = nullcontext([])
    with tap as backwards:
        if is_object(kernel):
            return _call_object(kernel, request, backwards, forward_only=forward_only)
        if forward_only:
            return _forward(cast("Callable[..., object]", getattr(kernel, "forward", kernel)), request)[0]
        if arrays.NAME != "mlx" or not callable(kernel):
            raise NoBackward(
                f"{kernel!r} has no backward: a kernel on {arrays.NAME} arrays needs `forward` and `vjp`; "
                "check it with --forward-only, or, if it takes MLX arrays, give it an attribute arrays = 'mlx'"
            )
        return _call_mlx(kernel, request, backwards)


def _forward(function: Callable[..., object], request: _Request) -> tuple[Call, object]:
    given = request.fresh()
    returned = function(*given.values())
    return Call(request.outputs(returned), (), tuple(request.overwritten("forward", given))), returned


def _call_object(kernel: object, request: _Request, backwards: list[Backward], *, forward_only: bool) -> Call:
    arrays = request.arrays
    target = cast("Any", kernel)
    forward, returned = _forward(target.forward, request)
    if forward_only:
        return forward
    # A cotangent has the dtype of its output, which may be wider than the case's.
    wide = [arrays.is_array(output) and arrays.dtype_of(output) == "float32" for output in _sequence(returned)]
    dtypes = ["f32" if is_wide else request.dtype for is_wide, _ in zip_longest(wide, request.cotangents)][: len(request.cotangents)]
    given = request.fresh()
    cotangents = request.weights(dtypes)
    gradients = request.gradients(target.vjp(tuple(given.values()), cotangents))
    spoilt = [
        f"vjp overwrites cotangent {i}"
        for i, (array, value) in enumerate(zip(cotangents, request.cotangents, strict=True))
        if not np.array_equal(arrays.numbers(array), value, equal_nan=True)
    ]
    notes = (*forward.notes, *request.overwritten("vjp", given), *spoilt, *(call.note for call in backwards if call.note))
    return Call(forward.outputs, gradients, notes)


class _Unfit(Exception):  # nobody's error: it ends the trace, since MLX cannot pair such outputs with cotangents
    pass


def _call_mlx(kernel: Callable[..., object], request: _Request, backwards: list[Backward]) -> Call:
    import mlx.core as mx  # MLX only where a kernel needs it

    arrays, given = request.arrays, request.fresh()
    returned: list[Any] = []
    dtype = getattr(mx, request.want)

    def traced(*moving: mx.array) -> list[mx.array]:
        given.update(zip(request.differentiable, moving, strict=True))
        returned[:] = _sequence(kernel(*given.values()))
        shapes = [arrays.shape_of(output) if arrays.is_array(output) else None for output in returned]
        if shapes != [tuple(shape) for shape in request.output_shapes]:
            raise _Unfit
        # To the case's dtype, and the cotangent back from it: so that a cotangent has the dtype of its output.
        return [output.astype(dtype) for output in returned]

    primals: Any = [given[name] for name in request.differentiable]
    cotangents: Any = list(request.weights([request.dtype] * len(request.cotangents)))
    try:
        _, gradients = mx.vjp(traced, primals, cotangents)
    except _Unfit:
        nothing = Got(None, "not computed: the outputs do not fit")
        return Call(request.outputs(returned), (nothing,) * len(primals), ())
    except (ValueError, RuntimeError) as error:
        if "vjp] Not implemented" not in str(error):
            raise
        hint = "register a VJP (mx.custom_function), or check it with --forward-only"
        raise NoBackward(f"{kernel!r} has no backward: {error} Next: {hint}.") from error
    arrays.evaluate(*gradients)
    named, notes = _tapped(backwards, request, given)
    gots = (
        Got(None, named[name]) if name in named else got
        for name, got in zip(request.differentiable, request.gradients(tuple(gradients)), strict=True)
    )
    return Call(request.outputs(returned), tuple(gots), (*request.overwritten("forward", given), *notes))


def _tapped(backwards: list[Backward], request: _Request, given: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """What the tap saw: problems by input where a custom function's primals are the kernel's inputs in order, notes on the rest."""
    from gradcheck.engine.tap import signature

    orders = {signature([given[name] for name in names]): names for names in (request.differentiable, tuple(request.inputs))}
    named: dict[str, str] = {}
    notes: list[str] = []
    for backward in backwards:
        names = orders.get(backward.primals, ())
        found = {
            name: problem for name, problem in zip(names, backward.problems, strict=False) if problem and name in request.differentiable
        }
        named.update(found)
        if backward.note and not found:
            notes.append(backward.note)
    return named, notes


def _sequence(returned: object) -> list[Any]:
    if returned is None:
        return []
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _gots(arrays: Arrays, returned: object, shapes: Sequence[tuple[int, ...]], dtypes: tuple[str, ...], count: str) -> tuple[Got, ...]:
    """One per shape, by position. `count` is the sentence for a wrong number of them."""
    given = _sequence(returned)
    count = count.format(len(given), len(shapes))
    if len(given) > len(shapes):  # nobody can say which is which
        return (Got(None, f"one of too many: {count}"),) * len(shapes)
    there = [_got(arrays, thing, tuple(shape), dtypes) for thing, shape in zip(given, shapes, strict=False)]
    return (*there, *(Got(None, f"missing: {count}"),) * (len(shapes) - len(given)))


def _got(arrays: Arrays, thing: object, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> Got:
    if thing is None:
        return Got(None, "is None")
    if not arrays.is_array(thing):
        return Got(None, f"not an array: {type(thing).__module__}.{type(thing).__name__}, want {arrays.NAME}")
    if arrays.shape_of(thing) != shape:
        return Got(None, f"has shape {arrays.shape_of(thing)}, want {shape}")
    if arrays.dtype_of(thing) not in dtypes:
        return Got(None, f"has dtype {arrays.dtype_of(thing)}, want {' or '.join(dtypes)}")
    return Got(arrays.numbers(thing))


@dataclass(frozen=True, slots=True)
class Canary:
    """A kernel's outputs with gradients of zeros: a check that lets it pass checks nothing."""

    kernel: Any
    arrays: str

    def forward(self, *inputs: object) -> object:
        """The kernel's own outputs."""
        function = self.kernel.forward if is_object(self.kernel) else self.kernel
        return function(*inputs)

    def vjp(self, inputs: tuple[object, ...], _cotangents: tuple[object, ...]) -> tuple[object, ...]:
        """Zeros, one per input."""
        return tuple(arrays_of(self).zeros_like(array) for array in inputs)


def canary(kernel: object) -> Canary:
    """The kernel with gradients of zeros, which every run must find wrong."""
    return Canary(kernel, arrays_of(kernel).NAME)
