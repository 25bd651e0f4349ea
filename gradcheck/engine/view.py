"""One output or gradient of one comparison, element by element: the worst of them, and the error along each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gradcheck._truth import F64, Quantity
from gradcheck._verdict import Measurement
from gradcheck.calibrate.judge import within
from gradcheck.engine.call import Got
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.metrics import compare, rounding_unit

WORST = 5
"""Elements that are shown of each."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element: what the kernel returned, and what it should have been, give or take the oracle's own error.

    `off` is the distance between the two, less that error, in rounding units; None where the kernel's value is not finite.
    """

    index: tuple[int, ...]
    got: float
    want: float
    error: float
    off: float | None


@dataclass(frozen=True, slots=True)
class View:
    """One output or gradient.

    Args:
        measurement: its metrics, as in a run.
        tolerances: by metric, in rounding units.
        elements: the worst ones, worst first.
        slices: per axis, the error of each index by the metric `slice`; None is not finite.
    """

    measurement: Measurement
    tolerances: Mapping[str, float] = field(hash=False)
    elements: tuple[Element, ...] = ()
    slices: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict, hash=False)

    @property
    def passed(self) -> bool:
        """Whether noise explains it."""
        return within(self.measurement, {self.measurement.quantity: self.tolerances})

    def out(self, axis: str) -> tuple[int, ...]:
        """The indices along an axis whose slice is out of the noise."""
        limit = self.tolerances["slice"]
        return tuple(i for i, ratio in enumerate(self.slices[axis]) if ratio is None or not (ratio <= limit))


def view_of(measurement: Measurement, got: Got, want: Quantity, dtype: str, tolerances: Mapping[str, float]) -> View:
    """What `measurement` was made of. Nothing but the measurement where the kernel returned no numbers, or there is no finite truth."""
    if got.value is None or not np.isfinite(want.value).all():
        return View(measurement, tolerances)
    unit = rounding_unit(want.majorant, DTYPES[dtype])
    slices = compare(got.value, want.value, want.error, unit, measurement.axes).slices
    return View(
        measurement,
        tolerances,
        _worst(got.value, want, unit),
        {axis: tuple(_finite(float(ratio)) for ratio in ratios) for axis, ratios in slices.items()},
    )


def _worst(got: F64, want: Quantity, unit: F64) -> tuple[Element, ...]:
    off = np.maximum(np.abs(got - want.value) - want.error, 0.0) / unit
    rank = np.where(np.isfinite(got), off, np.inf)
    order = np.argsort(-rank, axis=None, kind="stable")[:WORST]
    indices = [tuple(int(i) for i in np.unravel_index(flat, got.shape)) for flat in order]
    return tuple(
        Element(i, float(got[i]), float(want.value[i]), float(want.error[i]), _finite(float(off[i]))) for i in indices if rank[i] > 0
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
