"""Whether a kernel can be loaded at all, tried in a worker first: a stranger's file is code we have never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import StaleMutant, UsageError
from gradcheck._op import Op
from gradcheck.engine.arrays import arrays_of, is_object
from gradcheck.engine.execute import Source, op_of
from gradcheck.engine.plan import Subject
from gradcheck.engine.target import load_target
from gradcheck.process import Died, Limits, run_all


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a worker whether a target can be loaded at all."""

    source: Source
    op: str
    target: str
    dtypes: tuple[str, ...] = ()


def probe(ask: Probe) -> str:
    """Nothing if the target loads and is a kernel of its own; else what is wrong with it."""
    try:
        kernel = load_target(ask.target, folder=Path(ask.source.cwd))
    except (UsageError, StaleMutant) as error:
        return str(error)
    if not (callable(kernel) or is_object(kernel) or isinstance(kernel, Op)):
        return f"kernel {ask.target!r} is of type {type(kernel).__name__}: neither a callable nor an object with `forward` and `vjp`"
    op = op_of(ask.source, ask.op)
    if isinstance(kernel, Op) or kernel is op.step or _code(kernel) == _code(op.step):
        return f"kernel {ask.target!r} is the reference itself: an oracle cannot check itself. Name an implementation of {op.name} instead."
    arrays = arrays_of(kernel)
    if alien := [dtype for dtype in ask.dtypes if dtype not in arrays.DTYPES]:
        return (
            f"kernel {ask.target!r} works on {arrays.NAME} arrays, which have no {alien[0]}; leave it out, or give a kernel on MLX arrays"
        )
    return ""


def probe_strangers(subjects: Sequence[Subject], op: str, source: Source, *, limits: Limits, logs: Path) -> None:
    """Load every kernel that the suite does not know.

    Raises:
        UsageError: one of them does not load, or is no kernel of its own.
    """
    asks = [
        Probe(source, op, subject.kernel.target, tuple(dict.fromkeys(case.dtype for case in subject.cases)))
        for subject in subjects
        if subject.stranger
    ]
    for ask, got in run_all(probe, asks, jobs=1, limits=limits, logs=logs) if asks else ():
        if not isinstance(got, Died):
            if got.value:
                raise UsageError(str(got.value))
        elif got.kind == "raised":
            raise UsageError(f"kernel {ask.target!r} cannot be loaded: {got.detail}")


def _code(thing: object) -> object:
    return getattr(thing, "__code__", thing)
