"""The oracle `blackbox`: every element of every input moved on its own, and the whole recurrence run again.

    dL/dp ~ sum_j w_j (L(p + jk) - L(p - jk)) / k,     L = <w_y, y> + <w_s, s_T>

It assumes nothing, not even the chain rule, and costs two to ten forwards per element: the judge of the other oracles on small
cases. The difference is taken output by output and then added, which keeps the digits that a difference of sums would cancel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gradcheck.numerics.costate import ROUNDINGS, Answer, Answers
from gradcheck.numerics.differences import HEADROOM, Slope, secant, stencil
from gradcheck.numerics.forward import Sequence, forward, sequence, total
from gradcheck.numerics.recurrence import TIME, Array, Recurrence
from gradcheck.numerics.sweep import BLOCK, Sweep
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
    unit = ROUNDINGS * float(np.finfo(np.float64).eps) / 2 * (call.length + 1)
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
    point = call.initial if name == recurrence.state else (call.steps | call.static)[name]
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
        parts = list(zip(slope.value, _spread(weights), over, strict=True))
        value[chosen] = sum((v * w).sum(axes) for v, w, axes in parts)
        majorant[chosen] = sum(np.abs(v * w).sum(axes) for v, w, axes in parts)
        error[chosen] = unit * (loss * float(np.max(slope.amplification)) + majorant[chosen])
        if slope.truncation is not None:
            error[chosen] += sum((e * np.abs(w)).sum(axes) for e, w, axes in zip(slope.truncation, _spread(weights), over, strict=True))
    return Answer(*(_as_declared(recurrence, name, a.reshape(point.shape)) for a in (value, error, majorant)))


def _slope(call: Sequence, name: str, direction: Array, h: float | None) -> Slope:
    """Slopes of (y, s_T), each (batch, …), in a batch of directions."""
    recurrence = call.recurrence
    base = call.initial if name == recurrence.state else (call.steps | call.static)[name]

    def outputs(moved: Array) -> tuple[Array, ...]:
        """y as (batch, T, B, …) and the final state as (batch, B, …), for a batch of values of the input."""
        # Every array gets the batch axis, as size 1 where it is not moved: a step may count axes.
        given: dict[str, Array] = {key: array[:, None] for key, array in (call.steps | call.static).items()}
        state = call.initial[None]
        if name == recurrence.state:
            state = moved
        else:
            given[name] = np.moveaxis(moved, 1, 0)  # time (or the 1 of a static input) first, then the batch
        ys = []
        for t in range(call.length):
            now = {key: array[t if key in call.steps else 0] for key, array in given.items()}
            state, terms = recurrence.step(**{recurrence.state: state}, **now)
            ys.append(total(recurrence, terms))
        shape = (direction.shape[0],)
        y = np.stack(ys, axis=-len(recurrence.output))
        return np.broadcast_to(y, shape + y.shape[-len(recurrence.output) :]), np.broadcast_to(
            state, shape + state.shape[-call.initial.ndim :]
        )

    point = base[None]
    return stencil(outputs, point, direction) if h is None else secant(outputs, point, direction, np.full(1, h))


def _spread(weights: tuple[Array, Array]) -> tuple[Array, Array]:
    return weights[0][None], weights[1][None]


def _as_declared(recurrence: Recurrence, name: str, value: Array) -> Array:
    """From (T or 1, B or 1, …) to the axes that the input declares."""
    declared = recurrence.inputs[name]
    if name == recurrence.state:
        return value
    if "B" not in declared:
        value = value.squeeze(1)
    return np.moveaxis(value, 0, declared.index(TIME)) if TIME in declared else value[0]
