"""An op: what is checked. The decorated function is one step of the recurrence, and its docstring is the maths."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradcheck._errors import SuiteError, unknown
from gradcheck._kernel import Kernel
from gradcheck._truth import F64
from gradcheck.numerics.recurrence import BATCH, TIME, Compiled, Recurrence, Step, axes

Shapes = Mapping[str, tuple[int, ...]]
Draw = Callable[[np.random.Generator, Shapes], dict[str, F64]]


@dataclass(frozen=True, slots=True)
class Regime:
    """A way to draw inputs that lets certain defects be seen. `why` says which."""

    name: str
    why: str
    draw: Draw


@dataclass(frozen=True, slots=True)
class Op:
    """A recurrence to check: reference, inputs worth testing, and the kernels that implement it.

    Args:
        name: the name of the decorated step.
        maths: its docstring.
        source: where the equations come from.
        step: one float64 step, see `Recurrence`.
        inputs: axis names of each input in the order in which kernels take them.
        outputs: axis names of each output in packed order: the per-step output, then the final state.
        state: the input that is the initial state.
        terms: axis names of each term of the per-step output, without `T`.
        linear: inputs in which a step is affine.
        dims: sizes worth testing, per axis.
        regimes: by name.
        variants: branches of the op: name to the axis names of the inputs in which it differs; None for an input that it has not.
        constants, groups, coupled, separate: see `Recurrence`.
        kernels: implementations, by string.
        production: sizes of a real model, `"B1,T64,H24,…"`, per variant (or under an empty name): some defects exist only there.
        fast: all answers of the step by a compiled function, for `--oracle fast`; see `gradcheck.numerics.fast.Compiled`.
        file: the suite file that declares it, filled in by the loader.
    """

    name: str
    maths: str
    source: str
    step: Step
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    state: str
    terms: tuple[str, ...]
    linear: frozenset[str]
    dims: Mapping[str, tuple[int, ...]]
    regimes: Mapping[str, Regime]
    variants: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    coupled: frozenset[str] = frozenset()
    separate: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    production: Mapping[str, str] = field(default_factory=dict)
    fast: Compiled | None = None
    file: str = ""

    def inputs_of(self, variant: str = "") -> dict[str, str]:
        """Axis names of the inputs that this variant has, in the op's order.

        Raises:
            UsageError: the op has no such variant.
        """
        if variant not in (self.variants or {"": {}}):
            raise unknown(f"variant of {self.name}", variant, self.variants)
        merged: dict[str, str | None] = {**self.inputs, **self.variants.get(variant, {})}
        return {name: text for name, text in merged.items() if text is not None}

    def recurrence(self, variant: str = "") -> Recurrence:
        """This op as the numerics see it.

        Raises:
            UsageError: the op has no such variant.
        """
        return Recurrence(
            step=self.step,
            inputs={name: axes(text) for name, text in self.inputs_of(variant).items()},
            state=self.state,
            terms=tuple(axes(text) for text in self.terms),
            output=axes(next(iter(self.outputs.values()))),
            linear=self.linear,
            constants=self.constants,
            groups=self.groups,
            coupled=self.coupled,
            separate=self.separate,
        )

    def shapes(self, sizes: Mapping[str, int], variant: str = "") -> dict[str, tuple[int, ...]]:
        """Shape of every input for these axis sizes."""
        return {name: tuple(sizes[axis] for axis in axes(text)) for name, text in self.inputs_of(variant).items()}

    def output_shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Shape of every output for these axis sizes."""
        return {name: tuple(sizes[axis] for axis in axes(text)) for name, text in self.outputs.items()}


def op(  # noqa: PLR0913 - a declaration: each argument is one fact of the op, keyword-only
    *,
    source: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    state: str,
    terms: str | Sequence[str],
    linear: str,
    dims: Mapping[str, Sequence[int]],
    regimes: Mapping[str, Draw],
    variants: Mapping[str, Mapping[str, str | None]] | None = None,
    constants: str = "",
    groups: Mapping[str, str] | None = None,
    coupled: str = "",
    separate: Mapping[str, str] | None = None,
    kernels: Sequence[Kernel] = (),
    production: Mapping[str, str] | None = None,
    fast: Compiled | None = None,
) -> Callable[[Step], Op]:
    """Declare the decorated step as an op. Lists of names are written as in the maths: `linear="s x B C"`.

    Raises:
        SuiteError: a name is used that the op does not declare.
    """

    def build(step: Step) -> Op:
        name = getattr(step, "__name__", "")
        declared = Op(
            name=name,
            maths=inspect.getdoc(step) or "",
            source=source,
            step=step,
            inputs=inputs,
            outputs=outputs,
            state=state,
            terms=(terms,) if isinstance(terms, str) else tuple(terms),
            linear=frozenset(linear.split()),
            dims={axis: tuple(sizes) for axis, sizes in dims.items()},
            regimes={key: Regime(key, inspect.getdoc(draw) or "", draw) for key, draw in regimes.items()},
            variants=variants or {},
            constants=frozenset(constants.split()),
            groups=groups or {},
            coupled=frozenset(coupled.split()),
            separate={key: frozenset(text.split()) for key, text in (separate or {}).items()},
            kernels=tuple(kernels),
            production=production or {},
            fast=fast,
        )
        _check(declared)
        return declared

    return build


def _check(declared: Op) -> None:
    """Refuse names that the op does not declare: a misspelt one would silently switch a check off."""
    who = f"op {declared.name}"
    known = set(declared.inputs)
    for what, names in {
        "state": {declared.state},
        "linear": declared.linear,
        "constants": declared.constants,
        "separate": set(declared.separate),
        **{f"variants[{key}]": set(changed) for key, changed in declared.variants.items()},
    }.items():
        if stray := names - known:
            raise SuiteError(f"{who}: {what} names {', '.join(sorted(stray))}, which is not an input ({', '.join(declared.inputs)})")
    used = {axis for text in (*declared.inputs.values(), *declared.outputs.values(), *declared.terms) for axis in axes(text)}
    used |= {axis for changed in declared.variants.values() for text in changed.values() if text is not None for axis in axes(text)}
    for what, names in {
        "dims": set(declared.dims),
        "groups": {*declared.groups, *declared.groups.values()},
        "coupled": declared.coupled,
    }.items():
        if stray := names - used:
            raise SuiteError(f"{who}: {what} names the axis {', '.join(sorted(stray))}, which no input, output or term has")
    if missing := used - set(declared.dims):
        raise SuiteError(f"{who}: dims gives no sizes for {', '.join(sorted(missing))}")
    _check_branches(declared, who)
    outputs = [axes(text) for text in declared.outputs.values()]
    if len(outputs) != 2 or TIME not in outputs[0] or TIME in outputs[1]:
        raise SuiteError(f"{who}: outputs must be the per-step output (with {TIME}) and then the final state, not {dict(declared.outputs)}")
    if any(names[0] != BATCH for names in outputs):
        raise SuiteError(f"{who}: every output begins with the batch axis {BATCH}")
    if not declared.regimes:
        raise SuiteError(f"{who}: needs at least one regime")


def _check_branches(declared: Op, who: str) -> None:
    """Refuse a branch without a state, and sizes for a branch that is not there."""
    if stateless := {key for key, changed in declared.variants.items() if changed.get(declared.state, "") is None}:
        raise SuiteError(f"{who}: variants[{min(stateless)}] drops the state {declared.state}, without which there is no recurrence")
    if stray := set(declared.production) - set(declared.variants or {"": {}}):
        raise SuiteError(f"{who}: production gives sizes for {', '.join(stray)}, which is not a variant ({', '.join(declared.variants)})")
