"""Parts of a plan for several machines, cut alike on all of them without a word between them.

What belongs together stays together: the items of one mutant on one kernel and branch, since which of them are run depends on what the
others showed. The parts are balanced by an estimate that is made of the plan alone: seconds that were measured would differ from machine to
machine, and so would the parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._verdict import WorkItem
from gradcheck.engine.assemble import group_of
from gradcheck.engine.plan import Plan, Subject
from gradcheck.numerics.recurrence import TIME

_START, _STEP, _ELEMENT = 0.012, 2.5e-4, 3e-8
"""Seconds that a comparison took with the kernel `mlx` of `ssm_scan`, on one core: at least, for each step, for the product of all sizes.
Fitted over 180 cases; that of other kernels is about as long, and only ratios count."""

_CHECKS = {"taint": 45.0, "production": 20.0}
_CHECK = 4.0
"""Comparisons that a check is worth, measured likewise."""

_COMPILE = 1.0
"""Seconds to compile the Metal kernels of one mutant."""

_LATER = 0.02
"""Share of the items beyond its first wave that a mutant is run at: most are seen in the first."""

_FORM = re.compile(r"([1-9]\d*)/([1-9]\d*)")

Unit = tuple[WorkItem, ...]
"""Items that one shard does together."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Number `number` of `count` parts, from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number} of {self.count}"


def parse_shard(text: str) -> Shard:
    """The shard that `2/3` names.

    Raises:
        UsageError: it names none.
    """
    found = _FORM.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"no shard {text!r}: write K/N with K from 1 to N, as 2/3 for the second of three")
    return Shard(int(found[1]), int(found[2]))


def part(plan: Plan, shard: Shard) -> Plan:
    """The plan of one shard.

    Raises:
        UsageError: there are more shards than there is work to share out.
    """
    mine = share(plan, shard)
    subjects = (replace(subject, share=mine, checks=tuple(item for item in subject.checks if item in mine)) for subject in plan.subjects)
    return replace(plan, subjects=tuple(subjects))


def share(plan: Plan, shard: Shard) -> frozenset[WorkItem]:
    """The items of one shard.

    Raises:
        UsageError: there are more shards than there is work to share out.
    """
    return shares(plan, shard.count)[shard.number - 1]


def shares(plan: Plan, count: int) -> list[frozenset[WorkItem]]:
    """The items of each of `count` shards: the costliest unit first, each to the shard that has least, which is within a third of the best.

    Raises:
        UsageError: there are more shards than units.
    """
    units = [unit for subject in plan.subjects for unit in _units(subject)]
    if len(units) < count:
        raise UsageError(f"{count} shards of a plan that has {len(units)} parts to share out: choose at most {max(len(units), 1)}")
    parts: list[set[WorkItem]] = [set() for _ in range(count)]
    loads = [0.0] * count
    for unit, cost in sorted(units, key=lambda pair: -pair[1]):  # stable: equal costs stay in the order of the plan
        least = loads.index(min(loads))
        parts[least].update(unit)
        loads[least] += cost
    return [frozenset(one) for one in parts]


def _units(subject: Subject) -> Iterable[tuple[Unit, float]]:
    """What of a kernel may be done apart, with the seconds that it takes."""
    compiling = _COMPILE if subject.kernel.metal else 0.0
    for item in (*subject.clean_items(), *subject.checks):
        yield (item,), seconds(item)
    groups: dict[tuple[str, str], list[WorkItem]] = {}
    costs: dict[tuple[str, str], float] = {}
    for number, wave in enumerate(subject.waves()):
        for item in wave:
            key = group_of(item)
            groups.setdefault(key, []).append(item)
            costs[key] = costs.get(key, compiling) + seconds(item) * (_LATER if number else 1.0)
    for key, items in groups.items():
        yield tuple(items), costs[key]


def seconds(item: WorkItem) -> float:
    """What an item takes, about."""
    sizes = Case.parse(item.case).sizes
    one = _START + _STEP * sizes.get(TIME, 1) + _ELEMENT * math.prod(sizes.values())
    return one * (_CHECKS.get(item.check, _CHECK) if item.check else 1.0)
