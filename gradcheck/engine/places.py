"""Where the source of a run's kernels lies: for reports that point at a line."""

from __future__ import annotations

import ast
from pathlib import Path

from gradcheck._errors import GradcheckError
from gradcheck._verdict import Run
from gradcheck.suite import Suite, kernel_package

Place = tuple[str, str, int]
"""(folder that the mutants' files are relative to, the kernel's own file in it, line of its definition); the folder is relative to the
working directory where it lies below it."""


def places(run: Run, suite: Suite, cwd: Path) -> dict[str, Place]:
    """The place of each kernel of the run that can still be found; nothing is imported."""
    op = suite.ops.get(run.op)
    known = {kernel.name: kernel.target for kernel in op.kernels} if op else {}
    found = {}
    for name in dict.fromkeys([*(v.item.kernel for v in run.verdicts), *(row.kernel for row in run.kills)]):
        target = known.get(name, name)
        try:
            folder, _, module = kernel_package(target, suite.homes[run.op].path if name in known else cwd)
            file = f"{module.replace('.', '/')}.py" if module else "__init__.py"
            line = _line((folder / file).read_text(encoding="utf-8"), target.rpartition(":")[2])
        except (GradcheckError, OSError, ValueError, SyntaxError):
            continue  # the kernel has gone since: the report does without its line
        found[name] = (_short(folder, cwd), file, line)
    return found


def _line(source: str, attribute: str) -> int:
    """Line on which the attribute is last defined at the top of the module; 1 where it is made in another way."""
    name, found = attribute.partition(".")[0], 1
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined) | ast.ClassDef(name=defined) if defined == name:
                found = node.lineno
            case ast.Assign(targets=targets) if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                found = node.lineno
            case ast.AnnAssign(target=ast.Name(id=defined)) if defined == name:
                found = node.lineno
    return found


def _short(folder: Path, cwd: Path) -> str:
    folder, cwd = folder.resolve(), cwd.resolve()
    return (folder.relative_to(cwd) if folder.is_relative_to(cwd) else folder).as_posix()
