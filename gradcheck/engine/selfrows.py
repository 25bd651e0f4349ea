"""From the evidence of `--oracle self` to rows, separations and one exit code. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gradcheck._case import Case
from gradcheck._mutant import Mutant
from gradcheck._verdict import CANARY, NULL, ExitCode, Status
from gradcheck.engine.selfwork import SelfEvidence

GUARDS = (CANARY, NULL)


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and most of one number over seeds, that number being the worst over gradients. None is not finite."""

    least: float | None
    middle: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class SelfRow:
    """One kernel or mutant in one branch.

    Args:
        kernel, mutant, variant: what was run; the clean kernel has no mutant.
        runs, done: seeds planned, and those at which it came to a comparison.
        status: `measured`, or how the first seed that came to none failed to.
        above: seeds at which the worst MAA is not within the tolerance.
        maa, l2: over the gradients that are judged; None if nothing was measured.
        worst: the gradient with the largest MAA of all seeds.
        apart: the same as `maa`, over the gradients that are shown apart.
        detail: why it was not measured, or what is a failure by itself.
        expect: what the mutant is declared to be.
    """

    kernel: str
    mutant: str
    variant: str
    runs: int
    done: int
    status: Status
    above: int = 0
    maa: Spread | None = None
    l2: Spread | None = None
    worst: str = ""
    apart: Spread | None = None
    detail: str = ""
    expect: str = "killed"

    @property
    def counted(self) -> bool:
        """Whether it is a defect that must be seen."""
        return bool(self.mutant) and self.mutant not in GUARDS and self.expect == "killed"


@dataclass(frozen=True, slots=True)
class Separation:
    """How far apart noise and weakest defect lie: the least defect over the worst noise, by both methods. None where it is not known."""

    kernel: str
    variant: str
    by_self: float | None
    by_truth: float | None


def rows(
    evidence: Sequence[SelfEvidence], mutants: Mapping[str, Mutant], gradients: Sequence[str], tolerance: float
) -> tuple[SelfRow, ...]:
    """One row per kernel, branch and mutant, the clean kernel first."""
    groups: dict[tuple[str, str, str], list[SelfEvidence]] = {}
    for one in evidence:
        groups.setdefault((one.item.kernel, one.item.mutant, Case.parse(one.item.case).variant), []).append(one)
    return tuple(
        _row(kernel, mutant, variant, group, mutants[mutant].expect if mutant in mutants else "killed", gradients, tolerance)
        for (kernel, mutant, variant), group in groups.items()
    )


def _row(
    kernel: str, mutant: str, variant: str, group: Sequence[SelfEvidence], expect: str, gradients: Sequence[str], tolerance: float
) -> SelfRow:
    measured = [one for one in group if one.status == "measured"]
    failed = next((one for one in group if one.status != "measured"), None)
    status: Status = "measured" if failed is None else failed.status
    detail = failed.detail if failed is not None else next((one.detail for one in group if one.detail), "")
    if not measured:
        return SelfRow(kernel, mutant, variant, len(group), 0, status, detail=detail, expect=expect)
    maa = [_worst(one.maa, gradients) for one in measured]
    apart = [name for name in measured[0].maa if name not in gradients]
    _, last = max(zip(maa, measured, strict=True), key=lambda pair: pair[0])
    return SelfRow(
        kernel,
        mutant,
        variant,
        runs=len(group),
        done=len(measured),
        status=status,
        above=sum(not (value <= tolerance) for value in maa),
        maa=_spread(maa),
        l2=_spread([_worst(one.l2, gradients) for one in measured]),
        worst=max(gradients, key=lambda name: _size(last.maa.get(name))),
        apart=_spread([_worst(one.maa, apart) for one in measured]) if apart else None,
        detail=detail,
        expect=expect,
    )


def _worst(values: Mapping[str, float | None], names: Iterable[str]) -> float:
    return max(_size(values.get(name)) for name in names)


def _size(value: float | None) -> float:
    """None, which is not finite, is beyond everything."""
    return math.inf if value is None else value


def _spread(values: Sequence[float]) -> Spread:
    return Spread(*(value if math.isfinite(value) else None for value in (min(values), median(values), max(values))))


def separations(found: Sequence[SelfRow]) -> tuple[Separation, ...]:
    """One per kernel and branch that has a clean row and defects."""
    out = []
    for clean in (row for row in found if not row.mutant and row.maa):
        defects = [row for row in found if (row.kernel, row.variant) == (clean.kernel, clean.variant) and row.counted]
        if defects:
            by_self, by_truth = (_apart([getattr(row, name) for row in defects], getattr(clean, name)) for name in ("maa", "l2"))
            out.append(Separation(clean.kernel, clean.variant, by_self, by_truth))
    return tuple(out)


def _apart(defects: Sequence[Spread | None], noise: Spread) -> float | None:
    least = [spread.least for spread in defects if spread is not None and spread.least is not None]
    return min(least) / noise.most if least and noise.most else None


def gate(found: Sequence[SelfRow], rotten: Sequence[str], absent: Mapping[str, str], tolerance: float) -> tuple[ExitCode, tuple[str, ...]]:
    """(exit code, reasons): what ggml's own test would say at these seeds, and that the test itself is sound."""
    said = [(ExitCode.ROTTEN, text) for text in rotten]
    said += [(ExitCode.INCONCLUSIVE, f"kernel {kernel} was asked for and cannot run here: {why}") for kernel, why in absent.items()]
    clean = {(row.kernel, row.variant): row for row in found if not row.mutant}
    for row in found:
        said += _of_clean(row, tolerance) if not row.mutant else _of_mutant(row, clean.get((row.kernel, row.variant)), tolerance)
    if not any(row.done for row in found):
        said.append((ExitCode.NOTHING, "nothing was compared"))
    return ExitCode.worst(*(code for code, _ in said)), tuple(dict.fromkeys(text for _, text in said))


_UNCOMPARED = {"timeout": ExitCode.INCONCLUSIVE, "memory": ExitCode.INCONCLUSIVE, "no-backward": ExitCode.NOTHING}
"""What it means for a clean kernel that a seed came to no comparison; any other way is a wrong kernel."""

_DIED = frozenset({"timeout", "crashed", "memory"})
"""Ways in which a mutant may fail to be compared that are no fault of the suite."""


def _where(row: SelfRow) -> str:
    return f"{row.kernel} {row.variant}".strip()


def _uncompared(who: str, row: SelfRow) -> str:
    return f"{who}: {row.runs - row.done} of {row.runs} seeds came to no comparison: {_first(row) or row.status}"


def _first(row: SelfRow) -> str:
    return row.detail.splitlines()[0] if row.detail else ""


def _of_clean(row: SelfRow, tolerance: float) -> list[tuple[ExitCode, str]]:
    who = f"kernel {_where(row)}"
    if row.done < row.runs:
        return [(_UNCOMPARED.get(row.status, ExitCode.WRONG), _uncompared(who, row))]
    out = [(ExitCode.WRONG, f"{who}: {_first(row)}")] if row.detail else []
    if row.above:
        seeds = f"{row.above} of {row.runs} seeds, most in d {row.worst}"
        out.append((ExitCode.WRONG, f"{who}: MAA exceeds {tolerance:g} at {seeds}; float64 says if that is the gradient or the difference"))
    return out


def _of_mutant(row: SelfRow, clean: SelfRow | None, tolerance: float) -> list[tuple[ExitCode, str]]:
    if row.done < row.runs:
        code = ExitCode.INCONCLUSIVE if row.status in _DIED else ExitCode.ROTTEN
        return [(code, _uncompared(f"mutant {row.mutant} on {_where(row)}", row))]
    if row.mutant == CANARY and row.above < row.done:
        return [(ExitCode.ROTTEN, f"the canary (a gradient of zeros) passed on {_where(row)}: nothing that passed there means anything")]
    if row.mutant == NULL and clean is not None and row.above and not clean.above:
        return [(ExitCode.ROTTEN, f"the null mutant (an edit that changes nothing) exceeded the tolerance on {_where(row)}")]
    if row.counted and row.above < row.done:
        missed = f"within {tolerance:g} at {row.done - row.above} of {row.done} seeds"
        return [(ExitCode.SURVIVORS, f"mutant {row.mutant} on {_where(row)} was not seen: {missed}")]
    return []
