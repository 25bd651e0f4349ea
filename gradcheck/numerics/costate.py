"""The oracle `costate`: all gradients by one-step differences, at about the cost of two dozen forwards, with no factor T.

L = <w_y, y> + <w_s, s_T>. The loss seen from step t on is a functional of s_t alone; P_t is its slope:

    P_T = w_s,    P_{t-1} = slope in s of <P_t, step_t(s)> + <w_t, terms_t(s)>     at the stored s_{t-1},

and the gradient of an input at t is the slope of the same expression in that input. Every slope is a difference of the step, or, in
an input in which it is not affine, a complex step, believed where a difference agrees (`differences`); only the chain rule through the
state is assumed. Coupled states (delta rules) take one slope per element of the coupled axes, independent ones one for all. All steps
of a block are taken at once, and only the small recursion of P runs step by step. Memory O(T · state).

Beside each value runs its **majorant**, the scale of its rounding: the same recursion on absolute slopes, each taken where it is
largest over the states that rounding cannot tell from cancelling ones. The error is rounding, plus, where no complex step
is believed, truncation, estimated by halving the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gradcheck.numerics.differences import Slope
from gradcheck.numerics.forward import Sequence as Call
from gradcheck.numerics.forward import forward, sequence
from gradcheck.numerics.lanes import Lanes, gather, lanes
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import UNIT, Kind, Sweep, Way, magnitudes
from gradcheck.numerics.tails import Tails, majorants, tails


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
    transitions = sweep.transitions()
    past = tails(sweep, transitions)
    y_scale, state_scales = majorants(sweep, transitions)
    rounding = UNIT * (sweep.call.length + 1)
    y_scale = np.moveaxis(y_scale, 0, recurrence.output.index(TIME))
    outputs = Answer(y, rounding * y_scale, y_scale), Answer(sweep.states[-1], rounding * state_scales[-1], state_scales[-1])
    state_error = rounding * past.majorant[0] + (0 if past.error is None else past.error[0])
    state = Answer(past.value[0], state_error, past.majorant[0])
    extremes = tuple(replace(sweep, states=states) for states in (state_scales, -state_scales))
    return Answers(outputs, _ordered(recurrence, state, _gradients(sweep, past, extremes)))


def model(
    recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array, carry: str = ""
) -> tuple[Array, Array, dict[str, Array]]:
    """(y, s_T, gradients) as a correct float32 kernel may compute them: the same recursions in single precision, by complex step.

    What differs from `costate` is what rounding explains. `carry` rounds the state and its cotangent to that dtype after each step.
    """
    sweep, y = _sweep(sequence(recurrence, inputs, np.float32), w_y, w_s, carry, kind="single")
    return y, sweep.states[-1], _values(sweep)


def exact(
    recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array, number: Callable[[float], object]
) -> tuple[Array, Array, dict[str, Array]]:
    """(y, s_T, gradients) in numbers of another kind: `number` makes one of a float (`certify.numbers`)."""

    def lift(values: Array) -> Array:
        out = np.empty(np.shape(values), dtype=object)
        out.reshape(-1)[:] = [number(float(v)) for v in np.asarray(values).flat]
        return out

    lifted = {name: value if name in recurrence.constants else lift(value) for name, value in inputs.items()}
    sweep, y = _sweep(sequence(recurrence, lifted), lift(w_y), lift(w_s), kind="exact")
    return y, sweep.states[-1], _values(sweep)


def _values(sweep: Sweep) -> dict[str, Array]:
    """The gradients alone, without bounds."""
    past = tails(sweep, sweep.transitions())
    state = Answer(past.value[0], past.value[0], past.value[0])
    return {name: answer.value for name, answer in _ordered(sweep.call.recurrence, state, _gradients(sweep, past)).items()}


def _ordered(recurrence: Recurrence, state: Answer, others: Mapping[str, Answer]) -> dict[str, Answer]:
    return {name: state if name == recurrence.state else others[name] for name in recurrence.differentiable}


def _sweep(call: Call, w_y: Array, w_s: Array, carry: str = "", kind: Kind = "double") -> tuple[Sweep, Array]:
    y, states = forward(call, carry)
    weights = np.moveaxis(np.asarray(w_y), call.recurrence.output.index(TIME), 0).astype(states.dtype)
    return Sweep(call, states, np.ascontiguousarray(weights), np.asarray(w_s).astype(states.dtype), carry, kind), y


def _gradients(sweep: Sweep, past: Tails, extremes: tuple[Sweep, ...] = ()) -> dict[str, Answer]:
    """The gradients of all inputs but the initial state; with errors and majorants if `sweep` is a double one.

    `extremes` are the same call with the states at plus and minus their majorants. A slope may be small by luck: C's is the state
    itself, which may be near zero by cancellation; dt's is a difference of what decays and what enters. Either still carries the
    rounding of what cancelled, so its scale is its largest size over those two states. It is affine in the state, so nowhere larger.
    """
    call = sweep.call
    sums = {name: _Sum.of(sweep, name) for name in call.recurrence.differentiable if name != call.recurrence.state}
    for block in sweep.blocks():
        after = slice(block.start + 1, block.stop + 1)
        w = sweep.weights(block)
        bound = _Bound.of(sweep, block, w, past, extremes) if sweep.kind == "double" else None
        for one in sums.values():
            one.add(sweep, block, (past.value[after], *w), bound)
    return {name: one.answer(call.recurrence) for name, one in sums.items()}


@dataclass(frozen=True, slots=True)
class _Bound:
    """What bounds the contributions of one block, whatever the input.

    Args:
        call: for sizes and length.
        block: the block.
        weights: absolute weights of what a step returns: the majorant of P, then |w|.
        size: what is differenced, in absolute value: its rounding is amplified by a difference.
        tail_error: bound on the truncation in P.
        extremes: the sweeps at the extremes of the state, each with its outputs in the block.
    """

    call: Call
    block: slice
    weights: tuple[Array, ...]
    size: tuple[Array, ...]
    tail_error: Array | None
    extremes: tuple[tuple[Sweep, tuple[Array, ...]], ...]

    @classmethod
    def of(cls, sweep: Sweep, block: slice, w: tuple[Array, ...], past: Tails, extremes: tuple[Sweep, ...]) -> _Bound:
        after = slice(block.start + 1, block.stop + 1)
        return cls(
            sweep.call,
            block,
            (past.majorant[after], *magnitudes(w)),
            magnitudes(sweep.outputs(block)),
            None if past.error is None else past.error[after],
            tuple((extreme, extreme.outputs(block)) for extreme in extremes),
        )

    def scales(self, name: str, here: Lanes) -> Iterator[Array]:
        """The majorant of the block's contributions to the gradient of `name`, direction by direction."""
        for moves in zip(*(extreme.reach(name, here, self.block, base) for extreme, base in self.extremes), strict=True):
            (h, largest), *others = moves
            for _, other in others:
                for a, b in zip(largest, other, strict=True):
                    np.fmax(a, b, out=a)
            scale = gather(here, here.readout, largest, self.weights, self.call.sizes)
            yield np.asarray(scale / h.reshape(-1, *(1,) * (scale.ndim - 1)))

    def error(self, here: Lanes, slope: Slope, scale: Array) -> Array:
        """The error of the block's contributions through `slope`, whose majorant is `scale`."""
        sizes, readout = self.call.sizes, here.readout
        size = gather(here, readout, self.size, self.weights, sizes)
        off = UNIT * (scale * (self.call.length + 1) + size * np.reshape(slope.amplification, (-1,) + (1,) * (size.ndim - 1)))
        if slope.truncation is not None:
            off = off + gather(here, readout, slope.truncation, self.weights, sizes)
        if self.tail_error is not None:
            off = off + gather(here, readout[:1], magnitudes(slope.value[:1]), (self.tail_error,), sizes)
        return np.asarray(off)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The gradient of one input as it adds up, block by block, in the layout of the numerics: (T or 1, B or 1, …)."""

    name: str
    here: Lanes
    way: Way
    value: Array
    error: Array
    majorant: Array

    @classmethod
    def of(cls, sweep: Sweep, name: str) -> _Sum:
        here = lanes(sweep.call.recurrence, name)
        shape = (1 if here.static else sweep.call.length, *sweep.call.at(slice(0, 1))[name].shape[1:])
        return cls(name, here, sweep.way(name), *(np.zeros(shape, sweep.states.dtype) for _ in range(3)))

    def add(self, sweep: Sweep, block: slice, weights: tuple[Array, ...], bound: _Bound | None) -> None:
        """Add what the steps of `block` contribute."""
        here, sizes = self.here, sweep.call.sizes
        scales = bound.scales(self.name, here) if bound else itertools.repeat(None)
        for (index, slope), scale in zip(sweep.slopes(self.name, here, self.way, block), scales, strict=False):
            at = (slice(0, 1) if here.static else block, *index)
            part = gather(here, here.readout, slope.value, weights, sizes)
            self.value[at] += _settle(here, part)
            if bound is not None and scale is not None:
                scale = np.maximum(scale, np.abs(part))  # noqa: PLW2901 - a scale of three digits may fall short in the fourth
                self.majorant[at] += _settle(here, scale)
                self.error[at] += _settle(here, bound.error(here, slope, scale))

    def answer(self, recurrence: Recurrence) -> Answer:
        """The sums, with the axes that the input declares."""
        return Answer(*(as_declared(recurrence, self.name, self.here, a) for a in (self.value, self.error, self.majorant)))


def _settle(here: Lanes, parts: Array) -> Array:
    """Per-step contributions as the input wants them: added over time where it is static, with its batch axis of size 1 put back."""
    if here.static:
        parts = parts.sum(0, keepdims=True)
    return parts if here.batched else np.expand_dims(parts, 1)


def as_declared(recurrence: Recurrence, name: str, here: Lanes, value: Array) -> Array:
    """From (T or 1, B or 1, …) to the axes that the input declares."""
    if not here.batched:
        value = value.squeeze(1)
    return value[0] if here.static else np.moveaxis(value, 0, recurrence.inputs[name].index(TIME))
