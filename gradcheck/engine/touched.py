"""Which ops a change touches: by what the suite knows of its sources, and by what its kernels import from the same repository."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gradcheck
from gradcheck._errors import UsageError
from gradcheck._kernel import Kernel
from gradcheck.engine.environment import lacking
from gradcheck.engine.published import file_of
from gradcheck.engine.target import SOURCES
from gradcheck.suite import Suite, kernel_package

DOCS = frozenset({".md", ".rst"})
"""Endings of what lies among sources and is none."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What a change touches.

    Args:
        ops: op to the reasons why, in the order of the suite.
        kernels: op to its kernels of which a declared source, or the module itself, changed.
        sources: op to the changed files of its kernels, from the root of the repository.
        references: ops whose own file, or one that it may read, changed: what is right is then what the change says.
        mutants: ops whose files of mutants changed.
        bands: ops whose published bands changed.
        other: changed files that belong to no op.
    """

    ops: dict[str, tuple[str, ...]]
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    mutants: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()
    other: tuple[str, ...] = ()


def everything(suite: Suite, root: Path | None) -> Touched:
    """All ops of which something lies in the repository; without a repository, all there are."""
    return Touched(dict.fromkeys(_ours(suite, root), ("nothing to compare with was named",)))


def touched(suite: Suite, files: Collection[str], root: Path, config: Path | None) -> Touched:
    """What a change of these files touches.

    Args:
        suite: the suites as they are now.
        files: paths from the root of the repository; also of files that are gone.
        root: of the repository.
        config: the file that configures gradcheck there.
    """
    changed = {path: (root / path).resolve() for path in sorted(files)}
    engine = {path: why for path, file in changed.items() if (why := _engine(file, root, config))}
    claims = _claims(suite, root)
    found = {op: _of_op(suite, op, changed, claims) for op in _ours(suite, root)}
    reasons = {op: [f"{path} {why}" for path, why in (*engine.items(), *one.why)] for op, one in found.items()}
    used = {*engine, *(path for one in found.values() for path in (*(path for path, _ in one.why), *one.bands))}
    return Touched(
        ops={op: tuple(dict.fromkeys(why)) for op, why in reasons.items() if why},
        kernels={op: tuple(one.kernels) for op, one in found.items() if one.kernels},
        sources={op: tuple(one.sources) for op, one in found.items() if one.sources},
        references=tuple(op for op, one in found.items() if any(why == _REFERENCE for _, why in one.why)),
        mutants=tuple(op for op, one in found.items() if any(why == _MUTANTS for _, why in one.why)),
        bands=tuple(op for op, one in found.items() if one.bands),
        other=tuple(path for path in changed if path not in used),
    )


_REFERENCE = "is of its reference"
_MUTANTS = "is of its mutants"


@dataclass(slots=True)
class _Found:
    """What of one op a change touches: (file, why), kernels, files of kernels, files of bands."""

    why: list[tuple[str, str]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    sources: dict[str, None] = field(default_factory=dict)
    bands: list[str] = field(default_factory=list)


def _of_op(suite: Suite, op: str, changed: dict[str, Path], claims: _Claims) -> _Found:
    found = _Found()
    published = file_of(suite, op).resolve()
    for path, file in changed.items():
        if file == published:
            found.bands.append(path)
        if _of_reference(file, Path(suite.ops[op].file)):
            found.why.append((path, _REFERENCE))
        if _of_mutants(file, op, suite, suite.homes[op].path):
            found.why.append((path, _MUTANTS))
    for name, why, paths, own in _kernels(suite, op, changed, claims):
        found.why += [(path, why) for path in paths]
        found.sources |= dict.fromkeys(paths)
        found.kernels += [name] if own else []
    return found


def _ours(suite: Suite, root: Path | None) -> list[str]:
    """Ops of whose declaration or kernels something lies in the repository."""
    if root is None:
        return list(suite.ops)
    here = root.resolve()
    return [op for op in suite.ops if any(place.is_relative_to(here) for place in _places(suite, op))]


def _places(suite: Suite, op: str) -> Iterator[Path]:
    yield suite.homes[op].path
    for kernel in suite.ops[op].kernels:
        try:
            yield kernel_package(kernel.target, suite.homes[op].path).folder
        except UsageError:
            continue


def _engine(file: Path, root: Path, config: Path | None) -> str:
    """Why this file decides about every op, or nothing."""
    if config is not None and file == config.resolve():
        return "configures gradcheck"
    for package in (Path(str(gradcheck.__file__)).resolve().parent, root.resolve() / "gradcheck"):
        if (package / "engine").is_dir() and file.is_relative_to(package):
            inside = file.relative_to(package).parts
            if not (inside[0] == "kernels" and len(inside) > 2) and file.suffix not in DOCS:
                return "is of gradcheck itself"
    return ""


def _of_reference(file: Path, op_file: Path) -> bool:
    folder = op_file.resolve().parent
    if file == op_file.resolve():
        return True
    return file.is_relative_to(folder) and _private(file, folder)


def _of_mutants(file: Path, op: str, suite: Suite, home: Path) -> bool:
    """Whether mutants of the op are, or by its name were, declared in this file, or it is private to them."""
    declared = {Path(suite.files[mutant.id]).resolve() for mutant in suite.mutants.values() if mutant.op == op}
    folders = {(home / "mutants").resolve(), *(path.parent for path in declared)}
    here = [folder for folder in folders if file.is_relative_to(folder)]
    return file in declared or any(_private(file, folder) or file == folder / f"{op}.py" for folder in here)


def _private(file: Path, folder: Path) -> bool:
    """Whether the files of a suite's folder may read this one: `_*` beside them, and all that lies deeper."""
    inside = file.relative_to(folder).parts
    return file.suffix not in DOCS and "__pycache__" not in inside and (inside[0].startswith("_") or len(inside) > 1)


def _kernels(suite: Suite, op: str, changed: dict[str, Path], claims: _Claims) -> Iterator[tuple[str, str, list[str], bool]]:
    """(kernel, why, changed files, whether they are of this very kernel) of each kernel of the op that the change touches."""
    home = suite.homes[op].path
    for kernel in suite.ops[op].kernels:
        try:
            package = kernel_package(kernel.target, home)
        except UsageError:
            module = kernel.target.partition(":")[0].removesuffix(".py").replace(".", "/")
            gone = [path for path in changed if path.endswith((f"{module}.py", f"{module}/__init__.py"))]
            if gone or not lacking(kernel.requires):
                yield kernel.name, f"is the kernel {kernel.name}, which cannot be found", gone, True
            continue
        mine = claims[op, kernel.name].files
        others = {file for one in claims.values() if one.folder == package.folder for file in one.files} - mine
        within = [path for path, file in changed.items() if _within(file, package.folder, loose=not package.name) and file not in others]
        own = _begun(kernel, package.folder, package.module)
        if within:
            yield kernel.name, f"is of the kernel {kernel.name}", within, any(changed[path] in own for path in within)
        further = [path for path, file in changed.items() if file in mine and path not in within]
        if further:
            yield kernel.name, f"is imported by the kernel {kernel.name}", further, False


def _within(file: Path, folder: Path, *, loose: bool) -> bool:
    """Whether the file is of the package; of a folder of loose files, which may be a whole repository, only sources are."""
    if not file.is_relative_to(folder) or any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(folder).parts):
        return False
    if not loose:
        return file.suffix not in DOCS
    below = folder / file.relative_to(folder).parts[0]
    return file.suffix in SOURCES and (file.parent == folder or (below / "__init__.py").is_file() or not below.exists())


@dataclass(frozen=True, slots=True)
class _Claim:
    """The package of a kernel, and the files that it is made of: those in the package, and what they import from the repository."""

    folder: Path
    files: frozenset[Path]


_Claims = Mapping[tuple[str, str], _Claim]
"""By op and kernel. What no kernel of a package claims may be read by all of them."""


def _claims(suite: Suite, root: Path) -> _Claims:
    found = {}
    for op, declared in suite.ops.items():
        home = suite.homes[op].path
        for kernel in declared.kernels:
            try:
                package = kernel_package(kernel.target, home)
            except UsageError:
                continue
            folder, roots = package.folder, (root.resolve(), home)
            files = _begun(kernel, folder, package.module) | ({folder / "__init__.py"} if package.name else set())
            files |= _reach(folder, package.name, files, roots)
            if package.name and any(_computes_imports(file) for file in files if file.is_relative_to(folder)):
                files |= set(folder.rglob("*.py"))
                files |= _reach(folder, package.name, files, roots)
            found[op, kernel.name] = _Claim(folder, frozenset(files))
    return found


def _begun(kernel: Kernel, folder: Path, module: str) -> set[Path]:
    """The files of a kernel that its declaration names: its module and its sources."""
    return {(folder / name).resolve() for name in (f"{module.replace('.', '/')}.py" if module else "__init__.py", *kernel.sources)}


def _computes_imports(file: Path) -> bool:
    """Whether a module imports others by names that are worked out when it runs, so that its text does not say which."""
    try:
        tree = ast.parse(file.read_bytes() if file.suffix == ".py" else "")
    except (OSError, SyntaxError, ValueError):
        return False
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = {func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else "" for func in called}
    return not names.isdisjoint({"import_module", "__import__", "exec", "run_path"})


def _reach(folder: Path, name: str, files: Collection[Path], roots: Sequence[Path]) -> set[Path]:
    """Files below the roots that these files of a package import, or would if they were there; and what those import."""
    top = folder.parents[len(name.split(".")) - 1] if name else folder
    bases = dict.fromkeys([*roots, *(root / "src" for root in roots), top])
    todo = [file for file in files if file.suffix == ".py"]
    seen: set[Path] = set()
    found = {parent / "__init__.py" for parent in folder.parents if parent != top and parent.is_relative_to(top)}  # imported on the way
    engine = Path(str(gradcheck.__file__)).resolve().parent
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        for place, parts in _imports(file):
            for base in [place] if place else bases:
                for n in range(1, len(parts) + 1):
                    stem = base.joinpath(*parts[:n])
                    found |= {stem.with_suffix(".py"), stem / "__init__.py"}
        todo += [path for path in found - seen if any(map(path.is_relative_to, roots)) and not path.is_relative_to(engine)]
    return found


def _imports(file: Path) -> Iterator[tuple[Path | None, list[str]]]:
    """(folder that a relative import begins at, dotted name) of each import."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((None, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            place = file.parents[node.level - 1] if node.level else None
            head = node.module.split(".") if node.module else []
            yield from ((place, [*head, alias.name]) for alias in node.names)
