"""Evidence and bands as a run would record them."""

from __future__ import annotations

from typing import Any

from gradcheck import Band, Evidence, Measurement, WorkItem
from gradcheck._verdict import METRICS

CASE = "op/B2,T5/f32/typical/{seed}"


def measurement(quantity: str = "d x", size: float | None = 1.0, **changes: Any) -> Measurement:
    """Every metric at `size` rounding units, unless `ratios` says otherwise."""
    return Measurement(quantity, **({"checked": 10, "ratios": dict.fromkeys(METRICS, size)} | changes))


def evidence(
    *measurements: Measurement,
    mutant: str = "",
    seed: int = 0,
    kernel: str = "k",
    status: Any = "measured",
    case: str = CASE,
    **changes: Any,
) -> Evidence:
    return Evidence(WorkItem("op", kernel, case.format(seed=seed), mutant), status, measurements, **changes)


def band(quantity: str = "d x", metric: str = "z", **changes: Any) -> Band:
    return Band(
        **({"op": "op", "kernel": "k", "dtype": "f32", "quantity": quantity, "metric": metric, "noise": 1.0, "tolerance": 4.0} | changes)
    )


def table(*quantities: str, noise: float = 1.0) -> dict[str, dict[str, float]]:
    return {quantity: dict.fromkeys(METRICS, noise) for quantity in quantities or ("d x",)}
