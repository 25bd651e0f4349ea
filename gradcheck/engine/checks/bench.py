"""What a check has to work with: a kernel, a problem to put to it, and what it may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gradcheck._case import Case
from gradcheck._op import Op
from gradcheck._truth import F64, Truth
from gradcheck.calibrate.judge import Tolerances, margin
from gradcheck.engine.call import Got, call
from gradcheck.engine.measure import measure, quantity_axes
from gradcheck.engine.problem import Problem
from gradcheck.engine.truth import answer
from gradcheck.numerics.recurrence import Axes, Recurrence

Mask = npt.NDArray[np.bool_]

SHOWN = 3
"""Sentences that one check says; what else it found is counted."""


NOT_DETERMINISTIC = "not deterministic, so that this cannot be told"
"""How the sentences begin of a check that compares bits, and was given a kernel that does not repeat them."""


class KernelRaised(Exception):
    """The kernel raised `error` within a check. Whatever else a check raises is the check's own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found.

    Args:
        broken: what is violated, a sentence each.
        compared: elements compared. A check that compared none says nothing, and does not pass.
        remark: what a reader should know of a check that holds.
    """

    broken: tuple[str, ...] = ()
    compared: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Outputs and gradients of one call, by quantity."""

    gots: Mapping[str, Got]
    notes: tuple[str, ...]

    def value(self, quantity: str) -> F64:
        """The value; one NaN where there is none to compare, which is equal to nothing."""
        value = self.gots[quantity].value
        return np.full((), np.nan) if value is None else value

    def mapped(self, values: Mapping[str, F64]) -> Result:
        """The same with other values."""
        return Result({**self.gots, **{name: Got(value) for name, value in values.items()}}, self.notes)


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel on the bench.

    Args:
        kernel: what is called.
        op: what it implements.
        case: sizes, branch and dtype.
        problem: inputs and cotangents.
        tolerances: of the comparison with the truth.
        forward_only: it has no backward, or none that is to be checked.
        sound: the comparison with the truth found nothing wrong with it.
        deterministic: it gives the same bits for the same call. Where it is declared not to, what must be equal is judged within noise.
        chunks: keyword of the kernel to the sizes of a chunk that it may be given.
    """

    kernel: object
    op: Op
    case: Case
    problem: Problem
    tolerances: Tolerances
    forward_only: bool = False
    sound: bool = True
    deterministic: bool = True
    chunks: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    @property
    def recurrence(self) -> Recurrence:
        """The op in the case's branch."""
        return self.op.recurrence(self.case.variant)

    @property
    def axes(self) -> dict[str, Axes]:
        """Axis names of all arrays: of inputs by name, of the cotangent of y as `w y`, of outputs as `y` and of gradients as `d x`."""
        found = quantity_axes(self.op, self.case.variant)
        return {**found, **{f"w {name}": found[name] for name in self.op.outputs}, **self.recurrence.inputs}

    def arrays(self, problem: Problem | None = None) -> dict[str, F64]:
        """All that goes into a call, by the names of `axes`."""
        given = problem or self.problem
        return {**given.inputs, **{f"w {name}": w for name, w in zip(self.op.outputs, given.cotangents, strict=True)}}

    def problem_of(self, arrays: Mapping[str, F64]) -> Problem:
        """The problem that these arrays make."""
        y, state = (arrays[f"w {name}"] for name in self.op.outputs)
        return Problem({name: arrays[name] for name in self.recurrence.inputs}, (y, state))

    def call(self, problem: Problem | None = None, layout: str = "") -> Result:
        """One call of the kernel, at this problem or another.

        Raises:
            KernelRaised: the kernel raises.
        """
        given = problem or self.problem
        try:
            got = call(
                self.kernel,
                given.inputs,
                given.cotangents,
                dtype=self.case.dtype,
                output_shapes=[w.shape for w in given.cotangents],
                differentiable=self.recurrence.differentiable,
                forward_only=self.forward_only,
                layout=layout,
            )
        except Exception as error:
            raise KernelRaised(error) from error
        names = quantity_axes(self.op, self.case.variant)
        return Result(dict(zip(names, (*got.outputs, *got.gradients), strict=False)), got.notes)

    def truth(self, problem: Problem | None = None) -> Truth:
        """What the oracle says of this problem or another."""
        return answer(self.op, self.case.variant, problem or self.problem)

    def off(self, result: Result, truth: Truth) -> dict[str, str]:
        """The quantities that are further from the truth than noise explains, each with how far."""
        found = {}
        outputs, gradients = ([result.gots[name] for name in result.gots if name.startswith("d ") == d] for d in (False, True))
        for m in measure(self.op, self.case.variant, self.case.dtype, truth, outputs, gradients):
            size, metric = margin(m, self.tolerances)
            if size is None or not (size <= 1):
                much = metric if size is None else f"{metric} is {size:.3g} times its tolerance"
                found[m.quantity] = f"{m.quantity}{f' at [{m.where}]' if m.worst else ''}: {much}"
        return found

    def wrong_anyway(self, result: Result, truth: Truth) -> dict[str, str]:
        """What a plain call has wrong, and the comparison with the truth has said: no check need say it again."""
        return {} if self.sound else self.off(result, truth)

    def at(self, **sizes: int) -> Case:
        """The case with other sizes or another `seed`."""
        seed = sizes.pop("seed", self.case.seed)
        return replace(self.case, seed=seed, dims=tuple((axis, sizes.get(axis, size)) for axis, size in self.case.dims))


def unequal(axes: Axes, want: F64, got: F64, where: Mask | None = None) -> str:
    """How two arrays differ that must be equal bit by bit (0 and -0 are, and NaN and NaN), or nothing; `where` masks what is compared."""
    if want.shape != got.shape:
        return f"has shape {got.shape} instead of {want.shape}"
    wrong = ~((want == got) | (np.isnan(want) & np.isnan(got)))
    if where is not None:
        wrong &= where
    return told(axes, want, got, wrong)


def told(axes: Axes, want: F64, got: F64, wrong: Mask) -> str:
    """Where two arrays of one shape differ most, of the elements that are `wrong`; nothing where none is."""
    if not wrong.any():
        return ""
    gap = np.nan_to_num(np.abs(np.where(wrong, got - want, 0.0)), nan=np.inf)
    index = np.unravel_index(int(np.argmax(gap)), wrong.shape)
    place = ", ".join(f"{axis.lower()}={i}" for axis, i in zip(axes, index, strict=True))
    return f"at [{place}] is {got[index]:.9g} instead of {want[index]:.9g} ({int(wrong.sum())} of {wrong.size} elements differ)"


def differences(bench: Bench, want: Result, got: Result) -> dict[str, str]:
    """The quantities of two calls that are not equal bit by bit, each with how; and what a call did that the other did not."""
    found = {name: unequal(bench.axes[name], want.value(name), got.value(name)) for name in want.gots if not want.gots[name].problem}
    return {name: f"{name} {text}" for name, text in found.items() if text} | {note: note for note in got.notes if note not in want.notes}


def size_of(result: Result) -> int:
    """Elements that can be compared."""
    return sum(got.value.size for got in result.gots.values() if got.value is not None)


def few(sentences: Sequence[str]) -> tuple[str, ...]:
    """The first sentences, and how many more there are."""
    more = len(sentences) - SHOWN
    return (*sentences[:SHOWN], f"and {more} more of this kind") if more > 0 else tuple(sentences)


def repeated(bench: Bench) -> tuple[Result, tuple[str, ...]]:
    """(a call, how a second one of the same differs from it). What differs by itself cannot be compared bit by bit.

    Of a kernel that is declared not deterministic no second call is asked: it is not compared bit by bit.
    """
    first = bench.call()
    if not bench.deterministic:
        return first, ()
    return first, unsteady(differences(bench, first, bench.call()))


def unsteady(differing: Mapping[str, str]) -> tuple[str, ...]:
    """The sentences for a kernel that differs from itself, so that no difference can be blamed on anything else."""
    return few([f"{NOT_DETERMINISTIC}: the same call twice differs: {text}" for text in differing.values()])
