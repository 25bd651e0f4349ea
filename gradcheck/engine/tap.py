"""See what a custom VJP in MLX returns, before MLX does.

MLX drops whatever is not an array from what a custom VJP returns, appends the cotangents, and pairs the result with the primals by
position. So one gradient too few, a `None` or a Python number silently yields a neighbour's gradient or a cotangent, and an empty
tuple may read past the end. The tap looks first, writes down what is wrong, and hands MLX NaN in that place: what depends on a
gradient that is not there cannot be mistaken for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import mlx.core as mx
from mlx.utils import tree_flatten

from gradcheck.engine.mlx_arrays import dtype_of, shape_of

Signature = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Backward:
    """One call of a custom VJP.

    Args:
        function: name of the VJP.
        primals: shape and dtype of each primal, in order.
        returned: how many gradients it returned.
        problems: one per primal, empty where the gradient fits.
    """

    function: str
    primals: Signature
    returned: int
    problems: tuple[str, ...]

    @property
    def note(self) -> str:
        """What is wrong, in one sentence, or nothing."""
        wrong = [f"of primal {i}: {problem}" for i, problem in enumerate(self.problems) if problem]
        if self.returned > len(self.primals):
            wrong.append("too many")
        if not wrong:
            return ""
        return f"the vjp {self.function} returned {self.returned} gradients for {len(self.primals)} primals; {'; '.join(wrong)}"


_CALLS: ContextVar[list[Backward] | None] = ContextVar("backward calls", default=None)


class TappedFunction(mx.custom_function):
    """An `mx.custom_function` whose VJP is looked at. Where the VJP is right it behaves as the original."""

    def vjp(self, function: Callable[..., object]) -> TappedFunction:
        """Register `function` as the VJP."""
        super().vjp(_guarded(function))
        return self

    def jvp(self, function: Callable[..., object]) -> TappedFunction:
        """Register `function` as the JVP."""
        super().jvp(function)
        return self

    def vmap(self, function: Callable[..., object]) -> TappedFunction:
        """Register `function` as the vectorisation."""
        super().vmap(function)
        return self


@contextmanager
def tap_custom_functions() -> Iterator[list[Backward]]:
    """Within the block `mx.custom_function` makes tapped functions, and backward calls of tapped functions go into the list.

    A tapped function stays tapped after the block and reports to the block in which it is called. A function that was made before
    any block, by a module imported earlier, is not tapped: enter the block before the import.
    """
    original = mx.custom_function
    calls: list[Backward] = []
    token = _CALLS.set(calls)
    mx.custom_function = TappedFunction  # type: ignore[misc]
    try:
        yield calls
    finally:
        mx.custom_function = original  # type: ignore[misc]
        _CALLS.reset(token)


def signature(arrays: Sequence[object]) -> Signature:
    """Shape and dtype of each array."""
    return tuple((shape_of(array), dtype_of(array)) for array in arrays)


def _guarded(function: Callable[..., object]) -> Callable[..., object]:
    def guarded(primals: object, cotangents: object, outputs: object) -> tuple[mx.array, ...]:
        wants = _leaves(primals)
        gots = _leaves(function(primals, cotangents, outputs))
        if len(gots) == len(wants):  # a Python number among the primals has no gradient, and MLX drops both
            gots = [got for want, got in zip(wants, gots, strict=True) if isinstance(want, mx.array) or isinstance(got, mx.array)]
        arrays = [want for want in wants if isinstance(want, mx.array)]
        problems = tuple(_problem(i, arrays, gots) for i in range(len(arrays)))
        if (calls := _CALLS.get()) is not None:
            calls.append(Backward(getattr(function, "__name__", repr(function)), signature(arrays), len(gots), problems))
        return tuple(_fit(want, gots[i : i + 1], problem) for i, (want, problem) in enumerate(zip(arrays, problems, strict=True)))

    return guarded


def _leaves(tree: object) -> list[object]:
    return [] if tree is None else [pair[1] for pair in tree_flatten(tree)]


def _problem(i: int, wants: Sequence[mx.array], gots: Sequence[object]) -> str:
    """What is wrong with gradient `i`. Its dtype is not looked at: MLX passes it on, and the caller sees it."""
    want = wants[i]
    differentiable = mx.issubdtype(want.dtype, mx.inexact)
    if i >= len(gots):
        return f"missing: the vjp returned {len(gots)} gradients for {len(wants)} inputs" if differentiable else ""
    got = gots[i]
    if not isinstance(got, mx.array):
        if not differentiable and not any(isinstance(later, mx.array) for later in gots[i + 1 :]):
            return ""  # nothing comes after it that MLX could put in its place
        return "is None" if got is None else f"not an array: {type(got).__name__}"
    if differentiable and shape_of(got) != shape_of(want):
        return f"has shape {shape_of(got)}, want {shape_of(want)}"
    return ""


def _fit(want: mx.array, got: Sequence[object], problem: str) -> mx.array:
    """The gradient itself; NaN where there is a problem, zero where none is needed."""
    if not problem and got and isinstance(got[0], mx.array):
        return got[0]
    if mx.issubdtype(want.dtype, mx.inexact):
        return mx.full(want.shape, mx.nan, want.dtype)
    return mx.zeros_like(want)
