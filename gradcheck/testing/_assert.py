"""`assert_grads`: a kernel against the truth of an op, at concrete inputs or at a case. `assert_killed`: a defect in one is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gradcheck._case import Case
from gradcheck._errors import UsageError, unknown
from gradcheck._op import Op
from gradcheck._verdict import Evidence, Outcome, WorkItem
from gradcheck.calibrate.judge import judge
from gradcheck.engine.call import NoBackward, call
from gradcheck.engine.closeup import Closeup, closeup
from gradcheck.engine.execute import source_of
from gradcheck.engine.measure import measure
from gradcheck.engine.problem import Problem, draw
from gradcheck.engine.truth import answer
from gradcheck.engine.view import view_of
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.numerics.recurrence import axes
from gradcheck.suite import find_op, load
from gradcheck.testing._function import inputs_of
from gradcheck.testing._told import told
from gradcheck.testing._tolerances import tolerances_for

GIVEN = "given"
"""What stands for the regime in the name of a case whose inputs were given."""

_SHORT = {dtype.long: dtype.name for dtype in DTYPES.values()}


def assert_grads(
    fn: object,
    inputs: str | Case | Mapping[str, object] | Sequence[object],
    op: str = "",
    *,
    cotangents: Sequence[object] = (),
    carry: str = "f32",
    suites: Sequence[str] = (),
    seed: int = 0,
    forward_only: bool = False,
) -> None:
    """Assert that the outputs and gradients of a kernel agree with the float64 truth of an op.

    A function runs in this process, so one that crashes takes the process along; a kernel that is named by a string runs in a worker.

    Args:
        fn: a callable on MLX arrays, in the order of the op's inputs; an object with `forward` and `vjp`; or, with a case, the name of
            a kernel of the op, or `package.module:attr` or `path/to/file.py:attr`.
        inputs: arrays by name, or in the op's order; or a case, or its id.
        op: name of the op; a case names its own.
        cotangents: one per output; without them random ones, never ones. Of no use with a case, which draws its own.
        carry: dtype in which the kernel keeps its state: `f32`, or the short name of the inputs' dtype.
        suites: folders of suites, as for `gradcheck run`.
        seed: of the random cotangents.
        forward_only: compare the outputs alone.

    Raises:
        AssertionError: some output or gradient differs from the truth by more than noise; the text says which, where and by how much.
        UsageError: there is no such op, case or input, shapes do not fit, or nothing can be compared.
    """
    case = Case.parse(inputs) if isinstance(inputs, str) else inputs if isinstance(inputs, Case) else None
    if case is not None and op and op != case.op:
        raise UsageError(f"the case {case} is of {case.op}, not of {op!r}; leave out one of them")
    if case is None and not op:
        raise UsageError("op is missing: name the op whose truth the inputs are compared with")
    if isinstance(fn, str):
        if case is None:
            raise UsageError(f"the kernel {fn!r} is named by a string, which needs a case rather than arrays; import it, or give a case")
        seen = closeup(str(case), kernel=fn, suites=suites, forward_only=forward_only)
    else:
        seen = _compared(fn, inputs if case is None else case, op, cotangents, carry, suites, seed, forward_only=forward_only)
    if seen.outcome is Outcome.UNINFORMATIVE:
        raise UsageError(f"nothing to compare: {seen}")
    if not seen.passed:
        raise AssertionError("\n".join(told(seen)))


def assert_killed(mutant: str, kernel: str, case: str | Case, *, suites: Sequence[str] = (), forward_only: bool = False) -> None:
    """Assert that a known defect, planted in a copy of a kernel, is seen at a case: that the check there is worth something.

    Args:
        mutant: its name, or `canary`.
        kernel: name of a kernel of the op.
        case: a case, or its id.
        suites: folders of suites, as for `gradcheck run`.
        forward_only: compare the outputs alone.

    Raises:
        AssertionError: the defect is not seen there, or the mutant does not run.
        UsageError: a name does not exist or does not fit.
        StaleMutant: the mutant's text no longer matches the kernel.
    """
    if not mutant:
        raise UsageError("mutant is missing: name the defect to plant, or use assert_grads for the kernel as it is")
    seen = closeup(str(case), kernel=kernel, mutant=mutant, suites=suites, forward_only=forward_only)
    if seen.outcome is not Outcome.KILLED:
        raise AssertionError("\n".join(told(seen)))


def _compared(
    fn: object,
    given: object,
    name: str,
    cotangents: Sequence[object],
    carry: str,
    suites: Sequence[str],
    seed: int,
    *,
    forward_only: bool,
) -> Closeup:
    """The comparison of a function of this process."""
    cwd = Path.cwd()
    source = source_of(suites, cwd)
    suite = load([Path(path) for path in source.suites], cwd=cwd)
    op = find_op(suite, given.op if isinstance(given, Case) else name)
    if isinstance(fn, Op) or (callable(fn) and getattr(fn, "__code__", fn) == getattr(op.step, "__code__", None)):
        raise UsageError(f"{op.name} is the reference itself: an oracle cannot check itself. Give an implementation of it")
    case, problem = (given, draw(op, given)) if isinstance(given, Case) else _problem(op, given, cotangents, seed)
    if carry not in {"f32", case.dtype}:
        raise unknown("dtype of the state", carry, ("f32", case.dtype))
    limits, origin = tolerances_for(suite, op, source, case.dtype, carry)
    item = WorkItem(op.name, getattr(fn, "__name__", type(fn).__name__), str(case))
    try:
        got = call(
            fn,
            problem.inputs,
            problem.cotangents,
            dtype=case.dtype,
            output_shapes=tuple(op.output_shapes(case.sizes).values()),
            differentiable=op.recurrence(case.variant).differentiable,
            forward_only=forward_only,
        )
    except NoBackward as error:
        raise UsageError(f"nothing to compare: {error}") from error
    truth = answer(op, case.variant, problem)
    measured = measure(op, case.variant, case.dtype, truth, got.outputs, got.gradients)
    verdict = judge(Evidence(item, "measured", measured, notes=got.notes), limits)
    wanted = truth.quantities()
    views = tuple(
        view_of(m, one, wanted[m.quantity], case.dtype, limits[m.quantity])
        for m, one in zip(measured, (*got.outputs, *got.gradients), strict=False)
    )
    return Closeup(item, verdict.outcome, verdict.why, truth.oracle, origin, views, ending=verdict.ending)


def _problem(op: Op, given: object, cotangents: Sequence[object], seed: int) -> tuple[Case, Problem]:
    """The arrays as a problem of the op, and a name for it."""
    assert isinstance(given, (Mapping, Sequence))
    variant, named = _named(op, given)
    inputs = inputs_of(named, lambda values, dtype: round_to(values, _SHORT[dtype]))
    dtype = _SHORT[inputs.dtype]
    sizes = _sizes(op, variant, {name: np.shape(value) for name, value in inputs.values.items()})
    case = Case(op.name, tuple((axis, sizes[axis]) for axis in op.dims), dtype, GIVEN, seed, variant)
    values = {name: value.astype(np.float64) if name not in op.constants else value for name, value in inputs.values.items()}
    shapes = op.output_shapes(sizes)
    if cotangents:
        weights = inputs_of(list(cotangents), lambda array, _: round_to(array, dtype)).values.values()
        found = [np.shape(weight) for weight in weights]
        if found != list(shapes.values()):
            raise UsageError(f"the cotangents have shapes {found}, want {list(shapes.values())}, those of {', '.join(shapes)}")
        y, state = (weight.astype(np.float64) for weight in weights)
    else:
        rng = np.random.default_rng(seed)
        y, state = (round_to(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape), dtype) for shape in shapes.values())
    return case, Problem(values, (y, state))  # type: ignore[arg-type] # constants keep a dtype of their own


def _named(op: Op, given: Mapping[str, object] | Sequence[object]) -> tuple[str, dict[str, object]]:
    """(variant, arrays by name in the op's order): the variant whose inputs these are, told by names and numbers of axes."""
    for variant in op.variants or {"": {}}:
        wanted = op.inputs_of(variant)
        if isinstance(given, Mapping):
            named = {name: given[name] for name in wanted if name in given}
            fits = set(given) == set(wanted)
        else:
            named = dict(zip(wanted, given, strict=False))
            fits = len(given) == len(wanted)
        if fits and all(_ndim(named[name]) == len(axes(text)) for name, text in wanted.items()):
            return variant, named
    if isinstance(given, Mapping) and (stray := [name for name in given if name not in op.inputs]):
        raise unknown(f"input of {op.name}", stray[0], op.inputs)
    forms = "; ".join(
        f"{variant or op.name}: {', '.join(f'{n} [{t}]' for n, t in op.inputs_of(variant).items())}" for variant in op.variants or {"": {}}
    )
    raise UsageError(f"these {len(given)} inputs are not those of {op.name}. It takes {forms}")


def _sizes(op: Op, variant: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Size of every axis.

    Raises:
        UsageError: two inputs disagree about one.
    """
    sizes: dict[str, int] = {}
    for name, text in op.inputs_of(variant).items():
        for axis, size in zip(axes(text), shapes[name], strict=True):
            if sizes.setdefault(axis, size) != size:
                raise UsageError(f"input {name} [{text}] has shape {shapes[name]}, but the axis {axis} has {sizes[axis]} elsewhere")
    if missing := [axis for axis in op.dims if axis not in sizes]:
        sizes |= dict.fromkeys(missing, 1)  # an axis of another variant
    return sizes


def _ndim(array: object) -> int:
    """How many axes an array of NumPy or MLX has, or nested lists of numbers."""
    shape = getattr(array, "shape", None)
    return len(np.asarray(array).shape if shape is None else shape)
