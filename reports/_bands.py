"""The calibration table: noise, what was measured, tolerance and the weakest defect of each output and gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradcheck import Band, Run

from ._facts import dtypes, kernels, over, separation
from ._rows import Row, rows, spliced, weakest
from ._text import line, number, say

_WIDE = 104  # columns from which the log scale and the worst element fit


def calibration(run: Run, width: int) -> Iterator[RenderableType]:
    """One table per kernel and dtype, then one caption for all of them."""
    drawn = False
    for kernel in kernels(run):
        for dtype in dtypes(run, kernel):
            group = rows(run, kernel, dtype)
            if not group:
                continue
            drawn = True
            level = " · band: op-level" if any(band.kernel == "op-level" for row in group for band in row.bands) else ""
            level += _spliced(group)
            yield say("\n", (line(kernel), "bold"), f" · {dtype}", (level, "yellow"))
            yield _draw(group, width)
    if drawn:
        yield Padding(_caption(width), (0, 0, 0, 2))


def _spliced(group: Sequence[Row]) -> str:
    """Which defects are no mutants."""
    defects = [row for row in group if row.band is not None and row.band.weakest]
    into = [row.quantity for row in defects if row.band is not None and spliced(row.band)]
    of = f" of {', '.join(into)}" if len(into) < len(defects) else ""
    return f" · defects{of} spliced into its gradients" if into else ""


def _draw(group: Sequence[Row], width: int) -> Table:
    wide = width >= _WIDE
    scale = min(max(width - 102, 14), 24) if wide else 0  # the names of mutants come first
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0, header_style="dim", border_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("metric", style="dim", no_wrap=True)
    for heading in ("noise", "measured", "tolerance", "defect", "decades"):
        table.add_column(heading, justify="right", no_wrap=True)
    if wide:
        table.add_column("", no_wrap=True)
    table.add_column(" weakest defect", style="dim", overflow="ellipsis")
    if wide:
        table.add_column("worst at", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    ends = _ends(group)
    for row, following in zip(group, [*group[1:], None], strict=True):
        outputs_end = following is not None and following.quantity.startswith("d ") and not row.quantity.startswith("d ")
        table.add_row(*_cells(row, scale, ends), end_section=outputs_end)
    return table


def _cells(row: Row, scale: int, ends: tuple[float, float]) -> list[Text]:
    style = {"✗": "bold red", "✓": "green", "?": "yellow"}[row.mark]
    nothing = Text("–")
    cells = [say((f"{row.mark} ", style), (f"{line(row.quantity)} ", style if row.failed else "bold"))]
    band = row.band
    if band is None:
        cells += [nothing] * (8 if scale else 7)
    else:
        error, decades = row.error(band), separation(band)
        cells += [
            Text(band.metric),
            Text(number(band.noise)),
            say((_measured(row, error), "bold red" if over(error, band.tolerance) > 1 and row.told else "")),
            Text(number(band.tolerance)),
            nothing if band.defect is None else Text(number(band.defect)),
            nothing if decades is None else say((f"{decades:.1f}", "bold")),
            *([say(" ") + _scale(band, error if row.told else 0.0, ends, scale)] if scale else []),
            Text(f" {line(weakest(band))}" if band.weakest else " –"),
        ]
    worst = row.worst.measurement if row.worst else None
    if scale:
        cells.append(Text(str(list(worst.worst))) if worst and worst.worst else nothing)
    cells.append(Text(str(worst.worst_step)) if worst and worst.worst_step is not None else nothing)
    return cells


def _measured(row: Row, error: float | None) -> str:
    """The worst error; `invalid` where a case returned what cannot be compared."""
    if not row.told:
        return "–"
    return "invalid" if error is None else number(error)


def _ends(group: Sequence[Row]) -> tuple[float, float]:
    """Decades that the scale of a table spans: one scale, so that its rows can be compared."""
    marks = [m for row in group if (b := row.band) for m in (b.noise, b.tolerance, b.defect, row.error(b)) if m and 0 < m < math.inf]
    return (math.floor(math.log10(min(marks))), math.ceil(math.log10(max(marks)))) if marks else (0.0, 1.0)


def _scale(band: Band, error: float | None, ends: tuple[float, float], width: int) -> Text:
    """Noise, tolerance, weakest defect and the measured error on one log scale; where two meet, the measured error is on top."""
    low, high = ends
    wrong = over(error, band.tolerance) > 1
    cells: list[tuple[str, str]] = [("·", "dim")] * width
    for mark, glyph, style in (
        (band.noise, "○", ""),
        (band.defect, "◆", "yellow"),
        (band.tolerance, "┃", "cyan"),
        (math.inf if error is None else error, "●", "bold red" if wrong else "green"),
    ):
        if mark:
            share = 1.0 if math.isinf(mark) else (math.log10(mark) - low) / max(high - low, 1.0)
            cells[min(max(round(share * (width - 1)), 0), width - 1)] = (glyph, style)
    return Text.assemble(*cells)


def _caption(width: int) -> Text:
    legend = "\n○ noise  ● measured  ┃ tolerance  ◆ weakest defect, on one log scale" if width >= _WIDE else ""
    unit = "In multiples of the case's rounding unit u·Σ|terms|, worst case each; decades = log10(defect / noise). "
    which = "Metric: l2, the error in the norm of the whole; where a row fails, the one exceeded most. All five were judged."
    return say((unit + which + legend, "dim"))
