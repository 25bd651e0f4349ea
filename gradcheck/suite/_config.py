"""`[tool.gradcheck]` of a pyproject.toml, or a gradcheck.toml where there is no pyproject."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError, unknown

KEYS = ("suites",)


@dataclass(frozen=True, slots=True)
class Config:
    """What a project says about itself.

    Args:
        file: where it says so.
        suites: its suite folders, absolute; None where the key is absent.
    """

    file: Path
    suites: tuple[Path, ...] | None


def read_config(folder: Path) -> Config | None:
    """The configuration nearest to `folder`, from there upwards; None where there is none.

    Raises:
        UsageError: a file that is not TOML, a key that does not exist, a value of the wrong type, or two files in one folder.
    """
    for here in (folder, *folder.parents):
        found = [(file, table) for file, table in ((here / name, _table(here / name)) for name in NAMES) if table is not None]
        if len(found) > 1:
            raise UsageError(f"both {found[0][0]} and {found[1][0]} configure gradcheck; keep one of them")
        if found:
            return _parse(*found[0])
    return None


NAMES = ("gradcheck.toml", "pyproject.toml")


def project_name(pyproject: Path) -> str:
    """`[project] name` of this pyproject.toml, normalised as package indexes do; empty where it has none."""
    project = _toml(pyproject).get("project", {})
    name = project.get("name", "") if isinstance(project, dict) else ""
    return normalised(name) if isinstance(name, str) else ""


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it: `Griffin_Kernels` is `griffin-kernels`."""
    return name.lower().replace("_", "-").replace(".", "-")


def _table(file: Path) -> Mapping[str, object] | None:
    data = _toml(file)
    if file.name == "gradcheck.toml":
        return data if file.is_file() else None
    tool = data.get("tool", {})
    table = tool.get("gradcheck") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.gradcheck] is {table!r}, not a table")
    return table


def _toml(file: Path) -> Mapping[str, object]:
    if not file.is_file():
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error


def _parse(file: Path, table: Mapping[str, object]) -> Config:
    for key in table:
        if key not in KEYS:
            raise unknown("[tool.gradcheck] key", key, KEYS, hint=f"It stands in {file}.")
    suites = table.get("suites")
    if suites is None:
        return Config(file, None)
    if not isinstance(suites, list) or not all(isinstance(each, str) for each in suites):
        raise UsageError(f'{file}: suites is {suites!r}, need a list of folders such as ["."]')
    return Config(file, tuple(file.parent / each for each in suites))
