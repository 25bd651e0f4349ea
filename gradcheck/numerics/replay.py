"""The oracle `replay`: perturb all independent lanes at one step at once, and run the rest of the sequence again from there.

    dL/dp_t = slope in p_t of  sum_{t' >= t} <w_t', terms_t'> + <w_s, s_T>     read lane by lane

Unlike `costate` it assumes no chain rule: what a change at t does to every later output is seen, not computed. It costs T/2 forwards
per input, times the coupled elements, so it is for medium cases. Lanes must not touch: see `taint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck.numerics.costate import Answer, Answers, as_declared
from gradcheck.numerics.differences import HEADROOM, secant, stencil
from gradcheck.numerics.forward import forward, sequence
from gradcheck.numerics.lanes import Lanes, directions, gather, lanes
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import UNIT, Sweep, magnitudes
from gradcheck.numerics.tails import majorants


def replay(recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array) -> Answers:
    """Outputs, and all gradients of L = <w_y, y> + <w_s, s_T>, in float64. Arguments as for `costate`.

    Raises:
        ValueError: shapes do not fit.
    """
    call = sequence(recurrence, inputs)
    y, states = forward(call)
    time = recurrence.output.index(TIME)
    sweep = Sweep(call, states, np.moveaxis(np.asarray(w_y, np.float64), time, 0), np.asarray(w_s, np.float64))
    y_scale, state_scales = majorants(sweep, sweep.transitions())
    y_scale = np.moveaxis(y_scale, 0, time)
    unit = UNIT * (call.length + 1)
    outputs = Answer(y, unit * y_scale, y_scale), Answer(states[-1], unit * state_scales[-1], state_scales[-1])
    return Answers(outputs, {name: _gradient(_Replay(sweep, name, lanes(recurrence, name), unit)) for name in recurrence.differentiable})


@dataclass(frozen=True, slots=True)
class _Replay:
    """One input, to be moved at one step at a time (at all steps, where it is static)."""

    sweep: Sweep
    name: str
    here: Lanes
    unit: float

    @property
    def is_state(self) -> bool:
        return self.name == self.sweep.call.recurrence.state

    def starts(self) -> range:
        """The steps from which the sequence is run again."""
        return range(1 if self.here.static or self.is_state else self.sweep.call.length)

    def point(self, start: int) -> Array:
        """The input where it is moved, with a leading axis of 1."""
        if self.is_state:
            return self.sweep.states[:1]
        return self.sweep.call.at(slice(start, start + 1))[self.name]

    def run(self, start: int) -> Callable[[Array], tuple[Array, ...]]:
        """The final state, and all terms from step `start` on (each step after the other), as a function of the input there."""
        call, recurrence = self.sweep.call, self.sweep.call.recurrence

        def outputs(moved: Array) -> tuple[Array, ...]:
            state = moved if self.is_state else self.sweep.states[start : start + 1]
            found = []
            for t in range(start, call.length):
                given = call.at(slice(t, t + 1))
                if not self.is_state and (self.here.static or t == start):
                    given[self.name] = moved
                state, terms = recurrence.step(**{recurrence.state: state}, **given)
                found.append(terms)
            return state, *(np.concatenate(parts) for parts in zip(*found, strict=True))

        return outputs

    def read(self, start: int, parts: tuple[Array, ...], *, absolute: bool = False) -> Array:
        """What `run` returned (or its slopes), weighted as the loss weights it and added up lane by lane: (1, *parallel axes)."""
        call, here = self.sweep.call, self.here
        weights = (self.sweep.w_s[None], *self.sweep.weights(slice(start, call.length)))
        if absolute:
            parts, weights = magnitudes(parts), magnitudes(weights)
        final: Array = gather(here, here.readout[:1], parts[:1], weights[:1], call.sizes)
        later: Array = gather(here, here.readout[1:], parts[1:], weights[1:], call.sizes).sum(0, keepdims=True)
        return final + later


def _gradient(moves: _Replay) -> Answer:
    here, call = moves.here, moves.sweep.call
    # Affine in a step is affine in the whole run only for what enters once: a static input enters at every step.
    once = moves.name in call.recurrence.linear and not here.static
    shape = (len(moves.starts()), *moves.point(0).shape[1:])
    value, error, majorant = (np.zeros(shape) for _ in range(3))
    for start in moves.starts():
        point, run = moves.point(start), moves.run(start)
        base = run(point)
        size = moves.read(start, base, absolute=True)
        h = HEADROOM * 2.0 ** np.ceil(np.log2(max(1.0, float(np.abs(point).max()), float(size.max()))))
        for index, direction in directions(here, point.shape[1:], point.dtype):
            slope = secant(run, point, direction, np.full(1, h), base) if once else stencil(run, point, direction)
            scale = moves.read(start, slope.value, absolute=True)
            bound = moves.unit * (size * float(np.max(slope.amplification)) + scale)
            if slope.truncation is not None:
                bound = bound + moves.read(start, slope.truncation, absolute=True)
            at = (slice(start, start + 1), *index)
            for total, part in ((value, moves.read(start, slope.value)), (error, bound), (majorant, scale)):
                total[at] = part if here.batched else np.expand_dims(part, 1)
    if moves.is_state:
        return Answer(value[0], error[0], majorant[0])
    return Answer(*(as_declared(call.recurrence, moves.name, here, a) for a in (value, error, majorant)))
