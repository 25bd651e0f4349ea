"""What changed since another run, for reports: verdicts, mutants and separations that are not what they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradcheck import MutantVerdict, Outcome, Run

from ._facts import WRONG, dtypes, kernels, seen, separation
from ._kills import CONTROLS
from ._rows import rows

NOTABLE = 0.3  # decades, a factor of two: a separation that moved by less is not mentioned


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not what it was; `worse` is None where it is neither better nor worse."""

    what: str
    before: str
    after: str
    worse: bool | None


def since(run: Run, base: Run) -> list[Change]:
    """What changed from `base` to `run`, worse first."""
    found = [*_kernels(run, base), *_mutants(run, base), *_separations(run, base)]
    order: dict[bool | None, int] = {True: 0, None: 1, False: 2}
    return sorted(found, key=lambda change: order[change.worse])


def new_survivors(run: Run, base: Run | None) -> set[tuple[str, str, str, str]]:
    """Rows of the kill table that survive and did not in `base`, by `key`; all that survive where there is no base."""
    now, before = _survivors(run), _survivors(base) if base else set()
    return now - before


def key(row: MutantVerdict) -> tuple[str, str, str, str]:
    """What a row of the kill table is about."""
    return row.kernel, row.mutant, row.variant, row.form


def _survivors(run: Run) -> set[tuple[str, str, str, str]]:
    return {key(row) for row in run.kills if row.outcome is Outcome.SURVIVED and row.mutant not in CONTROLS}


def _kernels(run: Run, base: Run) -> Iterator[Change]:
    """Quantities that became wrong or right, kernels that came or went."""
    before, now = ({kernel: _wrong(each, kernel) for kernel in kernels(each)} for each in (base, run))
    for kernel in dict.fromkeys([*now, *before]):
        if kernel not in before:
            yield Change(kernel, "not checked", _state(now[kernel]), bool(now[kernel]) or None)
        elif kernel not in now:
            yield Change(kernel, _state(before[kernel]), "not checked", True)
        elif now[kernel] != before[kernel]:
            yield Change(kernel, _state(before[kernel]), _state(now[kernel]), bool(now[kernel] - before[kernel]))


def _wrong(run: Run, kernel: str) -> frozenset[str]:
    ended = {v.outcome.name.lower() for v in run.verdicts if v.item.kernel == kernel and v.outcome in WRONG}
    quantities = frozenset(one.measurement.quantity for one in seen(run, kernel) if one.failed)
    broken = frozenset(f"check {v.item.check}" for v in run.checks if v.item.kernel == kernel and v.outcome in WRONG)
    return (quantities or frozenset(ended)) | broken


def _state(wrong: frozenset[str]) -> str:
    return f"wrong in {', '.join(sorted(wrong))}" if wrong else "right"


def _mutants(run: Run, base: Run) -> Iterator[Change]:
    """Rows that end otherwise, and mutants that are gone; new ones show in the kill table."""
    now = {key(row): row.outcome for row in run.kills}
    checked = set(kernels(run))
    for row in base.kills:
        outcome, name = now.get(key(row)), " ".join(filter(None, (row.mutant, row.variant, row.form)))
        if outcome is None and row.kernel in checked and run.kills:
            yield Change(f"{name} on {row.kernel}", row.outcome.name, "not run", None)
        elif outcome is not None and outcome is not row.outcome:
            yield Change(f"{name} on {row.kernel}", row.outcome.name, outcome.name, outcome is not Outcome.KILLED)


def _separations(run: Run, base: Run) -> Iterator[Change]:
    before, now = _decades(base), _decades(run)
    for place, decades in now.items():
        old = before.get(place)
        if old is not None and abs(decades - old) >= NOTABLE:
            yield Change(f"separation of {' · '.join(place)}", f"{old:.1f} decades", f"{decades:.1f} decades", decades < old)


def _decades(run: Run) -> dict[tuple[str, str, str], float]:
    """Separation of each gradient, by (gradient, kernel, dtype)."""
    out = {}
    for kernel in kernels(run):
        for dtype in dtypes(run, kernel):
            for row in rows(run, kernel, dtype):
                if row.band and (decades := separation(row.band)) is not None:
                    out[row.quantity, kernel, dtype] = decades
    return out
