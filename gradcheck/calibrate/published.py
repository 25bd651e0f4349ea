"""Published bands: what `gradcheck calibrate` measured over many seeds, kept under version control and used by `run`.

Plain data; whoever reads and writes the file is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradcheck._verdict import Band
from gradcheck._words import count
from gradcheck.calibrate.noise import FACTOR, Table

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """Clean runs and planted defects on seeds that set no tolerance, judged by the tolerance that others set.

    Args:
        seeds: the seeds.
        clean: comparisons of a clean kernel with the truth, one per case.
        false_alarms: those of them that failed.
        rows: rows of the kill table: mutant, branch and form.
        missed: those of them that survived.
        worst: largest error of a clean kernel, as a fraction of its tolerance.
        place: where its Metal kernels ran, as in `Evidence`; of all kernels together nothing.
    """

    seeds: tuple[int, ...]
    clean: int
    false_alarms: int
    rows: int
    missed: int
    worst: float
    place: str = ""

    @property
    def alarms(self) -> str:
        """`1 false alarm`, `2 false alarms`."""
        return count(self.false_alarms, "false alarm")


@dataclass(frozen=True, slots=True)
class Published:
    """The bands of one op.

    Args:
        op: its name.
        sources: digest of the op's file and of our numerics: bands of other sources are not used.
        factor: k, the multiple of the model noise that is tolerated.
        seeds: the seeds on which noise and defects were found.
        ratio: largest error of a clean kernel over all seeds, as a multiple of the model noise; below k.
        noise: dtype and carried dtype (`f32/f32`) to quantity to metric to noise.
        bands: per kernel, dtype, quantity and metric.
        held: the same kernels and mutants on other seeds, all together.
        environment: date, versions, device.
        trials: the same by kernel, so that one kernel can be calibrated by itself.
    """

    op: str
    sources: str
    factor: float
    seeds: tuple[int, ...]
    ratio: float
    noise: Mapping[str, Mapping[str, Mapping[str, float]]] = field(hash=False)
    bands: tuple[Band, ...]
    held: Trial
    environment: Mapping[str, str] = field(hash=False)
    trials: Mapping[str, Trial] = field(default_factory=dict, hash=False)
    format: int = FORMAT


def pooled(tables: Iterable[Table]) -> dict[str, dict[str, float]]:
    """The largest noise of each quantity and metric over several seeds."""
    out: dict[str, dict[str, float]] = {}
    for table in tables:
        for quantity, row in table.items():
            mine = out.setdefault(quantity, {})
            for metric, noise in row.items():
                mine[metric] = max(mine.get(metric, 0.0), noise)
    return out


def merged(runs: Sequence[Sequence[Band]], noise: Mapping[tuple[str, str], Table]) -> tuple[Band, ...]:
    """The bands of several seeds as one: noise pooled (by kernel and dtype), the largest error, the weakest defect."""
    groups: dict[tuple[str, str, str, str], list[Band]] = {}
    for band in (band for bands in runs for band in bands):
        groups.setdefault((band.kernel, band.dtype, band.quantity, band.metric), []).append(band)
    out = []
    for (kernel, dtype, quantity, metric), group in groups.items():
        level = noise[kernel, dtype][quantity][metric]
        measured = max((band.measured for band in group if band.measured is not None), default=None)
        weakest = min((band for band in group if band.defect is not None), key=lambda band: band.defect or math.inf, default=None)
        defect = None if weakest is None else weakest.defect
        tolerance = FACTOR * level if defect is None else min(FACTOR * level, math.sqrt(level * defect))
        out.append(
            replace(
                group[0],
                noise=_short(level),
                tolerance=_short(tolerance),
                measured=None if measured is None else _short(measured),
                defect=None if defect is None else _short(defect),
                weakest="" if weakest is None else weakest.weakest,
            )
        )
    return tuple(out)


def total(trials: Iterable[Trial]) -> Trial:
    """Trials of several kernels on the same seeds as one."""
    found = list(trials)
    return Trial(
        seeds=found[0].seeds,
        clean=sum(one.clean for one in found),
        false_alarms=sum(one.false_alarms for one in found),
        rows=sum(one.rows for one in found),
        missed=sum(one.missed for one in found),
        worst=max(one.worst for one in found),
    )


def joined(known: Published, made: Published) -> Published:
    """What is known of an op with what was just measured of some of its kernels, on the same seeds, of the same sources."""
    kernels = {band.kernel for band in made.bands}
    bands = (*(band for band in known.bands if band.kernel not in kernels), *made.bands)
    trials = {**known.trials, **made.trials}
    return replace(
        made, ratio=_short(ratio(bands)), noise={**known.noise, **made.noise}, bands=bands, held=total(trials.values()), trials=trials
    )


def ratio(bands: Iterable[Band]) -> float:
    """The largest error of a clean kernel as a multiple of the model noise."""
    return max((band.measured / band.noise for band in bands if band.measured is not None), default=0.0)


def _short(value: float) -> float:
    """Four digits: what a reader compares, and what keeps a file under version control quiet."""
    return float(f"{value:.4g}")
