"""Evidence against tolerances: the verdict on a clean kernel, and the kill table of its mutants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gradcheck._case import Case
from gradcheck._mutant import Mutant
from gradcheck._verdict import CANARY, NULL, Evidence, Measurement, MutantVerdict, Outcome, Verdict

Tolerances = Mapping[str, Mapping[str, float]]
"""Quantity to metric to tolerance, in rounding units."""

Diluted = Mapping[str, Mapping[str, float | None]]
"""Quantity to form to the ratio of that slice."""

FORMS = ("full", "last step", "one head")

BY_CHECKER = "by the checker"
"""The metric of a mutant that was killed by what the checker of Metal kernels found."""

_UNMEASURED = {
    "crashed": Outcome.CRASHED,
    "memory": Outcome.MEMORY,
    "timeout": Outcome.TIMEOUT,
    "raised": Outcome.FAILED,
    "fault": Outcome.FAILED,
    "stale": Outcome.STALE,
    "no-device": Outcome.NO_DEVICE,
    "no-backward": Outcome.UNINFORMATIVE,
    "idle": Outcome.UNINFORMATIVE,
    "bug": Outcome.BUG,
}


def margin(measurement: Measurement, tolerances: Tolerances) -> tuple[float | None, str]:
    """(largest ratio over tolerance, the metric it belongs to); None stands for beyond all bounds. Above 1 is not within tolerance."""
    if measurement.problem:
        return None, measurement.problem
    if measurement.zero:
        return (0.0, "zero") if measurement.zero == "zero-kept" else (None, "not exactly zero, as the truth is")
    worst, by = 0.0, ""
    for metric, ratio in measurement.ratios.items():
        tolerance = tolerances[measurement.quantity][metric]
        if ratio is None or math.isnan(ratio):
            return None, metric
        if not by or ratio / tolerance > worst:
            worst, by = ratio / tolerance, metric
    return worst, by


def within(measurement: Measurement, tolerances: Tolerances) -> bool:
    """Whether the measurement is explained by noise. NaN is not."""
    size, _ = margin(measurement, tolerances)
    return size is not None and size <= 1


def judge(evidence: Evidence, tolerances: Tolerances) -> Verdict:
    """The verdict on a clean kernel at one case."""
    if evidence.status != "measured":
        # What is unviable in a mutant is plainly wrong in a clean kernel.
        outcome = Outcome.FAILED if evidence.status == "unviable" else _UNMEASURED[evidence.status]
        return Verdict(evidence.item, outcome, evidence.detail, evidence)
    if evidence.notes or evidence.item.check:  # a check has no measurements: it holds, or it has noted what is violated
        outcome = Outcome.FAILED if evidence.notes else Outcome.PASSED
        return Verdict(evidence.item, outcome, "; ".join(evidence.notes) or evidence.detail, evidence)
    failed = [m for m in evidence.measurements if not within(m, tolerances)]
    if failed:
        return Verdict(evidence.item, Outcome.FAILED, "; ".join(_say(m, tolerances) for m in failed), evidence)
    counted = [m for m in evidence.measurements if m.quantity.startswith("d ")] or list(evidence.measurements)
    if all(m.zero for m in counted):
        return Verdict(evidence.item, Outcome.PASSED_ZERO, "", evidence)
    if not any(m.informative for m in counted):
        return Verdict(evidence.item, Outcome.UNINFORMATIVE, "", evidence)
    return Verdict(evidence.item, Outcome.PASSED, "", evidence)


def _say(measurement: Measurement, tolerances: Tolerances) -> str:
    size, metric = margin(measurement, tolerances)
    where = f" at [{measurement.where}]" if measurement.worst else ""
    step = f", worst step {measurement.worst_step}" if measurement.worst_step is not None else ""
    much = metric if size is None else f"{metric} is {size:.3g} times its tolerance"
    return f"{measurement.quantity}{where}{step}: {much}"


def kill_table(
    evidence: Sequence[Evidence],
    mutants: Mapping[str, Mutant],
    tolerances: Mapping[str, Tolerances],
    diffs: Mapping[tuple[str, str], str],
    clean: Sequence[Evidence] = (),
) -> tuple[MutantVerdict, ...]:
    """One row per kernel, mutant, branch and form.

    Args:
        evidence: of the mutated kernels.
        mutants: by name.
        tolerances: by dtype.
        diffs: by (kernel, mutant name).
        clean: evidence of the kernels as they are. A slice that a mutant leaves as it was is no diluted form of it.
    """
    before = {(one.item.kernel, one.item.case): {m.quantity: m.diluted for m in one.measurements} for one in clean}
    groups: dict[tuple[str, str, str], list[tuple[Evidence, Diluted]]] = {}
    for one in evidence:
        key = one.item.kernel, one.item.mutant, Case.parse(one.item.case).variant
        groups.setdefault(key, []).append((one, before.get((one.item.kernel, one.item.case), {})))
    rows = []
    for (kernel, name, variant), group in groups.items():
        forms = FORMS if name not in {CANARY, NULL} else FORMS[:1]
        for form in forms:
            row = _row(kernel, name, variant, form, group, mutants.get(name), tolerances, diffs.get((kernel, name), ""))
            if row is not None:
                rows.append(replace(row, place=" + ".join(dict.fromkeys(one.place for one, _ in group if one.place))))
    return tuple(rows)


def _row(
    kernel: str,
    name: str,
    variant: str,
    form: str,
    group: Sequence[tuple[Evidence, Diluted]],
    mutant: Mutant | None,
    tolerances: Mapping[str, Tolerances],
    diff: str,
) -> MutantVerdict | None:
    best: tuple[float, str, str, str] | None = None  # margin, quantity, metric, case
    shown: dict[str, float] = {}
    kills = measured = 0
    for one, unmutated in group:
        if one.status == "fault" and form == "full":  # the checker needs no numbers
            measured, kills, best = measured + 1, kills + 1, (math.inf, "", BY_CHECKER, one.item.case)
        if one.status != "measured":
            continue
        sizes = list(_margins(one.measurements, tolerances[Case.parse(one.item.case).dtype], form, unmutated))
        if not sizes:
            continue
        measured += 1
        for size, quantity, _ in sizes:
            shown[quantity] = max(size, shown.get(quantity, 0.0))
        size, quantity, metric = max(sizes, key=lambda found: found[0])
        if form == "full" and one.notes:
            size, metric = float("inf"), one.notes[0]
        kills += not (size <= 1)
        if best is None or size > best[0]:
            best = size, quantity, metric, one.item.case
    if best is None:
        return _unmeasured(kernel, name, variant, [one for one, _ in group], diff) if form == "full" else None
    outcome, why = Outcome.KILLED if kills else Outcome.SURVIVED, ""
    if mutant is not None and mutant.expect != "killed":
        declared = Outcome.EQUIVALENT if mutant.expect == "equivalent" else Outcome.HARMLESS
        outcome, why = (outcome, f"declared {mutant.expect} ({mutant.reason}), and yet killed") if kills else (declared, mutant.reason)
    margins = {quantity: _finite(size) for quantity, size in shown.items()}
    return MutantVerdict(
        kernel, name, variant, form, outcome, measured, kills, best[1], best[2], best[3], _finite(best[0]), why, diff, margins=margins
    )


def _finite(size: float) -> float | None:
    return size if size < math.inf else None


def _margins(measurements: Iterable[Measurement], tolerances: Tolerances, form: str, before: Diluted) -> Iterable[tuple[float, str, str]]:
    """(margin, quantity, metric) of each measurement, in this form of the defect."""
    for measurement in measurements:
        if form == "full":
            size, metric = margin(measurement, tolerances)
            yield (float("inf") if size is None else size), measurement.quantity, metric
        elif measurement.quantity.startswith("d ") and form in measurement.diluted:
            ratio = measurement.diluted[form]
            if measurement.quantity in before and ratio == before[measurement.quantity].get(form):
                continue
            limit = tolerances[measurement.quantity]["slice"]
            yield (float("inf") if ratio is None else ratio / limit), measurement.quantity, "slice"


def _unmeasured(kernel: str, name: str, variant: str, group: Sequence[Evidence], diff: str) -> MutantVerdict:
    """A mutant that never came to a comparison: it does not run, hangs, hoards, or takes its process down. None of these is a kill."""
    statuses = {one.status for one in group}
    detail = group[0].detail
    outcome = next((_UNMEASURED[status] for status in ("crashed", "memory", "timeout") if status in statuses), Outcome.UNVIABLE)
    return MutantVerdict(kernel, name, variant, "full", outcome, why=detail, diff=diff)
