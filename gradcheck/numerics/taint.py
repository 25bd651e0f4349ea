"""Whether a step keeps what its recurrence declares: which elements are independent of which, and which inputs enter linearly.

The oracles perturb independent elements all at once and move linear inputs very far, so a wrong declaration gives a wrong truth.
Here the step itself is asked. A **taint**, a NaN in one element of one input, shows by where it arrives what depends on that element;
two secants of different length show whether a step is affine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from gradcheck.numerics.differences import HEADROOM
from gradcheck.numerics.forward import Sequence, forward, sequence
from gradcheck.numerics.lanes import Lanes, directions, lanes
from gradcheck.numerics.recurrence import BATCH, Array, Axes, Recurrence
from gradcheck.numerics.sweep import UNIT

TAINTED = 8
"""Elements of each input that are tainted: the first, the last, and others at random."""

Arrays = tuple[Array, ...]


def check_lanes(recurrence: Recurrence, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """What a NaN in one element of an input of one step reaches, though the declared lanes keep it out: a sentence each, or nothing.

    Args:
        recurrence: the step and its axes.
        inputs: by name, in the layout that the recurrence declares. Axes of size 1, and as many groups as heads, hide mistakes.

    Raises:
        ValueError: shapes do not fit.
    """
    call = sequence(recurrence, inputs)
    rng = np.random.default_rng(0)
    found: dict[tuple[str, str], str] = {}  # by input and axis: one sentence is enough
    with np.errstate(all="ignore"):
        if shapes := tuple(_wrong_shapes(call)):
            return shapes
        _, states = forward(call)
        for name in recurrence.differentiable:
            here = lanes(recurrence, name)
            for at in _elements(rng, _given(call, states, slice(0, 1))[name].shape[1:]):
                t = int(rng.integers(call.length))
                for k, where in enumerate(_reached(_step(call, states, t), _step(call, states, t, name, at))):
                    for axis, element in _strays(here, k, at, where, call.sizes):
                        found.setdefault((name, axis), _leak(recurrence, here, name, at, k, axis, element))
    return tuple(found.values())


def check_linear(recurrence: Recurrence, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """The inputs that are declared linear and in which the step is not affine: a sentence each, or nothing.

    In an affine step f(p + 2h) - 2 f(p + h) + f(p) is nothing but rounding: of four values, each at most `UNIT` of the
    largest product in the step, n times what goes in times what comes out, n being the length of a sum over the coupled axes.
    h is once the size of what the input competes with, and once as far above as the oracles go. Where the step returns other shapes than
    declared, nothing is said: `check_lanes` says that.

    Raises:
        ValueError: shapes do not fit.
    """
    call = sequence(recurrence, inputs)
    with np.errstate(all="ignore"):
        if any(_wrong_shapes(call)):
            return ()
        _, states = forward(call)
        names = [name for name in recurrence.differentiable if name in recurrence.linear]
        sentences = (_bend(call, states, name) for name in names)
        return tuple(sentence for sentence in sentences if sentence)


def _given(call: Sequence, states: Array, block: slice) -> dict[str, Array]:
    """All arrays that the steps of `block` take, the state among them."""
    return {**call.at(block), call.recurrence.state: states[:-1][block]}


def _step(call: Sequence, states: Array, t: int, name: str = "", at: tuple[int, ...] = ()) -> Arrays:
    """(state, *terms) after step t, each with a leading axis of size 1, with a NaN at `at` of the input `name`."""
    given = _given(call, states, slice(t, t + 1))
    if name:
        given[name] = given[name].copy()
        given[name][(0, *at)] = np.nan
    state, terms = call.recurrence.step(**given)
    return state, *terms


def _wrong_shapes(call: Sequence) -> Iterator[str]:
    """What the step returns otherwise than declared, seen at the first step."""
    recurrence = call.recurrence
    returned = _step(call, np.stack([call.initial] * 2), 0)
    names = (recurrence.inputs[recurrence.state], *recurrence.terms)
    if len(returned) != len(names):
        yield f"the step returns {len(returned) - 1} terms, and `terms` declares {len(names) - 1}"
        return
    for k, (array, declared) in enumerate(zip(returned, names, strict=True)):
        want = tuple(call.sizes[axis] for axis in declared)
        if array.shape[1:] != want:
            yield f"the step returns {_array(k)} of shape {array.shape[1:]}, and {' '.join(declared)} is {want}"


def _elements(rng: np.random.Generator, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Indices of a handful of elements."""
    size = math.prod(shape)
    inner = rng.permutation(np.arange(1, size - 1))[: TAINTED - 2]
    for flat in dict.fromkeys([0, size - 1, *inner.tolist()]):
        yield tuple(int(i) for i in np.unravel_index(flat, shape))


def _reached(clean: Arrays, tainted: Arrays) -> list[Array]:
    """Indices, one row each, of the elements of every array that became NaN."""
    return [np.argwhere(np.isnan(after[0]) & ~np.isnan(before[0])) for before, after in zip(clean, tainted, strict=True)]


def _strays(here: Lanes, k: int, at: tuple[int, ...], where: Array, sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(axis, element) for each parallel axis of the input along which the taint arrives elsewhere than at its own index."""
    names = here.readout[k]
    for axis, fine in here.parallel.items():
        wrong = where
        if fine in names:
            mine = where[:, names.index(fine)] // (sizes[fine] // sizes[axis])
            wrong = where[mine != at[here.own.index(axis)]]
        if len(wrong):
            yield axis, tuple(int(i) for i in wrong[0])


def _leak(recurrence: Recurrence, here: Lanes, name: str, at: tuple[int, ...], k: int, axis: str, element: tuple[int, ...]) -> str:
    own = at if here.batched else at[1:]  # the batch axis of size 1 is ours, not the input's
    names = here.readout[k]
    seen = f"{name}{list(own)} reaches {_array(k)} at {list(element)} ({' '.join(names)}) in one step"
    return f"{seen}, and is declared not to, along {axis}: {_advice(recurrence, here, name, axis, names)}"


def _advice(recurrence: Recurrence, here: Lanes, name: str, axis: str, names: Axes) -> str:
    fine = here.parallel[axis]
    if axis == BATCH:
        return f"no declaration allows that, the sequences of a batch ({BATCH}) are independent; mend the step"
    if fine not in names:
        return f'declare coupled="{axis}", or return that array along {fine} too, not yet summed'
    if fine != axis:
        return (
            f'groups={{"{axis}": "{fine}"}} says that {axis} = {fine} // ({fine}/{axis}); mend the step (np.repeat, not np.tile), '
            f'or declare coupled="{axis}" if the {fine} influence each other'
        )
    if axis in recurrence.separate.get(name, ()):
        return f'take {axis} out of separate["{name}"]'
    return f'declare coupled="{axis}" (and separate={{input: "{axis}"}} for inputs that enter one element of the terms each)'


def _bend(call: Sequence, states: Array, name: str) -> str:
    """Where the step is not affine in `name`, or nothing."""
    recurrence, rng = call.recurrence, np.random.default_rng(0)
    here = lanes(recurrence, name)
    given = _given(call, states, slice(None))
    others = max(float(np.abs(array).max()) for array in given.values() if array.dtype.kind == "f")
    longest = math.prod(call.sizes[axis] for axis in recurrence.coupled)
    point = given.pop(name)
    side = rng.choice([-1.0, 1.0], point.shape)

    def f(moved: Array) -> Arrays:
        state, terms = recurrence.step(**given, **{name: moved})
        return state, *terms

    start = f(point)
    size = 2.0 ** np.ceil(np.log2(max(1.0, float(np.abs(point).max()), float(np.abs(states).max()))))
    for h in (size, HEADROOM * size):
        for _, direction in directions(here, point.shape[1:], point.dtype):
            move = h * side * direction
            for k, (zero, one, two) in enumerate(zip(start, f(point + move), f(point + 2 * move), strict=True)):
                largest = max(float(np.abs(array).max()) for array in (zero, one, two, point + 2 * move))
                rounding = 4 * UNIT * longest * max(others, 1.0) * largest
                gap = np.abs(two - 2 * one + zero)
                if not (gap.max() <= rounding):
                    at = np.unravel_index(int(np.argmax(np.nan_to_num(gap, nan=np.inf))), gap.shape)
                    slopes = f"{(one[at] - zero[at]) / h:.6g} and {(two[at] - zero[at]) / (2 * h):.6g}"
                    where = f"{_array(k)} at {[int(i) for i in at[1:]]} ({' '.join(here.readout[k])}) has slopes {slopes}"
                    return f"{name} is declared linear, and moved by {h:g} and by {2 * h:g} {where}; take {name} out of `linear`"
    return ""


def _array(k: int) -> str:
    return f"term {k}" if k else "the state"
