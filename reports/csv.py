"""Every measurement as one row, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv as _csv
from collections.abc import Iterator
from io import StringIO

from gradcheck import Case, Run, Verdict, report

from ._facts import Seen, kernels, seen
from ._text import line

_METRICS = ("z", "l2", "max", "slice", "maa")
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for a formula


@report(suffix=".csv")
def csv(run: Run) -> str:
    """One row per clean kernel, case and output or gradient, with the worst element and step, and where a Metal kernel ran (`place`).

    Per metric its `error` (a plain number), `ratio` (in rounding units) and `tolerance` (likewise). What is not finite or was not measured is
    empty. Text that a spreadsheet would take for a formula begins with an apostrophe. Cases without a measurement have a row of their own.
    """
    paper = StringIO()
    rows = [_row(one) for kernel in kernels(run) for one in seen(run, kernel)]
    rows += [
        {**_case(verdict), "outcome": verdict.outcome.name, "problem": _text(verdict.why)}
        for verdict in run.verdicts
        if verdict.evidence is None or not verdict.evidence.measurements
    ]
    writer = _csv.DictWriter(paper, _COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return paper.getvalue()


_COLUMNS = (
    *("kernel", "case", "op", "variant", "dims", "dtype", "regime", "objective", "seed", "place", "outcome", "quantity", "problem", "zero"),
    *("informative", "checked", "worst", "worst_step", "got", "want", "excess"),
    *(f"{what}_{metric}" for metric in _METRICS for what in ("error", "ratio", "tolerance")),
)


def _row(one: Seen) -> dict[str, object]:
    m = one.measurement
    return {
        **_case(one.verdict),
        "outcome": one.verdict.outcome.name,
        "quantity": _text(m.quantity),
        "problem": _text(m.problem),
        "zero": m.zero,
        "informative": int(m.informative),
        "checked": m.checked,
        "worst": _text(m.where),
        "worst_step": m.worst_step,
        "got": m.got,
        "want": m.want,
        "excess": one.excess,
        **dict(_numbers(one)),
    }


def _numbers(one: Seen) -> Iterator[tuple[str, float | None]]:
    tolerances = {band.metric: band.tolerance for band in one.bands}
    for metric in _METRICS:
        yield f"error_{metric}", one.measurement.errors.get(metric)
        yield f"ratio_{metric}", one.measurement.ratios.get(metric)
        yield f"tolerance_{metric}", tolerances.get(metric)


def _case(verdict: Verdict) -> dict[str, object]:
    case = Case.parse(verdict.item.case)
    return {
        "kernel": _text(verdict.item.kernel),
        "case": _text(verdict.item.case),
        "op": _text(case.op),
        "variant": _text(case.variant),
        "dims": ",".join(f"{axis}{size}" for axis, size in case.dims),
        "dtype": case.dtype,
        "regime": _text(case.regime),
        "objective": case.objective,
        "seed": case.seed,
        "place": _text(verdict.evidence.place) if verdict.evidence else "",
    }


def _text(words: str) -> str:
    """A stranger's words on one line, never a formula."""
    plain = line(words)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
