"""What the gate asks for: from the configuration of both sides, the command line, and the environment, which may only tighten it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gradcheck._errors import UsageError, unknown
from gradcheck.engine.change import FACTOR
from gradcheck.engine.environment import DEVICES
from gradcheck.suite import Gate

DEFAULT = Gate(max_survivors=0, shrink=FACTOR)
PREFIX = "GRADCHECK_"

_TIGHTER: Mapping[str, Callable[[float, float], float]] = {"fail_under": max, "max_survivors": min, "shrink": min}
"""Which of two values asks for more."""
_LEAST = {"fail_under": 0.0, "max_survivors": 0.0, "shrink": 1.0}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a pull request must keep.

    Args:
        fail_under: least separation of any gradient in decades; None asks for none.
        max_survivors: how many mutants may survive.
        shrink: factor by which a separation may be smaller than the base's.
        devices: what the machine must have.
        time_budget: seconds for all of it; None is no limit.
        notes: where something was loosened, and is not.
    """

    fail_under: float | None
    max_survivors: int
    shrink: float
    devices: tuple[str, ...]
    time_budget: float | None
    notes: tuple[str, ...] = ()


def terms(head: Gate, base: Gate | None, asked: Gate, environ: Mapping[str, str]) -> Terms:
    """The terms that hold.

    The command line stands before the configuration. Of the configuration before and after a change, what asks for more holds, so that a
    change that loosens it does not help itself. `GRADCHECK_FAIL_UNDER`, `_MAX_SURVIVORS`, `_SHRINK` and `_REQUIRE_DEVICE` may ask for more.

    Raises:
        UsageError: a device that does not exist, or a variable of the environment that is no number or asks for less.
    """
    found, notes = DEFAULT, []
    for name in (*_TIGHTER, "time_budget"):
        mine = getattr(head, name)
        if base is not None and name in _TIGHTER:
            before, after = _or_default(base, name), _or_default(head, name)
            mine = _tighter(name, before, after)
            if mine != after:
                notes.append(
                    f"this change loosens {_key(name)} from {before:g} to {'nothing' if after is None else f'{after:g}'}: the base's holds"
                )
        chosen = getattr(asked, name) if getattr(asked, name) is not None else mine
        found = found if chosen is None else _with(found, name, chosen)
    for name in _TIGHTER:
        if (text := environ.get(PREFIX + name.upper(), "").strip()) != "":
            found = _with(found, name, _from_environment(name, text, getattr(found, name)))
    named = environ.get(f"{PREFIX}REQUIRE_DEVICE", "").split(",")
    devices = dict.fromkeys([*head.require_device, *(base.require_device if base else ()), *asked.require_device, *named])
    for device in filter(None, devices):
        if device not in DEVICES:
            raise unknown("device", device, DEVICES)
    assert found.max_survivors is not None
    assert found.shrink is not None
    return Terms(found.fail_under, found.max_survivors, found.shrink, tuple(filter(None, devices)), found.time_budget, tuple(notes))


def _or_default(gate: Gate, name: str) -> float | None:
    value: float | None = getattr(gate, name)
    default: float | None = getattr(DEFAULT, name)
    return default if value is None else value


def _tighter(name: str, one: float | None, other: float | None) -> float | None:
    """The value that asks for more; None asks for nothing."""
    if one is None or other is None:
        return other if one is None else one
    return _TIGHTER[name](one, other)


def _from_environment(name: str, text: str, given: float | None) -> float:
    variable = PREFIX + name.upper()
    try:
        value = int(text) if name == "max_survivors" else float(text)
    except ValueError:
        value = float("nan")
    if not (_LEAST[name] <= value < float("inf")):
        raise UsageError(f"{variable} is {text!r}, need a number, at least {_LEAST[name]:g}")
    if given is not None and _TIGHTER[name](value, given) != value:
        raise UsageError(
            f"{variable} is {text}, which asks for less than the {given:g} of the command line or configuration: the environment may "
            f"tighten the gate, never loosen it. Unset it, or give --{_key(name)}"
        )
    return value


def _key(name: str) -> str:
    return name.replace("_", "-")


def _with(gate: Gate, name: str, value: float) -> Gate:
    changed: dict[str, Any] = {name: value}
    return replace(gate, **changed)
