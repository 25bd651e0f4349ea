"""The oracle `blackbox`: every element of every input moved on its own, and the whole recurrence run again.

    dL/dp ~ sum_j w_j (L(p + jk) - L(p - jk)) / k,     L = <w_y, y> + <w_s, s_T>

It assumes nothing, not even the chain rule, and costs two to ten forwards per element: the judge of the other oracles on small
cases. The difference is taken term by term and then added, which keeps the digits that a difference of sums would cancel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gradcheck.numerics.costate import Answer, Answers, as_declared
from gradcheck.numerics.differences import HEADROOM, Slope, secant, stencil
from gradcheck.numerics.forward import Sequence, extra_axes, forward, sequence
from gradcheck.numerics.lanes import lanes
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import BLOCK, UNIT, Sweep
from gradcheck.numerics.tails import majorants


def blackbox(recurrence: Recurrence, inputs: Mapping[str, Array], w_y: Array, w_s: Array) -> Answers:
    """Outputs, and all gradients of L = <w_y, y> + <w_s, s_T>, in float64. Arguments as for `costate`.

    Raises:
        ValueError: shapes do not fit.
    """
    call = sequence(recurrence, inputs)
    y, states = forward(call)
    weights_y = np.moveaxis(np.asarray(w_y, np.float64), recurrence.output.index(TIME), 0)
    weights = (weights_y, np.asarray(w_s, np.float64))
    sweep = Sweep(call, states, *weights)
    y_scale, state_scales = majorants(sweep, sweep.transitions())
    scales = (y_scale, state_scales[-1])
    unit = UNIT * (call.length + 1)
    # Rounding of the loss at the base point, which a difference amplifies.
    loss = sum(float((np.abs(w) * m).sum()) for w, m in zip(weights, scales, strict=True))
    size = float(max(np.abs(states).max(), 1.0))
    gradients = {name: _gradient(call, name, weights, unit, loss, size) for name in recurrence.differentiable}
    outputs = (
        Answer(y, unit * (m := np.moveaxis(scales[0], 0, recurrence.output.index(TIME))), m),
        Answer(states[-1], unit * scales[1], scales[1]),
    )
    return Answers(outputs, gradients)


def _gradient(call: Sequence, name: str, weights: tuple[Array, Array], unit: float, loss: float, size: float) -> Answer:
    """One gradient, a batch of elements at a time."""
    recurrence = call.recurrence
    point = call.initial if name == recurrence.state else {**call.steps, **call.static}[name]
    # Linear within a step is linear in the whole run only for what enters once: a static input enters at every step.
    once = name in recurrence.linear and (name == recurrence.state or name in call.steps)
    batch = max(1, BLOCK // max(call.initial.size, 1))
    value, error, majorant = (np.zeros(point.size) for _ in range(3))
    for start in range(0, point.size, batch):
        chosen = np.arange(start, min(start + batch, point.size))
        direction = np.zeros((chosen.size, *point.shape))
        direction.reshape(chosen.size, -1)[np.arange(chosen.size), chosen] = 1
        slope = _slope(call, name, direction, HEADROOM * 2.0 ** np.ceil(np.log2(max(size, np.abs(point).max()))) if once else None)
        over = [tuple(range(1, v.ndim)) for v in slope.value]
        spread = _spread(recurrence, weights)
        parts = list(zip(slope.value, spread, over, strict=True))
        value[chosen] = sum((v * w).sum(axes) for v, w, axes in parts)
        majorant[chosen] = sum(np.abs(v * w).sum(axes) for v, w, axes in parts)
        error[chosen] = unit * (loss * float(np.max(slope.amplification)) + majorant[chosen])
        if slope.truncation is not None:
            error[chosen] += sum((e * np.abs(w)).sum(axes) for e, w, axes in zip(slope.truncation, spread, over, strict=True))
    shaped = [a.reshape(point.shape) for a in (value, error, majorant)]
    if name == recurrence.state:
        return Answer(*shaped)
    return Answer(*(as_declared(recurrence, name, lanes(recurrence, name), a) for a in shaped))


def _slope(call: Sequence, name: str, direction: Array, h: float | None) -> Slope:
    """Slopes of (s_T, *terms) in a batch of directions: s_T as (batch, B, …), each term as (batch, T, B, …)."""
    recurrence = call.recurrence
    base = call.initial if name == recurrence.state else {**call.steps, **call.static}[name]

    def outputs(moved: Array) -> tuple[Array, ...]:
        # Every array gets the batch axis, as size 1 where it is not moved: a step may count axes.
        given: dict[str, Array] = {key: array[:, None] for key, array in {**call.steps, **call.static}.items()}
        state = call.initial[None]
        if name == recurrence.state:
            state = moved
        else:
            given[name] = np.moveaxis(moved, 1, 0)  # time (or the 1 of a static input) first, then the batch
        found = []
        for t in range(call.length):
            now = {key: array[t if key in call.steps else 0] for key, array in given.items()}
            state, terms = recurrence.step(**{recurrence.state: state}, **now)
            found.append(terms)
        arrays = (state, *(np.stack(np.broadcast_arrays(*parts), axis=1) for parts in zip(*found, strict=True)))
        return tuple(np.broadcast_to(a, (len(direction), *a.shape[1:])) for a in arrays)

    point = base[None]
    return stencil(outputs, point, direction) if h is None else secant(outputs, point, direction, np.full(1, h), outputs(point))


def _spread(recurrence: Recurrence, weights: tuple[Array, Array]) -> tuple[Array, ...]:
    """The weights of (s_T, *terms), with a batch axis, and with size 1 on the axes over which a term is summed."""
    w_y, w_s = weights
    return w_s[None], *(np.expand_dims(w_y, extra_axes(recurrence, names))[None] for names in recurrence.terms)
