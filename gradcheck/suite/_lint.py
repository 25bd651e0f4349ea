"""What is rotten in a suite: found by reading it, and by running the reference of each op on one tiny case. No kernel is imported."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from gradcheck._errors import UsageError, unknown
from gradcheck._kernel import Kernel
from gradcheck._mutant import Edit, Expect, Mutant
from gradcheck._op import Op
from gradcheck._trained import Trained
from gradcheck._verdict import CANARY, NULL
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.recurrence import axes
from gradcheck.numerics.taint import check_lanes, check_linear
from gradcheck.suite._locate import Package, find_module, kernel_package
from gradcheck.suite._suite import Suite

RESERVED = (CANARY, NULL, "all", "none")

Kind = Literal["stale", "ambiguous", "missing", "rule"]
Found = Iterator[tuple[Kind, str]]
Packages = dict[tuple[str, str], Package]  # by op and kernel


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend.

    Args:
        kind: `stale` or `ambiguous`, for an edit that matches nowhere or more than once; `missing`, for a name or file that
            does not exist; `rule`, for a declaration that breaks one.
        where: the op, kernel or mutant, and the file that declares it.
        what: what is the matter, and what to do.
    """

    kind: Kind
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def lint(suite: Suite) -> tuple[Problem, ...]:
    """Every problem of the suite. A kernel that cannot be found, and requires a module that is not here, is left out."""
    return tuple(Problem(kind, where, what) for where, found in _findings(suite) for kind, what in found)


def _findings(suite: Suite) -> Iterator[tuple[str, Found]]:
    packages: Packages = {}
    for op in suite.ops.values():
        yield f"op {op.name} ({op.file})", _op(op)
        for kernel in op.kernels:
            where = f"kernel {op.name}/{kernel.name} ({op.file})"
            try:
                package = kernel_package(kernel.target, suite.homes[op.name].path)
            except UsageError as error:
                if not kernel.requires or find_module(kernel.requires):
                    yield where, iter([("missing", str(error))])
            else:
                packages[op.name, kernel.name] = package
                yield where, _kernel(kernel, package)
    for mutant in suite.mutants.values():
        yield f"mutant {mutant.id} ({suite.files[mutant.id]})", _mutant(mutant, suite, packages)
    for one in suite.trained.values():
        yield f"trained input {one.id} ({suite.files[one.id]})", _trained(one, suite)


def _op(op: Op) -> Found:
    if not op.source.strip():
        yield "rule", "cites no source; say where its equations come from"
    if not op.maths.strip():
        yield "rule", "has no docstring; write its equations there"
    for regime in op.regimes.values():
        if not regime.why.strip():
            yield "rule", f"the regime {regime.name!r} has no docstring; say which defects it lets be seen"
    for variant in op.variants or ("",):
        yield from _step(op, variant)


def _step(op: Op, variant: str) -> Found:
    """Whether the step keeps what the op declares of it, on a tiny case of the first regime."""
    regime = next(iter(op.regimes.values()))
    sizes = _tiny(op)
    try:
        inputs = regime.draw(np.random.default_rng(0), op.shapes(sizes, variant))
        recurrence = op.recurrence(variant)
        sentences = (*check_lanes(recurrence, inputs), *check_linear(recurrence, inputs))
    except Exception as error:  # noqa: BLE001 - a suite's own code may raise anything, and that is what is the matter with it
        case = ",".join([*(f"{axis}{size}" for axis, size in sizes.items()), *([variant] if variant else [])])
        yield "rule", f"its step cannot be run on {case} of the regime {regime.name!r}: {type(error).__name__}: {error}"
    else:
        yield from (("rule", sentence) for sentence in sentences)


def _tiny(op: Op) -> Mapping[str, int]:
    """The smallest declared size above 1 of each axis; with several groups, of several members each, where such sizes are declared."""
    sizes = {axis: min([size for size in choices if size > 1] or choices) for axis, choices in op.dims.items()}
    grouped = sorted({*op.groups, *op.groups.values()})

    def rank(choice: tuple[int, ...]) -> tuple[int, int, int]:
        size = dict(zip(grouped, choice, strict=True))
        hidden = sum(size[coarse] == 1 or size[coarse] == size[fine] for coarse, fine in op.groups.items())
        impossible = sum(size[fine] % size[coarse] > 0 for coarse, fine in op.groups.items())
        return impossible, hidden, sum(choice)

    best = min(product(*(op.dims[axis] for axis in grouped)), key=rank)
    return sizes | dict(zip(grouped, best, strict=True))


def _kernel(kernel: Kernel, package: Package) -> Found:
    for source in kernel.sources:
        if not (package.folder / source).is_file():
            yield "missing", f"its source {source!r} is not in {package.folder}"
    if package.name and kernel.sources:  # without sources there is nothing to mutate
        for file in sorted(package.folder.rglob("*.py")):
            yield from _escapes(file, package)


def _escapes(file: Path, package: Package) -> Found:
    """Imports by which a copy of the package would reach the original, so that its edit is never run."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        yield "rule", f"{file} cannot be parsed: {error}"
        return
    inside = file.relative_to(package.folder).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not 1 <= node.level <= len(inside) + 1:
            names = [f"{_absolute(node, '.'.join((package.name, *inside)))}.{alias.name}" for alias in node.names]
        else:  # no import, or a relative one that stays within the copy
            continue
        if any(f"{name}.".startswith(f"{package.name}.") for name in names):
            what = f"{file}:{node.lineno} imports its own package as {package.name}; import relatively: a mutant is a copy of the package"
            yield "rule", f"{what} under another name, and would run the original there"


def _absolute(node: ast.ImportFrom, package: str) -> str:
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _mutant(mutant: Mutant, suite: Suite, packages: Packages) -> Found:
    for name in ("why", "defect", "seen_in"):
        if not getattr(mutant, name).strip():
            yield "rule", f"`{name}` is empty"
    if mutant.name in RESERVED:
        yield "rule", f"the name {mutant.name!r} has a meaning of its own; take another"
    if mutant.expect not in get_args(Expect):
        yield "rule", f"expect is {mutant.expect!r}, need one of {', '.join(get_args(Expect))}"
    elif mutant.expect != "killed" and not mutant.reason.strip():
        yield "rule", f"is expected to be {mutant.expect} and gives no reason"
    if not mutant.edits:
        yield "rule", "edits no kernel"
    if mutant.op in suite.ops:
        known = {"variant": suite.ops[mutant.op].variants, "dtype": DTYPES}
        for kind, name in (*(("variant", name) for name in mutant.variants), *(("dtype", name) for name in mutant.dtypes)):
            if name not in known[kind]:  # it would be run nowhere, in silence
                yield "missing", str(unknown(f"{kind} of {mutant.op}", name, known[kind]))
        yield from _edits(mutant, suite.ops[mutant.op], packages)
    else:
        yield "missing", str(unknown("op", mutant.op, suite.ops))


def _edits(mutant: Mutant, op: Op, packages: Packages) -> Found:
    kernels = {kernel.name: kernel for kernel in op.kernels}
    for name, edit in mutant.edits.items():
        if name not in kernels:
            yield "missing", str(unknown(f"kernel of {op.name}", name, kernels))
        elif edit.file not in kernels[name].sources:
            yield "missing", str(unknown(f"source of the kernel {op.name}/{name}", edit.file, kernels[name].sources))
        else:
            package = packages.get((op.name, name))
            yield from _edit(edit, package.folder / edit.file if package else None)


def _edit(edit: Edit, file: Path | None) -> Found:
    if edit.find == edit.replace:
        yield "rule", f"`find` and `replace` are the same text: {edit.find!r}"
    if not edit.find.strip():
        yield "rule", "`find` is blank"
    elif file and file.is_file():  # a source that is missing is told once, of its kernel
        yield from _matches(edit.find, file)


def _matches(find: str, file: Path) -> Found:
    source = file.read_bytes().decode()  # not read_text: an edit sees the line ends as they are
    hits = source.count(find)
    if hits == 0:
        line, text = nearest(find, source)
        yield "stale", f"`find` matches nothing in {file}: {find!r}. Nearest is line {line}: {text!r}. Write the edit anew"
    elif hits > 1:
        lines = ", ".join(str(line) for line in _lines_of(find, source))
        yield "ambiguous", f"`find` matches {hits} places in {file} (lines {lines}), need exactly 1: {find!r}. Take in more of the text"


def _lines_of(find: str, source: str) -> Iterator[int]:
    at = source.find(find)
    while at >= 0:
        yield source.count("\n", 0, at) + 1
        at = source.find(find, at + len(find))


def nearest(find: str, source: str) -> tuple[int, str]:
    """The line of the source, or the run of lines if `find` has several, that is most like `find`, and its number."""
    lines = source.splitlines()
    height = len(find.strip("\n").split("\n"))
    matcher = difflib.SequenceMatcher(b=find.strip(), autojunk=False)
    best, text, ratio = 0, "", -1.0
    for number in range(max(1, len(lines) - height + 1)):
        window = "\n".join(lines[number : number + height]).strip()
        matcher.set_seq1(window)
        if matcher.quick_ratio() > ratio and matcher.ratio() > ratio:
            best, text, ratio = number + 1, window, matcher.ratio()
    return best, text


def _trained(one: Trained, suite: Suite) -> Found:
    """Names that do not exist, so that nothing would be carried, in silence; and a slope that cannot be had where a regime goes."""
    if not one.source.strip():
        yield "rule", "cites no source; say which model computes the input like this"
    if one.op not in suite.ops:
        yield "missing", str(unknown("op", one.op, suite.ops))
        return
    op = suite.ops[one.op]
    if one.through not in op.inputs or one.through in op.constants:
        yield "missing", str(unknown(f"input of {op.name} with a gradient", one.through, set(op.inputs) - op.constants))
        return
    if stray := set(axes(one.axes or "")) - set(axes(op.inputs[one.through])):
        yield "missing", str(unknown(f"axis of {one.through}", min(stray), axes(op.inputs[one.through])))
    shapes = next(shapes for variant in op.variants or ("",) if one.through in (shapes := op.shapes(_tiny(op), variant)))
    for regime in op.regimes.values():
        try:
            value = regime.draw(np.random.default_rng(0), shapes)[one.through]
            with np.errstate(all="ignore"):  # what comes of it is looked at below
                slope = np.asarray(one.slope(value))
        except Exception as error:  # noqa: BLE001 - as of a step
            yield "rule", f"its slope cannot be had in the regime {regime.name!r}: {type(error).__name__}: {error}"
            return
        if slope.shape != value.shape or not np.isfinite(slope).all():
            yield "rule", f"its slope must be one finite number per element of {one.through}, and is not in the regime {regime.name!r}"
            return
