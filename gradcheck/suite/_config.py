"""`[tool.gradcheck]` of a pyproject.toml, or a gradcheck.toml where there is no pyproject. Its JSON Schema is `config.schema.json`, beside this."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError, unknown

NAMES = ("gradcheck.toml", "pyproject.toml")
KEYS = ("suites", "gate")


@dataclass(frozen=True, slots=True)
class Gate:
    """`[tool.gradcheck.gate]`: what `gradcheck gate` asks for; None where a key is absent.

    Args:
        fail_under: least separation of noise and weakest defect of any gradient, in decades.
        max_survivors: how many mutants may survive.
        shrink: factor by which a separation may be smaller than the base's.
        require_device: devices that the machine must have.
        time_budget: seconds for all of it.
    """

    fail_under: float | None = None
    max_survivors: int | None = None
    shrink: float | None = None
    require_device: tuple[str, ...] = ()
    time_budget: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """What a project says about itself.

    Args:
        file: where it says so.
        suites: its suite folders, absolute; None where the key is absent.
        gate: what its gate asks for.
    """

    file: Path
    suites: tuple[Path, ...] | None
    gate: Gate = Gate()


def read_config(folder: Path) -> Config | None:
    """The configuration nearest to `folder`, from there upwards; None where there is none.

    Raises:
        UsageError: a file that is not TOML, a key that does not exist, a value of the wrong type, or two files in one folder.
    """
    for here in (folder, *folder.parents):
        files = [here / name for name in NAMES if (here / name).is_file()]
        found = [config for file in files if (config := parse_config(file, file.read_bytes())) is not None]
        if len(found) > 1:
            raise UsageError(f"both {found[0].file} and {found[1].file} configure gradcheck; keep one of them")
        if found:
            return found[0]
    return None


def parse_config(file: Path, content: bytes) -> Config | None:
    """What this content of `file`, a gradcheck.toml or a pyproject.toml, says of gradcheck; None where it says nothing.

    Raises:
        UsageError: as `read_config`.
    """
    data = _toml(file, content)
    if file.name == "gradcheck.toml":
        return _parse(file, data)
    tool = data.get("tool", {})
    table = tool.get("gradcheck") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.gradcheck] is {table!r}, not a table")
    return None if table is None else _parse(file, table)


def project_name(pyproject: Path) -> str:
    """`[project] name` of this pyproject.toml, normalised as package indexes do; empty where it has none."""
    project = _toml(pyproject, pyproject.read_bytes()).get("project", {}) if pyproject.is_file() else {}
    name = project.get("name", "") if isinstance(project, dict) else ""
    return normalised(name) if isinstance(name, str) else ""


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it: `Griffin_Kernels` is `griffin-kernels`."""
    return name.lower().replace("_", "-").replace(".", "-")


def _toml(file: Path, content: bytes) -> Mapping[str, object]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error


def _parse(file: Path, table: Mapping[str, object]) -> Config:
    for key in table:
        if key not in KEYS:
            raise unknown("[tool.gradcheck] key", key, KEYS, hint=f"It stands in {file}.")
    suites = table.get("suites")
    if suites is not None and not _texts(suites):
        raise UsageError(f'{file}: suites is {suites!r}, need a list of folders such as ["."]')
    assert suites is None or isinstance(suites, list)
    return Config(file, None if suites is None else tuple(file.parent / each for each in suites), _gate(file, table.get("gate", {})))


def _gate(file: Path, table: object) -> Gate:
    if not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.gradcheck.gate] is {table!r}, not a table")
    for key, value in table.items():
        if key not in GATE_KEYS:
            raise unknown("[tool.gradcheck.gate] key", key, GATE_KEYS, hint=f"It stands in {file}.")
        fits, need = GATE_KEYS[key]
        if not fits(value):
            raise UsageError(f"{file}: gate.{key} is {value!r}, need {need}")
    plain = {key.replace("-", "_"): value for key, value in table.items()}
    return Gate(**plain | ({"require_device": tuple(plain["require_device"])} if "require_device" in plain else {}))


def _number(value: object) -> bool:
    """Whether it is a finite number; TOML has `true`, which Python takes for 1, and `nan`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


GATE_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "fail-under": (lambda value: _number(value) and float(str(value)) >= 0, "a number of decades, at least 0"),
    "max-survivors": (lambda value: isinstance(value, int) and _number(value) and value >= 0, "a whole number, at least 0"),
    "shrink": (lambda value: _number(value) and float(str(value)) >= 1, "a factor, at least 1"),
    "require-device": (_texts, 'a list of devices such as ["metal"]'),
    "time-budget": (lambda value: _number(value) and float(str(value)) > 0, "a number of seconds above 0"),
}
"""Key to whether a value fits, and what is needed."""
