"""Find a kernel by its target, `package.module:attr` or `path/to/file.py:attr`, and load it."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from gradcheck import GradcheckError, UsageError
from gradcheck._errors import unknown

FORM = "package.module:attribute or path/to/file.py:attribute"
PREFIX = "gradcheck_target_"

SOURCES = frozenset(
    {".py", ".pyx", ".metal", ".h", ".hpp", ".hh", ".inl", ".c", ".cc", ".cpp", ".cxx", ".m", ".mm", ".cu", ".cuh", ".cl", ".wgsl", ".comp"}
)
"""Endings of what a kernel may be written in. The folder of a stranger's file may hold anything else besides."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file's kernel lives: its package's folder, the dotted module in it (empty: the package itself), the attribute."""

    package: Path
    module: str
    attr: str


def load_target(target: str, *, folder: Path | None = None) -> object:
    """The object that `target` names.

    A file is loaded as `python file.py` would: its folder comes first on the path while it loads, so that it can import its
    siblings at the top of the file. `sys.path` is then put back and the siblings are forgotten, so that files of other folders
    with siblings of the same names get their own. A file of a package (its folder has `__init__.py`) may also import relatively.
    Functions that the module makes with `mx.custom_function` are tapped, unless it was imported before.

    Args:
        target: `package.module:attr` or `path/to/file.py:attr`; the attribute may be dotted.
        folder: where relative files are looked for, and modules before anywhere else; by default the current one.

    Raises:
        UsageError: there is no such file, module or attribute, or importing it fails.
    """
    where, attr = _split(target)
    folder = (folder or Path.cwd()).resolve()
    if not _is_file(where):
        with _tapped(), _importable(folder):
            module = _run(target, lambda: importlib.import_module(where), lambda: _find(target, where))
        return _attribute(module, attr, target)
    file = _existing(target, folder / where)
    if not (file.parent / "__init__.py").is_file():
        return _attribute(_load_file(file, target), attr, target)
    place = _outermost(file, attr)
    with _tapped(), _importable(file.parent), _forgetting(file.parent):
        return load_package(place.package, place.module, attr)


def load_package(folder: Path, module: str, attr: str) -> object:
    """Attribute `attr` of `module` in the package that lies in `folder`, which need not be importable by any name.

    The package is loaded anew under a synthetic name made from its path, so that relative imports in it work and several copies of
    one package live side by side. A folder without `__init__.py` is no package: its files are loaded as `load_target` loads files.

    Raises:
        UsageError: there is no such module or attribute, or importing it fails.
    """
    folder = folder.resolve()
    who = f"{folder / (module.replace('.', '/') or '__init__')}.py:{attr}"
    if not (folder / "__init__.py").is_file():
        return _attribute(_load_file(folder / f"{module.replace('.', '/')}.py", who), attr, who)
    name = _synthetic(folder)
    for old in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[old]
    with _tapped():
        loaded = _run(who, lambda: _execute(name, folder / "__init__.py", folder))
        if module:
            find = lambda: _descend(who, name, [str(folder)], module.split("."))  # noqa: E731
            loaded = _run(who, lambda: importlib.import_module(f"{name}.{module}"), find)
    return _attribute(loaded, attr, who)


def source_files(target: str, *, folder: Path) -> tuple[Path, ...]:
    """The module that `target` names and the sources beside it, which it may import or compile. Nothing is imported here.

    Args:
        target: as in `load_target`.
        folder: where relative files are looked for, and modules before anywhere else.

    Raises:
        UsageError: there is no such file or module.
    """
    where, _ = _split(target)
    if _is_file(where):
        file = _existing(target, folder / where)
    else:
        with _importable(folder):
            file = Path(_find(target, where).origin or "").resolve()
    return tuple(sorted(beside for beside in file.parent.iterdir() if beside.suffix in SOURCES and beside.is_file()))


def _split(target: str) -> tuple[str, str]:
    where, colon, attr = target.rpartition(":")
    if not colon or not where or not attr:
        raise UsageError(f"kernel target {target!r} is not of the form {FORM}")
    return where, attr


def _is_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where or "\\" in where


def _existing(target: str, file: Path) -> Path:
    if file.is_file():
        return file.resolve()
    beside = sorted(path.stem for path in file.parent.glob("*.py")) if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.stem, beside, n=1)
    hint = f"did you mean {near[0]}.py?" if near else f"the form is {FORM}"
    raise UsageError(f"kernel {target!r}: no file {file}; {hint}")


def _outermost(file: Path, attr: str) -> Place:
    """The outermost package that holds the file, so that every relative import in it can be resolved."""
    package, module = file.parent, "" if file.stem == "__init__" else file.stem
    while (package.parent / "__init__.py").is_file():
        module = f"{package.name}.{module}" if module else package.name
        package = package.parent
    return Place(package, module, attr)


def _find(target: str, where: str) -> importlib.machinery.ModuleSpec:
    """The module's spec, found without importing its parents."""
    top, *rest = where.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # an empty name, or a module without a spec, such as __main__
        spec = None
    if spec is None:
        near = difflib.get_close_matches(top, [module.name for module in pkgutil.iter_modules()], n=1)
        hint = f"did you mean {near[0]}?" if near else "is it installed, and its folder on the path?"
        raise UsageError(f"kernel {target!r}: no module {top!r}; {hint}")
    return _descend(target, top, spec.submodule_search_locations, rest) or spec


def _descend(target: str, name: str, locations: Sequence[str] | None, rest: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    spec = None
    for part in rest:
        spec = importlib.machinery.PathFinder.find_spec(f"{name}.{part}", locations) if locations is not None else None
        if spec is None:
            known = [module.name for module in pkgutil.iter_modules(locations or [])]
            raise unknown(f"module in {name}", part, known, f"(kernel {target!r})")
        name, locations = f"{name}.{part}", spec.submodule_search_locations
    return spec


def _attribute(module: ModuleType, attr: str, target: str) -> object:
    found: object = module
    for part in attr.split("."):
        if not hasattr(found, part):
            known = [name for name in vars(module) if not name.startswith("_")] if found is module else dir(found)
            home = module.__file__ if found is module else f"{module.__file__}:{attr.partition('.' + part)[0]}"
            raise unknown("attribute", part, [name for name in known if not name.startswith("_")], f"In {home} (kernel {target!r}).")
        found = getattr(found, part)
    return found


def _load_file(file: Path, target: str) -> ModuleType:
    file = _existing(target, file)
    with _tapped(), _importable(file.parent), _forgetting(file.parent):
        return _run(target, lambda: _execute(f"{_synthetic(file)}_{file.stem}", file, None))


def _execute(name: str, file: Path, package: Path | None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(package)] if package else None)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} cannot be loaded as Python source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _synthetic(path: Path) -> str:
    return f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"


def _run(target: str, load: Callable[[], ModuleType], explain: Callable[[], object] = lambda: None) -> ModuleType:
    """Import by `load`. Where a module is missing, `explain` may raise a better error first."""
    try:
        return load()
    except GradcheckError:
        raise
    except SystemExit as error:  # with any status: sys.exit(0) must not read as success
        raise UsageError(
            f"kernel {target!r}: importing it ends the process by {error!r}; put what is a script below `if __name__ == '__main__':`"
        ) from error
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            explain()
        raise UsageError(f"kernel {target!r}: importing it raises {type(error).__name__}: {error}") from error


def _tapped() -> AbstractContextManager[object]:
    """The tap on `mx.custom_function`, where there is MLX. It imports MLX, so that no file named `mlx.py` can come before it."""
    if importlib.util.find_spec("mlx") is None:
        return nullcontext()
    from gradcheck.engine.tap import tap_custom_functions  # MLX only where a kernel is loaded

    return tap_custom_functions()


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """`folder` first on `sys.path`; afterwards the path is what it was."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # the folder may have been written a moment ago
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _forgetting(folder: Path) -> Iterator[None]:
    """Forget the modules that were imported from `folder` by their plain names meanwhile."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder) and not name.startswith(PREFIX):
                del sys.modules[name]
