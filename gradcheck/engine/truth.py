"""The truth of a case, and how far the model of a correct kernel is from it: computed once, kept by content."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as once
from pathlib import Path
from typing import Literal, cast

import numpy as np

from gradcheck import math as reference_math
from gradcheck import numerics
from gradcheck._case import Case
from gradcheck._op import Op
from gradcheck._truth import Quantity, Truth
from gradcheck.engine import cache
from gradcheck.engine.call import Got
from gradcheck.engine.grid import grid, select
from gradcheck.engine.measure import measure
from gradcheck.engine.problem import Problem, draw
from gradcheck.numerics.blackbox import blackbox
from gradcheck.numerics.certify import certificate
from gradcheck.numerics.costate import Answers, costate, model
from gradcheck.numerics.dtypes import round_to
from gradcheck.numerics.fast import Refused, fast
from gradcheck.numerics.metrics import METRICS
from gradcheck.numerics.replay import replay

Oracle = Literal["costate", "fast", "blackbox", "replay", "certificate"]
ORACLES: Mapping[str, Callable[..., Answers]] = {"costate": costate, "blackbox": blackbox, "replay": replay, "certificate": certificate}

HALF_CASES = 12
"""Cases of the covering grid per branch that are run with half-precision inputs, which are one more regime rather than a grid of their
own: with two branches 24, enough for a quantile."""

FURTHER_RUNS = 3
"""Runs of the model, beside the one that is kept, for the noise of a single case."""

ROUNDING = 2.0**-23
"""One rounding of a float32 number, relative to it: the spacing of float32 above 1."""


Ratios = Mapping[str, Mapping[str, float | None]]
"""Quantity to metric to multiple of the rounding unit."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a case without any kernel.

    Args:
        truth: what the oracle says.
        noise: how far the model of a correct kernel is off, by the dtype in which it carries the state.
        refused: why the oracle `fast` was asked for and is not who said the truth, or nothing.
    """

    truth: Truth
    noise: Mapping[str, Ratios]
    refused: str = ""


def cases_of(op: Op, dtypes: Sequence[str], seed: int) -> tuple[Case, ...]:
    """The covering grid in float32, and a part of it, spread evenly, in each half precision; one dtype after the other."""
    whole = {dtype: grid(op, (dtype,), seed=seed) for dtype in dtypes}
    return tuple(
        case for dtype, cases in whole.items() for case in (cases if dtype == "f32" else select(op, cases, cases=(str(HALF_CASES),)))
    )


def carries(dtype: str) -> tuple[str, ...]:
    """The dtypes in which a kernel on inputs of `dtype` may carry its state."""
    return ("f32",) if dtype == "f32" else ("f32", dtype)


def lookup(op: Op, case: Case, oracle: Oracle = "costate") -> Known | None:
    """What the cache knows of `case`."""
    found = cache.get(_key(op, case, oracle))
    return None if found is None else Known(found[0], cast("Mapping[str, Ratios]", found[1]["noise"]), str(found[1].get("refused", "")))


def know(op: Op, case: Case, oracle: Oracle = "costate") -> tuple[Known, Problem]:
    """The truth of `case` and the model noise there, from the cache or computed and kept, and the problem itself."""
    problem = draw(op, case)
    known = lookup(op, case, oracle)
    if known is None:
        truth, refused = _answer(op, case.variant, problem, oracle)
        known = Known(truth, {carry: _noise(op, case, carry, truth, problem) for carry in carries(case.dtype)}, refused)
        cache.put(_key(op, case, oracle), truth, {"noise": known.noise, "refused": refused})
    return known, problem


def answer(op: Op, variant: str, problem: Problem, oracle: Oracle = "costate") -> Truth:
    """The truth of any problem, drawn or made; not kept. Where `fast` is refused, `costate` answers, and the truth says so."""
    return _answer(op, variant, problem, oracle)[0]


def _answer(op: Op, variant: str, problem: Problem, oracle: Oracle) -> tuple[Truth, str]:
    """(the truth, why `fast` was refused)."""
    if oracle == "fast":
        try:
            return _truth(op, oracle, _fast(op, variant, problem)), ""
        except Refused as error:
            return _answer(op, variant, problem, "costate")[0], str(error)
    return _truth(op, oracle, ORACLES[oracle](op.recurrence(variant), problem.inputs, *problem.cotangents)), ""


def _fast(op: Op, variant: str, problem: Problem) -> Answers:
    """What the op's own compiled function answers, where it may be believed."""
    if op.fast is None:
        raise Refused(f"the op {op.name} declares none")
    if numba_version() is None:
        raise Refused("numba is not installed: pip install 'gradcheck[fast]'")
    y, state = op.outputs
    return fast(op.recurrence(variant), op.fast, (y, state), problem.inputs, *problem.cotangents)


def _truth(op: Op, oracle: Oracle, answers: Answers) -> Truth:
    outputs = {name: Quantity(a.value, a.error, a.majorant) for name, a in zip(op.outputs, answers.outputs, strict=True)}
    gradients = {name: Quantity(a.value, a.error, a.majorant) for name, a in answers.gradients.items()}
    return Truth(oracle, outputs, gradients)


def own_noise(op: Op, case: Case, carry: str, known: Known, problem: Problem) -> Ratios:
    """The model noise of this very case: the largest of what is kept and of further runs of the model at inputs moved by one rounding.

    Bands pool the noise of a grid, so a case outside it, or an unlucky seed, may be noisier than they allow. A kernel whose error there
    is within k times this noise is not shown to be wrong: the case is ill-conditioned. One run of the model would be too little to say
    so, since it is now and then right by luck. Made on demand (no run needs it but for a failure), and of the oracle alone.
    """
    rng = np.random.default_rng(np.frombuffer(hashlib.sha256(f"own noise {case}".encode()).digest(), np.uint32))
    tables = [known.noise[carry]]
    for _ in range(FURTHER_RUNS):
        moved = {
            name: value if name in op.constants else round_to(value * (1 + rng.integers(-1, 2, value.shape) * ROUNDING), "f32")
            for name, value in problem.inputs.items()
        }
        tables.append(_noise(op, case, carry, known.truth, replace(problem, inputs=moved)))
    quantities = known.truth.quantities()
    return {name: {metric: _largest(table.get(name, {}).get(metric) for table in tables) for metric in METRICS} for name in quantities}


def _largest(ratios: Iterable[float | None]) -> float:
    """The largest of these; one that is not finite is no noise."""
    return max((ratio for ratio in ratios if ratio is not None), default=0.0)


def _noise(op: Op, case: Case, carry: str, truth: Truth, problem: Problem) -> Ratios:
    """The model of a correct kernel, measured like a kernel: float32 arithmetic, state carried in `carry`, results in `case.dtype`."""
    recurrence = op.recurrence(case.variant)
    y, state, gradients = model(recurrence, problem.inputs, *problem.cotangents, carry="" if carry == "f32" else carry)
    rounded = [Got(round_to(a, case.dtype)) for a in (y, state, *gradients.values())]
    found = measure(op, case.variant, case.dtype, truth, rounded[:2], rounded[2:])
    return {m.quantity: m.ratios for m in found}


def _key(op: Op, case: Case, oracle: Oracle) -> str:
    """Everything that can change the answer: the op's own text, its helpers, our numerics, numpy, and the case."""
    parts = {"oracle": oracle, "case": str(case), "op": op_digest(op.file), "numerics": own_digest(), "numpy": np.__version__}
    if oracle == "fast":  # its last bits are the compiler's; those of the others are numpy's
        parts["numba"] = f"{numba_version()} {platform.machine()}"
    return cache.key_of(parts)


@once
def numba_version() -> str | None:
    """The version of numba, or None where it is not installed."""
    try:
        return importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        return None


def refusals(op: Op, cases: Iterable[Case], oracle: Oracle) -> str:
    """What a run must say of the oracle `fast`: in how many of these cases it was refused, and why first; or nothing."""
    found = [known.refused for case in cases if (known := lookup(op, case, oracle)) is not None] if oracle == "fast" else []
    if not any(found):
        return ""
    return (
        f"the oracle fast was refused in {sum(map(bool, found))} of {len(found)} cases, where costate answered: {next(filter(None, found))}"
    )


def sources_of(op: Op) -> str:
    """A digest of everything that noise and truth depend on but the case: bands of other sources do not count."""
    return cache.key_of({"op": op_digest(op.file), "numerics": own_digest()})


@once
def op_digest(file: str) -> str:
    """A digest of an op's file and the helpers it uses, but for the kernels that it names: what they are changes no truth."""
    text = Path(file).read_text("utf-8", errors="replace")
    return cache.key_of({"op": without_kernels(text), "helpers": cache.source_digest(sorted(_helpers(Path(file))))})


def _helpers(file: Path) -> set[Path]:
    """The private files beside `file` whose names it says, and theirs."""
    beside = {path.stem: path for path in file.parent.glob("_*.py")}
    found: set[Path] = set()
    new = {file}
    while new:
        words = {word for path in new for word in re.findall(r"\w+", path.read_text("utf-8", errors="replace"))}
        new = {beside[word] for word in words & set(beside)} - found
        found |= new
    return found


def without_kernels(text: str) -> str:
    """The source of an op without the list that its declaration gives for `kernels`; a text that is no Python as it is."""
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return text
    lists = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "kernels"]
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # the columns of a syntax tree count bytes
    for node in sorted(lists, key=lambda node: node.lineno, reverse=True):
        assert node.end_lineno is not None
        first, last = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [first + last]
    return b"".join(lines).decode()


@once
def own_digest() -> str:
    """A digest of everything of ours that a truth depends on."""
    # The numerics, and what turns their answers into the noise that is kept beside the truth.
    here = Path(__file__).parent
    folder = Path(str(numerics.__file__)).parent
    return cache.source_digest([Path(str(reference_math.__file__)), folder, here / "measure.py", here / "problem.py", Path(__file__)])
