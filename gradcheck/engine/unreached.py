"""Gradients that no planted defect reaches: whether a test would notice a mistake there, a run has not shown."""

from __future__ import annotations

from gradcheck._verdict import CANARY, NULL, Run


def unreached(run: Run) -> list[str]:
    """A sentence for each kernel that has gradients which none of its mutants moves beyond their tolerance at any case that was run."""
    planted = [row for row in run.kills if row.form == "full" and row.mutant not in {CANARY, NULL}]
    found = []
    for kernel in dict.fromkeys(row.kernel for row in planted):
        moved = {
            quantity
            for row in planted
            if row.kernel == kernel
            for quantity, size in row.margins.items()
            if size is None or not (size <= 1)  # beyond all bounds counts
        }
        told = dict.fromkeys(
            measured.quantity
            for verdict in run.verdicts
            if verdict.item.kernel == kernel and verdict.evidence is not None
            for measured in verdict.evidence.measurements
            if measured.quantity.startswith("d ") and measured.informative and not measured.zero
        )
        if missing := [quantity for quantity in told if quantity not in moved]:
            found.append(
                f"no planted defect reaches {', '.join(missing)} of {kernel}: that a mistake there would be seen is not shown; add a mutant"
            )
    return found
