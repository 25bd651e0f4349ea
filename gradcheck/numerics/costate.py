"""The oracle `costate`: all gradients by one-step differences, at about the cost of two dozen forwards, with no factor T.

L = <w_y, y> + <w_s, s_T>. The loss seen from step t on is a functional of s_t alone; P_t is its slope:

    P_T = w_s,    P_{t-1} = slope in s of <P_t, step_t(s)> + <w_t, terms_t(s)>     at the stored s_{t-1},

and the gradient of an input at t is the slope of the same expression in that input. Every slope is a difference of the step
(`differences`); only the chain rule through the state is assumed. Coupled states (delta rules) take one difference per element of
the coupled axes, independent ones one for all. All steps of a block are differenced at once, and only the small recursion of P
runs step by step. Memory O(T · state).

Beside each value runs its **majorant**, the scale of its rounding: the same recursion on absolute slopes. The error is truncation,
estimated by halving the step, plus rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck.numerics.differences import Slope
from gradcheck.numerics.forward import Sequence as Call
from gradcheck.numerics.forward import forward, sequence
from gradcheck.numerics.lanes import Lanes, gather, lanes
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import Sweep, magnitudes
from gradcheck.numerics.tails import Tails, majorants, tails

ROUNDINGS = 8.0
"""Roundings that one step may add to a value, each of u times its majorant: the products, exponentials and sums of a step of the
shipped references are 4 to 7."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One output or gradient: value, elementwise error bound, majorant (see `gradcheck.Quantity`)."""

    value: Array
    error: Array
    majorant: Array


@dataclass(frozen=True, slots=True)
class Answers:
    """Outputs in packed order (y, final state), and gradients by input."""

    outputs: tuple[Answer, Answer]
    gradients: Mapping[str, Answer]


def costate(recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array) -> Answers:
    """Outputs, and all gradients of L = <w_y, y> + <w_s, s_T>, in float64.

    Args:
        recurrence: the step and its axes.
        inputs: by name, in the layout that the recurrence declares.
        w_y, w_s: cotangents of y and of the final state, in their layouts.

    Raises:
        ValueError: shapes do not fit.
    """
    sweep, y = _sweep(sequence(recurrence, inputs), w_y, w_s)
    past = tails(sweep)
    rounding = _unit() * (sweep.call.length + 1)
    outputs = (y, sweep.states[-1])
    y_scale, state_scales = majorants(sweep)
    scales = (np.moveaxis(y_scale, 0, recurrence.output.index(TIME)), state_scales[-1])
    extremes = _extremes(recurrence, inputs, sweep, state_scales)
    state_error = rounding * past.majorant[0] + (0 if past.error is None else past.error[0])
    state = Answer(past.value[0], state_error, past.majorant[0])
    return Answers(
        tuple(Answer(v, rounding * m, m) for v, m in zip(outputs, scales, strict=True)),  # type: ignore[arg-type] # a pair
        {name: state if name == recurrence.state else _gradient(sweep, name, past, extremes) for name in recurrence.differentiable},
    )


def model(
    recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array, carry: str = ""
) -> tuple[Array, Array, dict[str, Array]]:
    """(y, s_T, gradients) as a correct float32 kernel may compute them: the same recursions in single precision, by complex step.

    What differs from `costate` is what rounding explains. `carry` rounds the state and its cotangent to that dtype after each step.
    """
    sweep, y = _sweep(sequence(recurrence, inputs, np.float32), w_y, w_s, carry, single=True)
    past = tails(sweep)
    gradients = {
        name: past.value[0] if name == recurrence.state else _gradient(sweep, name, past).value for name in recurrence.differentiable
    }
    return y, sweep.states[-1], gradients


def _sweep(call: Call, w_y: Array, w_s: Array, carry: str = "", *, single: bool = False) -> tuple[Sweep, Array]:
    y, states = forward(call, carry)
    weights = np.moveaxis(np.asarray(w_y), call.recurrence.output.index(TIME), 0).astype(states.dtype)
    return Sweep(call, states, np.ascontiguousarray(weights), np.asarray(w_s).astype(states.dtype), carry, single), y


def _unit() -> float:
    return ROUNDINGS * float(np.finfo(np.float64).eps) / 2


def _extremes(recurrence: Recurrence, inputs: Mapping[str, Array], sweep: Sweep, scales: Array) -> tuple[Sweep, ...]:
    """The same call with the states at plus and minus their majorants; single precision is enough for a scale.

    An input that reads the state without writing to it (C, q) has the state itself for its slope. A state that is near zero by
    cancellation still carries the rounding of what cancelled, so the scale of that slope is the majorant of the state.
    """
    call = sequence(recurrence, inputs, np.float32)
    with np.errstate(over="ignore"):
        scales = scales.astype(np.float32)
    return tuple(Sweep(call, states, sweep.w_y, sweep.w_s, single=True) for states in (scales, -scales))


def _reads_only(sweep: Sweep, name: str, here: Lanes) -> bool:
    """Whether the input leaves the state alone, seen at the first step."""
    return not any(slope.value[0].any() for _, slope in sweep.slopes(name, here, slice(0, 1)))


def _gradient(sweep: Sweep, name: str, past: Tails, extremes: tuple[Sweep, ...] = ()) -> Answer:
    """The gradient of an input that is not the initial state; with `extremes` also its error and majorant."""
    call = sweep.call
    here = lanes(call.recurrence, name)
    shape = (1 if here.static else call.length, *call.at(slice(0, 1))[name].shape[1:])
    value, error, majorant = (np.zeros(shape, sweep.states.dtype) for _ in range(3))
    wide = extremes if _reads_only(sweep, name, here) else ()
    for block in sweep.blocks():
        after = slice(block.start + 1, block.stop + 1)
        w = sweep.weights(block)
        bound = None if sweep.single else _Bound.of(sweep, here, block, past)
        at_extremes = zip(*(extreme.slopes(name, here, block) for extreme in wide), strict=True) if wide else itertools.repeat(())
        for (index, slope), others in zip(sweep.slopes(name, here, block), at_extremes, strict=False):
            at = (slice(0, 1) if here.static else block, *index)
            value[at] += _settle(here, gather(here, here.readout, slope.value, (past.value[after], *w), call.sizes))
            if bound is not None:
                scale, off = bound(slope, [other.value for _, other in others])
                majorant[at] += _settle(here, scale)
                error[at] += _settle(here, off)
    return Answer(*(_as_declared(call.recurrence, name, here, a) for a in (value, error, majorant)))


@dataclass(frozen=True, slots=True)
class _Bound:
    """Majorant and error of the contributions of one block to one gradient."""

    here: Lanes
    sizes: Mapping[str, int]
    weights: tuple[Array, ...]
    tail_error: Array | None
    size: Array
    length: int

    @classmethod
    def of(cls, sweep: Sweep, here: Lanes, block: slice, past: Tails) -> _Bound:
        after = slice(block.start + 1, block.stop + 1)
        weights = (past.majorant[after], *magnitudes(sweep.weights(block)))
        # What is differenced, weighted as the differences are: its rounding is amplified by a stencil.
        size = gather(here, here.readout, magnitudes((sweep.states[after], *sweep.terms(block))), weights, sweep.call.sizes)
        return cls(here, sweep.call.sizes, weights, None if past.error is None else past.error[after], size, sweep.call.length)

    def __call__(self, slope: Slope, others: Sequence[tuple[Array, ...]]) -> tuple[Array, Array]:
        """(majorant, error) of the block's contributions; `others` are the slopes at the extremes of the state."""
        here, readout = self.here, self.here.readout
        largest = magnitudes(slope.value)
        for other in others:
            largest = tuple(np.fmax(a, np.abs(b)) for a, b in zip(largest, other, strict=True))
        scale = gather(here, readout, largest, self.weights, self.sizes)
        grown = np.reshape(slope.amplification, (-1,) + (1,) * (self.size.ndim - 1))
        off = _unit() * (scale * (self.length + 1) + self.size * grown)
        if slope.truncation is not None:
            off = off + gather(here, readout, slope.truncation, self.weights, self.sizes)
        if self.tail_error is not None:
            off = off + gather(here, readout[:1], largest[:1], (self.tail_error,), self.sizes)
        return scale, off


def _settle(here: Lanes, parts: Array) -> Array:
    """Per-step contributions as the input wants them: added over time where it is static, with its batch axis of size 1 put back."""
    if here.static:
        parts = parts.sum(0, keepdims=True)
    return parts if here.batched else np.expand_dims(parts, 1)


def _as_declared(recurrence: Recurrence, name: str, here: Lanes, value: Array) -> Array:
    """From (T or 1, B or 1, …) to the axes that the input declares."""
    if not here.batched:
        value = value.squeeze(1)
    return value[0] if here.static else np.moveaxis(value, 0, recurrence.inputs[name].index(TIME))
