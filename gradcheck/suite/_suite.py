"""A suite: what all its roots declare, merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradcheck._errors import SuiteError, unknown
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck._report import Report
from gradcheck._trained import Trained
from gradcheck.suite._files import Declaration, declarations
from gradcheck.suite._roots import Root, find_roots


@dataclass(frozen=True, slots=True)
class Suite:
    """Ops, mutants and reports by name.

    Args:
        roots: where they come from, in the order in which they were loaded.
        ops: by name.
        mutants: by id, `op/name`.
        reports: by name.
        notes: what a reader of a run must know about the choice of roots.
        files: the file that declares each op, mutant id, trained input and report. These share one space of names.
        homes: the root of each op.
        trained: what is trained behind inputs of ops, by id, `op/name`.
    """

    roots: tuple[Root, ...]
    ops: Mapping[str, Op] = field(hash=False)
    mutants: Mapping[str, Mutant] = field(hash=False)
    reports: Mapping[str, Report] = field(hash=False)
    notes: tuple[str, ...]
    files: Mapping[str, str] = field(hash=False)
    homes: Mapping[str, Root] = field(hash=False)
    trained: Mapping[str, Trained] = field(default_factory=dict, hash=False)


def load(paths: Sequence[Path] = (), *, cwd: Path | None = None) -> Suite:
    """Load the built-in suite, those of installed distributions, and those in folders.

    Loading a suite runs its files.

    Args:
        paths: folders to load instead of those that the configuration, or else `cwd`, stands for.
        cwd: where to look for a configuration; the working directory if not given.

    Raises:
        SuiteError: a file cannot be imported, an installed suite is broken, or two files declare one name.
        UsageError: a folder that was asked for is no suite, or the configuration is wrong.
    """
    roots, notes = find_roots(paths, (cwd or Path.cwd()).absolute())
    ops: dict[str, Op] = {}
    mutants: dict[str, Mutant] = {}
    trained: dict[str, Trained] = {}
    reports: dict[str, Report] = {}
    files: dict[str, str] = {}
    homes: dict[str, Root] = {}
    for root in roots:
        for declared in declarations(root):
            if declared.name in files:
                raise _clash(declared, files[declared.name])
            files[declared.name] = str(declared.file)
            match declared.value:
                case Op() as op:
                    ops[op.name], homes[op.name] = op, root
                case Mutant() as mutant:
                    mutants[mutant.id] = mutant
                case Trained() as one:
                    trained[one.id] = one
                case Report() as report:
                    reports[report.name] = report
    return Suite(roots, ops, mutants, reports, notes, files, homes, trained)


def find_op(suite: Suite, name: str) -> Op:
    """The op of this name.

    Raises:
        UsageError: there is none; the message has the near names.
    """
    if name not in suite.ops:
        raise unknown("op", name, suite.ops, hint=_hint(suite))
    return suite.ops[name]


def mutants_of(suite: Suite, op_name: str) -> tuple[Mutant, ...]:
    """The mutants of an op, in the order of the files.

    Raises:
        UsageError: there is no such op.
    """
    name = find_op(suite, op_name).name
    return tuple(mutant for mutant in suite.mutants.values() if mutant.op == name)


def _clash(declared: Declaration, other: str) -> SuiteError:
    kind = type(declared.value).__name__.lower()
    twice = f"is declared twice in {other}" if other == str(declared.file) else f"is declared in {other} and in {declared.file}"
    return SuiteError(f"{kind} {declared.name!r} {twice}; give one of them another name, or leave one suite out")


def _hint(suite: Suite) -> str:
    return "Suites: " + ", ".join(str(root.path) for root in suite.roots) + "."
