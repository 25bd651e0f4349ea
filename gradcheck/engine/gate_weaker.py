"""What a change takes out of a suite: mutants that are planted no more, kernels and ops that are gone, and cases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import GradcheckError
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck.engine.gate_base import Base, copy_at
from gradcheck.suite import Suite, load

FOLDERS = ("oracles", "mutants")


@dataclass(frozen=True, slots=True)
class Weaker:
    """What the base's suite has and the present one has not.

    Args:
        mutants: (op, mutant, kernel) that the base plants and this suite does not.
        gone: ops and kernels, in words.
        new: ids of mutants, with the kernel, that the base does not plant.
        notes: what else a reader must know: regimes, sizes and branches that were taken out, declarations that were softened.
    """

    mutants: tuple[tuple[str, str, str], ...] = ()
    gone: tuple[str, ...] = ()
    new: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()


def weaker(base: Base, suite: Suite, files: Collection[str], scratch: Path) -> Weaker:
    """Compare with the suite that the base has, if the change touches one; it is loaded as any suite is, from a copy in `scratch`."""
    root = base.root.resolve()
    homes = [home.path for home in suite.roots if home.path.is_relative_to(root)]
    # A folder of the suite may be gone altogether, and its home with it: hence also the root of the repository.
    folders = [home / name for home in dict.fromkeys([*homes, root]) for name in FOLDERS]
    if not any((root / path).is_relative_to(folder) for path in files for folder in folders):
        return Weaker()
    projects = [place / "pyproject.toml" for home in homes for place in (home, *home.parents) if place.is_relative_to(root)]
    tree = copy_at(base, [*folders, *dict.fromkeys(projects)], scratch / base.commit[:12])
    there = [
        copy for home in dict.fromkeys([*homes, root]) if any((copy := tree / home.relative_to(root)).joinpath(n).is_dir() for n in FOLDERS)
    ]
    if not there:
        return Weaker(notes=("the base has no suite of its own to compare with",))
    try:
        before = load(there)
    except GradcheckError as error:
        return Weaker(
            notes=(f"the base's suite cannot be loaded by this gradcheck, so mutants that were taken out are not known: {error}",)
        )
    inside = tree.resolve()
    ops = {name: op for name, op in before.ops.items() if before.homes[name].path.is_relative_to(inside)}
    mutants = {id_: one for id_, one in before.mutants.items() if Path(before.files[id_]).resolve().is_relative_to(inside)}
    gone = [text for op in ops.values() for text in _gone(op, suite)]
    lost = [(m.op, m.name, kernel) for m in mutants.values() for kernel in m.edits if _lost(m, kernel, suite)]
    ours = [one for id_, one in suite.mutants.items() if Path(suite.files[id_]).resolve().is_relative_to(root)]
    new = {(m.id, kernel) for m in ours for kernel in m.edits if _new(m, kernel, mutants)}
    notes = [*(text for op in ops.values() for text in _fewer(op, suite)), *(text for m in mutants.values() for text in _softer(m, suite))]
    return Weaker(tuple(lost), tuple(gone), frozenset(new), tuple(notes))


def _new(mutant: Mutant, kernel: str, before: Mapping[str, Mutant]) -> bool:
    """Whether the base plants no mutant of this name in the kernel, and none with this text."""
    if mutant.id in before and kernel in before[mutant.id].edits:
        return False
    return not any(one.op == mutant.op and one.edits.get(kernel) == mutant.edits[kernel] for one in before.values())


def _gone(op: Op, suite: Suite) -> Iterator[str]:
    if op.name not in suite.ops:
        yield f"op {op.name}"
        return
    now = {kernel.name for kernel in suite.ops[op.name].kernels}
    yield from (f"kernel {kernel.name} of {op.name}" for kernel in op.kernels if kernel.name not in now)


def _lost(mutant: Mutant, kernel: str, suite: Suite) -> bool:
    """Whether the base's mutant is planted in this kernel no more: under its name with any text, or under another name with its text."""
    op = suite.ops.get(mutant.op)
    if op is None or kernel not in {one.name for one in op.kernels}:
        return False  # told of the op or kernel
    if mutant.id in suite.mutants and kernel in suite.mutants[mutant.id].edits:
        return False
    return not any(one.op == mutant.op and one.edits.get(kernel) == mutant.edits[kernel] for one in suite.mutants.values())


def _fewer(op: Op, suite: Suite) -> Iterator[str]:
    if op.name not in suite.ops:
        return
    now = suite.ops[op.name]
    taken = [f"regime {name}" for name in op.regimes if name not in now.regimes]
    taken += [f"branch {name}" for name in op.variants if name not in now.variants]
    taken += [f"{axis} = {size}" for axis, sizes in op.dims.items() for size in sizes if size not in now.dims.get(axis, ())]
    if taken:
        yield f"{op.name} is checked at less than in the base: {', '.join(taken)} taken out"


def _softer(mutant: Mutant, suite: Suite) -> Iterator[str]:
    now = suite.mutants.get(mutant.id)
    if now is None:
        return
    if now.expect != mutant.expect:
        yield f"mutant {mutant.id} was expected to be {mutant.expect} and is now declared {now.expect}: {now.reason or 'without a reason'}"
    for what in ("variants", "dtypes"):
        before, after = getattr(mutant, what), getattr(now, what)
        if after and set(after) != set(before):
            yield f"mutant {mutant.id} has {what} {', '.join(after)}, and had {', '.join(before) or 'all'}"
