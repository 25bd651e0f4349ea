"""Bands: per gradient and metric the noise, the tolerance, the weakest defect, and how far they lie apart.

    tolerance = min(k noise, sqrt(noise defect))

The first term keeps a coarse catalogue of defects from admitting a defect of 0.1 %, the second keeps the tolerance in the middle of a
narrow gap. The run is inconclusive about a mutant that no gradient shows by at least ROOM times its tolerance, and about a gradient in
which a spliced defect does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from gradcheck._case import Case
from gradcheck._verdict import CANARY, METRICS, NULL, Band, Evidence, Measurement
from gradcheck.calibrate.noise import FACTOR, Table

ROOM = 3.0
"""A tolerance must be below the weakest defect by at least this factor."""

OP_LEVEL = "op-level"

_SPLICED = {"l2": ("zero", "swap", "scale"), "slice": ("last step", "one row")}

Defects = dict[tuple[str, str], tuple[float, str]]
"""(quantity, metric) to (size in rounding units, name of the weakest defect)."""


def bands(
    op: str,
    kernel: str,
    dtype: str,
    noise: Table,
    clean: Sequence[Evidence],
    mutated: Sequence[Evidence],
    published: Mapping[tuple[str, str], Band] | None = None,
) -> tuple[Band, ...]:
    """One band per quantity and metric.

    A kernel with a published band is judged by its tolerance. The defects shown are those of the run's own mutants, else the published
    ones, else those spliced into the kernel's gradients: each quantity for itself, since a dtype may have seen but a few mutants, or only
    such as leave no number. Spliced ones say how far noise and defect lie apart, and move no tolerance: they are as
    small as the gradients of the cases that were chosen. A mutant that was seen at its first cases is not run at the others, so where
    the run's own defect is smaller than the published one, which is of all cases, it is the published one that is shown.
    """
    published = published or {}
    mutated = [one for one in mutated if one.item.mutant not in {CANARY, NULL}]
    defects = {key: defect for key, defect in planted(mutated, noise).items() if math.isfinite(defect[0])}
    in_place = spliced(clean)
    measured = _largest(m for one in clean for m in one.measurements)
    out = []
    for quantity, row in noise.items():
        for metric in METRICS:
            key = quantity, metric
            defect, label = in_place.get(key, (None, ""))
            label = label and f"{label} (spliced in)"
            tolerance = FACTOR * row[metric]
            if key in defects:
                defect, label = defects[key]
                tolerance = min(tolerance, math.sqrt(row[metric] * defect))
            known = published.get(key)
            if known is not None:
                tolerance = known.tolerance
                if known.defect is not None and (key not in defects or defects[key][0] < known.defect):
                    defect, label = known.defect, f"{known.weakest} (published)"
            worst = measured.get(key)
            out.append(
                Band(
                    op=op,
                    kernel=kernel,
                    dtype=dtype,
                    quantity=quantity,
                    metric=metric,
                    noise=row[metric],
                    tolerance=tolerance,
                    measured=_finite(worst),
                    defect=_finite(defect),
                    weakest=label,
                )
            )
    return tuple(out)


def planted(mutated: Sequence[Evidence], noise: Table) -> Defects:
    """The weakest mutant of each quantity and metric: the minimum over mutants and branches of the maximum over cases.

    A mutant counts for the quantities that it moves well beyond noise, by ROOM times the tolerance. One that moves a gradient less is no
    defect of that gradient: it shows elsewhere, or the run is inconclusive about it (`gate`).
    """
    groups: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for one in mutated:
        sizes = groups.setdefault((one.item.mutant, Case.parse(one.item.case).variant), {})
        for key, size in _largest(one.measurements).items():
            sizes[key] = max(sizes.get(key, 0.0), size)
    weakest: Defects = {}
    for (name, _), sizes in groups.items():
        for key, size in sizes.items():
            quantity, metric = key
            if size > ROOM * FACTOR * noise[quantity][metric] and (key not in weakest or size < weakest[key][0]):
                weakest[key] = size, name
    return weakest


def spliced(clean: Sequence[Evidence]) -> Defects:
    """The weakest spliced defect of each gradient: the minimum over defects of the maximum over cases.

    One that changes nothing (the last step of a gradient that is zero there) is no defect.
    """
    sizes: dict[tuple[str, str], dict[str, float]] = {}
    for measurement in (m for one in clean for m in one.measurements):
        for metric, forms in _SPLICED.items():
            row = sizes.setdefault((measurement.quantity, metric), {})
            for form in forms:
                size = measurement.spliced.get(form)
                if size:
                    row[form] = max(row.get(form, 0.0), size)
    return {key: min((size, form) for form, size in row.items()) for key, row in sizes.items() if row}


def separation(band: Band) -> float | None:
    """Decades between noise and weakest defect."""
    return math.log10(band.defect / band.noise) if band.defect else None


def unseparated(all_bands: Iterable[Band]) -> dict[tuple[str, str, str], Band]:
    """(kernel, dtype, quantity) of each gradient that has defects but by no metric a tolerance below them; its best band."""
    groups: dict[tuple[str, str, str], list[Band]] = {}
    for band in all_bands:
        if band.defect is not None:
            groups.setdefault((band.kernel, band.dtype, band.quantity), []).append(band)
    return {
        key: max(group, key=lambda band: (band.defect or 0) / band.tolerance)
        for key, group in groups.items()
        if all(not (band.tolerance <= (band.defect or 0) / ROOM) for band in group)
    }


def tolerances_of(all_bands: Iterable[Band]) -> dict[str, dict[str, float]]:
    """Quantity to metric to tolerance, of the bands of one kernel and dtype."""
    table: dict[str, dict[str, float]] = {}
    for band in all_bands:
        table.setdefault(band.quantity, {})[band.metric] = band.tolerance
    return table


def _largest(measurements: Iterable[Measurement]) -> Mapping[tuple[str, str], float]:
    """The largest ratio of each quantity and metric; inf where one is not finite."""
    out: dict[tuple[str, str], float] = {}
    for measurement in measurements:
        for metric, ratio in measurement.ratios.items():
            key = measurement.quantity, metric
            out[key] = max(out.get(key, 0.0), math.inf if ratio is None else ratio)
    return out


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
