"""Where a kernel's source lies, without importing it: an import could need a device, or start one."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from gradcheck._errors import UsageError


class Package(NamedTuple):
    """A package on disk.

    Args:
        folder: where it lies.
        name: the dotted name it is imported by; empty for a folder of loose files.
        module: the module in it that holds the kernel; empty for the package itself.
    """

    folder: Path
    name: str
    module: str


def kernel_package(kernel_target: str, root: Path | None) -> Package:
    """The package that holds a kernel: what is copied, with an edit applied, to make a mutant.

    A checkout wins over an installed package, so that a gradcheck that is installed plainly and run from a clone checks the
    clone's kernels. A target `path/to/file.py:attr` is relative to `root` (or to the working directory), and its package is
    the folder of the file.

    Args:
        kernel_target: `package.module:attribute` or `path/to/file.py:attribute`.
        root: the root of the suite that declares the kernel.

    Raises:
        UsageError: the target has another form, there is no such module or file, or the module is in no package.
    """
    where, colon, attribute = kernel_target.rpartition(":")
    if not (where and colon and attribute):
        raise UsageError(f"kernel target {kernel_target!r} is neither `package.module:attribute` nor `path/to/file.py:attribute`")
    if where.endswith(".py"):
        file = (root or Path.cwd()) / where
        if not file.is_file():
            raise UsageError(f"kernel target {kernel_target!r}: there is no file {file}")
        return Package(file.resolve().parent, "", "" if file.stem == "__init__" else file.stem)
    return (_in_checkout(where, root) if root else None) or _installed(where, kernel_target)


def find_module(name: str) -> ModuleSpec | None:
    """Spec of the module `a.b.c`. Unlike `importlib.util.find_spec`, this does not import `a.b`."""
    head, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(head)
    except ValueError:  # an empty name, or a module without a spec such as __main__
        return None
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def _in_checkout(module: str, root: Path) -> Package | None:
    path = Path(*module.split("."))
    for base in (root, root / "src"):
        if (base / path / "__init__.py").is_file():
            return Package((base / path).resolve(), module, "")
        if "." in module and (base / path).with_suffix(".py").is_file():
            return Package((base / path).resolve().parent, *_split(module))
    return None


def _installed(module: str, kernel_target: str) -> Package:
    spec = find_module(module)
    if spec is None:
        parts = module.split(".")
        missing = next(name for n in range(len(parts)) if find_module(name := ".".join(parts[: n + 1])) is None)
        raise UsageError(f"kernel target {kernel_target!r}: there is no module {missing!r}; correct the name or install what provides it")
    if spec.submodule_search_locations:
        return Package(Path(next(iter(spec.submodule_search_locations))).resolve(), module, "")
    if "." not in module or spec.origin is None:
        raise UsageError(
            f"kernel target {kernel_target!r}: the module {module!r} is in no package, and a mutant is made by copying one; "
            "put the module into a package, or give it as path/to/file.py:attribute"
        )
    return Package(Path(spec.origin).resolve().parent, *_split(module))


def _split(module: str) -> tuple[str, str]:
    """(package, module in it) of a dotted name."""
    package, _, name = module.rpartition(".")
    return package, name
