"""The model noise: how far a correct kernel of a given precision may be from the truth, from the oracle alone.

A kernel must not calibrate its own acceptance, so no kernel enters here: the reference is evaluated in the kernel's precision
(`numerics.costate.model`) and measured like a kernel, over the whole covering grid of the op. Each error is a multiple of its case's
rounding unit, so that all cases pool into one number per quantity and metric: the largest seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gradcheck.numerics.metrics import METRICS

Table = Mapping[str, Mapping[str, float]]
"""Quantity to metric to noise, in rounding units."""

FACTOR = 4.0
"""k: a correct kernel may be this many times further off than the model, whose order of summation is one of many.

See `docs/explanation/noise-or-defect.md` for the measurement: found on one set of seeds, held on another.
"""

LEAST = 0.25
"""Least noise, in rounding units: a quarter of one rounding. The model is exact by luck where a quantity has few terms."""


def noise_table(cases: Iterable[Mapping[str, Mapping[str, float | None]]]) -> dict[str, dict[str, float]]:
    """The largest ratio of each quantity and metric over all cases of the model; a ratio None is not finite, and no noise."""
    table: dict[str, dict[str, float]] = {}
    for case in cases:
        for quantity, ratios in case.items():
            row = table.setdefault(quantity, dict.fromkeys(METRICS, LEAST))
            for metric, ratio in ratios.items():
                if ratio is not None:
                    row[metric] = max(row[metric], ratio)
    return table


def tolerances(table: Table) -> dict[str, dict[str, float]]:
    """k times the noise, before any defect is known."""
    return {quantity: {metric: FACTOR * noise for metric, noise in row.items()} for quantity, row in table.items()}
