"""What a run says, gathered for reports: which measurement fails, by which metric, and where it is worst."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradcheck import Band, Case, Measurement, Outcome, Run, Verdict

GOOD = (Outcome.PASSED, Outcome.PASSED_ZERO)
WRONG = (Outcome.FAILED, Outcome.CRASHED)
GPU = "metal"  # the place of a Metal kernel that is an Apple GPU


@dataclass(frozen=True, slots=True)
class Seen:
    """One measurement of one verdict, with the bands it is judged by."""

    verdict: Verdict
    measurement: Measurement
    bands: tuple[Band, ...]

    @property
    def excess(self) -> float:
        """By what multiple of its tolerance it is off, in the metric that decides; infinite for what cannot be compared."""
        if self.measurement.problem or self.measurement.zero == "zero-broken":
            return math.inf
        return max((over(self.measurement.ratios.get(band.metric, 0.0), band.tolerance) for band in self.bands), default=0.0)

    @property
    def deciding(self) -> Band | None:
        """The band whose tolerance it exceeds most, or fills most."""
        return max(self.bands, key=lambda band: over(self.measurement.ratios.get(band.metric, 0.0), band.tolerance), default=None)

    @property
    def failed(self) -> bool:
        """Whether it is why its verdict is FAILED."""
        return self.verdict.outcome is Outcome.FAILED and not (self.excess <= 1)


def over(ratio: float | None, tolerance: float) -> float:
    """`ratio / tolerance`; what is not finite, or not zero where nothing is tolerated, is infinitely over."""
    if ratio is None or not math.isfinite(ratio):
        return math.inf
    if tolerance > 0:
        return ratio / tolerance
    return math.inf if ratio > 0 else 0.0


def kernels(run: Run) -> list[str]:
    """The kernels of which something is known, in the order of the run."""
    return list(dict.fromkeys(verdict.item.kernel for verdict in run.verdicts))


def dtypes(run: Run, kernel: str) -> list[str]:
    """The dtypes in which `kernel` was checked."""
    return list(dict.fromkeys(Case.parse(v.item.case).dtype for v in run.verdicts if v.item.kernel == kernel))


def seen(run: Run, kernel: str, dtype: str = "") -> Iterator[Seen]:
    """Every measurement of `kernel`, in one dtype or in all."""
    table = by_quantity(run)
    for verdict in run.verdicts:
        if verdict.item.kernel != kernel or verdict.evidence is None:
            continue
        case = Case.parse(verdict.item.case)
        if dtype and case.dtype != dtype:
            continue
        for measurement in verdict.evidence.measurements:
            yield Seen(verdict, measurement, find(table, kernel, case.dtype, measurement.quantity))


Table = dict[tuple[str, str, str], tuple[Band, ...]]


def by_quantity(run: Run) -> Table:
    """Bands by kernel, dtype and quantity."""
    table: Table = {}
    for band in run.bands:
        key = (band.kernel, band.dtype, band.quantity)
        table[key] = (*table.get(key, ()), band)
    return table


def find(table: Table, kernel: str, dtype: str, quantity: str) -> tuple[Band, ...]:
    """The kernel's own bands, else the op's."""
    return table.get((kernel, dtype, quantity)) or table.get(("op-level", dtype, quantity), ())


def gradients(measured: Sequence[Seen]) -> list[str]:
    """Names of the gradients of which an element was compared and could tell: one that must be zero tells of no value, as for the gate."""
    told = (s.measurement for s in measured if s.measurement.problem or (s.measurement.informative and not s.measurement.zero))
    names = (m.quantity for m in told if m.checked or m.problem)
    return list(dict.fromkeys(name.removeprefix("d ") for name in names if name.startswith("d ")))


def place(run: Run, kernel: str) -> str:
    """Where the Metal kernels of `kernel` ran, `metal` or `metal-cpu`; nothing where it launched none."""
    found = (v.evidence.place for v in (*run.verdicts, *run.checks) if v.item.kernel == kernel and v.evidence is not None)
    return " + ".join(dict.fromkeys(where for where in found if where))


def mute(run: Run, kernel: str) -> dict[str, int]:
    """In how many cases a quantity says nothing: its truth is beyond float64, or below the oracle's own error. Any value would do there."""
    counts: dict[str, int] = {}
    for one in seen(run, kernel):
        if not one.measurement.informative:
            counts[one.measurement.quantity] = counts.get(one.measurement.quantity, 0) + 1
    return counts


def separation(band: Band) -> float | None:
    """Decades between noise and the weakest defect; None where no defect was measured."""
    if band.defect is None or band.noise <= 0 or band.defect <= 0:
        return None
    return math.log10(band.defect / band.noise)


def replay(run: Run, kernel: str, case: str, mutant: str = "", check: str = "") -> list[str]:
    """The command that makes this one comparison, or this check, again, with the suites that the run was told of."""
    if check:
        return ["gradcheck", "run", "--op", run.op, "--kernel", kernel, "--checks", check, "--cases", case, *_carried(run.command)]
    return ["gradcheck", "replay", case, "--kernel", kernel, *(["--mutant", mutant] if mutant else []), *_carried(run.command)]


def _carried(asked: str) -> list[str]:
    """Options of the run without which a comparison would not be the same: its suites, and whether gradients were left out."""
    try:
        words = shlex.split(asked)
    except ValueError:
        return []
    kept: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--suite":
            kept += [word, following]
        elif word.startswith("--suite=") or word == "--forward-only":
            kept.append(word)
    return kept
