"""Load the files of one root: every module-level `Op`, `Mutant`, `Trained` and `Report` in them is a declaration.

Each root gets a parent package of its own in `sys.modules`, named by a hash of its real path. So relative imports, tracebacks,
`inspect` and coverage work, two suites may have files of one name, and no top-level name such as `reports` is taken.
A file is run once in a process, however often its suite is loaded.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from gradcheck._errors import GradcheckError, SuiteError
from gradcheck._mutant import Mutant
from gradcheck._op import Op
from gradcheck._report import Report
from gradcheck._trained import Trained
from gradcheck.suite._roots import FOLDERS, Root

Declared = Op | Mutant | Trained | Report


@dataclass(frozen=True, slots=True)
class Declaration:
    """A value of a suite file, with its name filled in."""

    value: Declared
    file: Path

    @property
    def name(self) -> str:
        """Its name in the suite: `op`, `op/mutant`, `op/trained input`, or the report's name."""
        return self.value.id if isinstance(self.value, Mutant | Trained) else self.value.name


def declarations(root: Root) -> Iterator[Declaration]:
    """What the files of this root declare, folder by folder, file by file, in the order of the text.

    Files and variables that begin with `_` are private to the suite.

    Raises:
        SuiteError: a file cannot be imported.
    """
    modules = [(path, _load(root, path)) for folder in FOLDERS for path in sorted((root.path / folder).glob("[!_]*.py"))]
    files = {module.__name__: path for path, module in modules}
    seen: set[int] = set()
    for path, module in modules:
        for variable, value in vars(module).items():
            if variable.startswith("_") or not isinstance(value, Declared):
                continue
            # One value under two variables, or imported by another file, is declared once.
            if id(value) not in seen and files.get(_module_of(value), path) == path:
                seen.add(id(value))
                yield Declaration(_named(value, variable, path), path)


def _module_of(value: Declared) -> str:
    """The module that declares a value which another file may have imported."""
    match value:
        case Op():
            return value.step.__module__
        case Report():
            return value.render.__module__
        case Mutant() | Trained():
            return ""


def _named(value: Declared, variable: str, file: Path) -> Declared:
    match value:
        case Op():
            return replace(value, file=str(file))
        case Mutant() | Trained():
            return replace(value, name=value.name or variable)
        case Report():
            return value


def _load(root: Root, file: Path) -> ModuleType:
    if not file.stem.isidentifier():
        raise SuiteError(f"suite file {file}: {file.stem!r} is no module name; use letters, digits and underscores, or begin it with `_`")
    package = "_gradcheck_suite_" + sha256(str(root.path).encode()).hexdigest()[:12]
    folder = f"{package}.{file.parent.name}"
    _ensure_package(package, root.path)
    _ensure_package(folder, file.parent)
    try:
        return importlib.import_module(f"{folder}.{file.stem}")
    except (Exception, SystemExit) as error:
        raise SuiteError(f"suite file {file} cannot be loaded: {_what(error)}{_where(error, root)}{_hint(error)}") from error


def _ensure_package(name: str, path: Path) -> None:
    if name in sys.modules:
        return
    importlib.invalidate_caches()  # the files may have been written a moment ago
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(path)]
    sys.modules[name] = module_from_spec(spec)


def _what(error: BaseException) -> str:
    return str(error) if isinstance(error, GradcheckError) else f"{type(error).__name__}: {error}"


def _where(error: BaseException, root: Root) -> str:
    """The innermost place in the suite's own text that the error came from."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return "" if f"line {error.lineno}" in str(error) else f" ({error.filename}:{error.lineno})"
    folders = [root.path / name for name in FOLDERS]  # not the whole root: a checkout may hold gradcheck itself, and a .venv
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if any(map(Path(frame.filename).is_relative_to, folders))]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f". Install what provides {error.name.partition('.')[0]!r}, or import it inside the function that needs it"
    return ""
