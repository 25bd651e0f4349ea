"""Which suites there are: the built-in one, those of installed distributions, and folders.

A root is told by its real path, so a symlink, `.` and the absolute path are one root. A checkout of a suite that is also installed
replaces the installed copy: who edits a clone means the clone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal

from gradcheck._errors import SuiteError, UsageError
from gradcheck.suite._config import normalised, project_name, read_config
from gradcheck.suite._locate import find_module

FOLDERS = ("oracles", "mutants", "reports")
GROUP = "gradcheck.suites"
NO_PLUGINS = "GRADCHECK_NO_PLUGINS"
BUILT_IN = "gradcheck"


@dataclass(frozen=True, slots=True)
class Root:
    """A suite on disk.

    Args:
        path: its folder, as a real path.
        origin: how it was found.
        distribution: the distribution that provides it, or of which it is a checkout; empty where there is none.
    """

    path: Path
    origin: Literal["built-in", "installed", "folder"]
    distribution: str = ""


def find_roots(paths: Sequence[Path], cwd: Path) -> tuple[tuple[Root, ...], tuple[str, ...]]:
    """Roots in the order in which they are loaded, and what a reader must know about the choice.

    Folders are the first of these that there is: `paths`; the `suites` of the configuration nearest to `cwd`; `cwd` itself where
    it holds oracles or mutants (a folder with nothing but `reports/` is too common a sight to run what is in it unasked).

    Raises:
        SuiteError: an installed suite is broken.
        UsageError: a folder that was asked for is no suite, or the configuration is wrong.
    """
    installed = [builtin_root(), *_plugins()]
    roots: dict[Path, Root] = {root.path: root for root in installed}
    notes: list[str] = []
    for folder in _folders(paths, cwd):
        if folder.path in roots:
            continue
        for other in [other for other in installed if other.path in roots and _is_checkout_of(folder.path, other)]:
            del roots[other.path]
            notes += [f"suite {other.distribution}: using the checkout {folder.path} instead of the installed {other.path}"]
        roots[folder.path] = folder
    return tuple(roots.values()), tuple(notes)


def is_suite(folder: Path) -> bool:
    """Whether a folder has any of `oracles/`, `mutants/`, `reports/`."""
    return any((folder / name).is_dir() for name in FOLDERS)


def builtin_root() -> Root:
    """The suite that comes with gradcheck: inside the wheel, or the checkout around an editable install.

    Raises:
        SuiteError: gradcheck is installed without it.
    """
    package = Path(__file__).resolve().parents[1]
    shipped, checkout = package / "_suite", package.parent
    if shipped.is_dir():
        return Root(shipped, "built-in", BUILT_IN)
    # site-packages, too, may happen to hold a folder `reports`: only a project is a checkout.
    if (checkout / "pyproject.toml").is_file() and is_suite(checkout):
        return Root(checkout, "built-in", BUILT_IN)
    raise SuiteError(f"gradcheck's own suite is neither in {shipped} nor beside {package}; install gradcheck anew")


def _plugins() -> Iterator[Root]:
    if os.environ.get(NO_PLUGINS, "") not in {"", "0"}:
        return
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        yield _plugin(entry)


def _plugin(entry: EntryPoint) -> Root:
    owner = entry.dist.name if entry.dist else ""
    spec = find_module(entry.value)
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for place in places:
        if is_suite(place):
            return Root(place.resolve(), "installed", normalised(owner))
    found = f"{', '.join(map(str, places))} has none of {', '.join(FOLDERS)}" if places else "there is no such package"
    raise SuiteError(
        f"the suite {entry.name!r} of the distribution {owner!r} is broken: its entry point names {entry.value!r}, but {found}. "
        f"Mend or uninstall it, or set {NO_PLUGINS}=1"
    )


def _folders(paths: Sequence[Path], cwd: Path) -> list[Root]:
    if paths:
        return [_folder(cwd / path, "") for path in paths]
    config = read_config(cwd)
    if config and config.suites is not None:
        return [_folder(path, f", which {config.file} names") for path in config.suites]
    return [_folder(cwd, "")] if any((cwd / name).is_dir() for name in ("oracles", "mutants")) else []


def _folder(path: Path, named_by: str) -> Root:
    if not is_suite(path):
        state = "has none of the folders oracles, mutants, reports" if path.is_dir() else "is not a folder"
        raise UsageError(f"no suite at {path}{named_by}: it {state}. Name the folder that holds them")
    real = path.resolve()
    return Root(real, "folder", project_name(_nearest_pyproject(real)))


def _nearest_pyproject(folder: Path) -> Path:
    files = [here / "pyproject.toml" for here in (folder, *folder.parents)]
    return next((file for file in files if file.is_file()), files[0])


def _is_checkout_of(folder: Path, installed: Root) -> bool:
    """Whether the folder is where the installed suite comes from: same project, and the same place in it.

    The place matters: a small suite among a project's test data is not the project's suite.
    """
    pyproject = _nearest_pyproject(folder)
    if not installed.distribution or project_name(pyproject) != installed.distribution:
        return False
    inside = folder.relative_to(pyproject.parent).parts
    if inside[:1] == ("src",):
        inside = inside[1:]
    return not inside or inside == installed.path.parts[-len(inside) :]
