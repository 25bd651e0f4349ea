"""The oracle `replay`: perturb all independent lanes at one step at once, and run the rest of the sequence again from there.

    dL/dp_t = slope in p_t of  sum_{t' >= t} <w_t', terms_t'> + <w_s, s_T>     read lane by lane

Unlike `costate` it assumes no chain rule: what a change at t does to every later output is seen, not computed. It costs T/2 forwards
per input, times the coupled elements, so it is for medium cases. Lanes must not touch: see `taint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gradcheck.numerics.costate import ROUNDINGS, Answer, Answers, as_declared
from gradcheck.numerics.differences import HEADROOM, secant, stencil
from gradcheck.numerics.forward import forward, sequence
from gradcheck.numerics.lanes import Lanes, directions, gather, lanes
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import Sweep, magnitudes
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
    unit = ROUNDINGS * float(np.finfo(np.float64).eps) / 2 * (call.length + 1)
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

    def reading(self, start: int, *, absolute: bool = False) -> Callable[[Array], tuple[Array, ...]]:
        """The loss from step `start` on, lane by lane, as a function of the input there; or the sum of its absolute terms."""
        call, here = self.sweep.call, self.here
        recurrence = call.recurrence
        size = magnitudes if absolute else tuple

        def read(moved: Array) -> tuple[Array, ...]:
            state = moved if self.is_state else self.sweep.states[start : start + 1]
            total: Array | float = 0.0
            for t in range(start, call.length):
                given = call.at(slice(t, t + 1))
                if not self.is_state and (here.static or t == start):
                    given[self.name] = moved
                state, terms = recurrence.step(**{recurrence.state: state}, **given)
                weights = self.sweep.weights(slice(t, t + 1))
                total = total + gather(here, here.readout[1:], size(terms), size(weights), call.sizes)
            return (total + gather(here, here.readout[:1], size((state,)), size((self.sweep.w_s[None],)), call.sizes),)

        return read


def _gradient(moves: _Replay) -> Answer:
    here, call = moves.here, moves.sweep.call
    # Affine in a step is affine in the whole run only for what enters once: a static input enters at every step.
    once = moves.name in call.recurrence.linear and not here.static
    shape = (len(moves.starts()), *moves.point(0).shape[1:])
    value, error, majorant = (np.zeros(shape) for _ in range(3))
    for start in moves.starts():
        point = moves.point(start)
        size = moves.reading(start, absolute=True)(point)[0]
        h = HEADROOM * 2.0 ** np.ceil(np.log2(max(1.0, float(np.abs(point).max()), float(size.max()))))
        for index, direction in directions(here, point.shape[1:], point.dtype):
            read = moves.reading(start)
            slope = secant(read, point, direction, np.full(1, h)) if once else stencil(read, point, direction)
            at = (slice(start, start + 1), *index)
            found = slope.value[0] if here.batched else np.expand_dims(slope.value[0], 1)
            bound = moves.unit * (size * float(np.max(slope.amplification)) + np.abs(slope.value[0]))
            bound = bound + (slope.truncation[0] if slope.truncation is not None else 0)
            value[at] = found
            majorant[at] = np.abs(found)
            error[at] = bound if here.batched else np.expand_dims(bound, 1)
    if moves.is_state:
        return Answer(value[0], error[0], majorant[0])
    return Answer(*(as_declared(call.recurrence, moves.name, here, a) for a in (value, error, majorant)))
