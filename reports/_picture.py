"""The geometry of the noise-versus-defect picture and of the error over time: plain numbers, drawn by the template.

Every error is a multiple of its own tolerance, on one log scale: cases of several dtypes and metrics can so stand in one strip, with the tolerance
at the same place in all of them. Places across are per cent of the width; nothing here is text that needs escaping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gradcheck import MutantVerdict, Outcome, Run

from ._facts import Seen, dtypes, kernels, over, seen, separation
from ._failures import telling
from ._kills import mutants
from ._rows import Row, rows, spliced, weakest
from ._text import count, line, number

_BIN, _STEP, _HALF = 1.3, 7.0, 26.0  # per cent of the width and pixels: how points that would hide each other are set apart
_BEYOND = 0.97  # share of the width at which the scale ends: what is not finite stands beyond
ENDLESS = 98.5
_DECLARED = (Outcome.HARMLESS, Outcome.EQUIVALENT)


@dataclass(frozen=True, slots=True)
class Scale:
    """Decades of error / tolerance from `low` to `high`."""

    low: int
    high: int

    def at(self, multiple: float) -> float:
        """Where a multiple of the tolerance stands, in per cent; what is not finite stands at the right edge."""
        if not math.isfinite(multiple):
            return ENDLESS
        share = (math.log10(multiple) - self.low) / (self.high - self.low) if multiple > 0 else 0.0
        return round(100 * _BEYOND * min(max(share, 0.0), 1.0), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Place and label of a few decades."""
        every = max(1, round((self.high - self.low) / 6))
        return [
            (self.at(10.0**d), "1" if d == 0 else f"10{_raised(d)}")
            for d in range(self.low, self.high + 1)
            if d % every == 0 and self.at(10.0**d) < 88
        ]  # the right edge has a label of its own


@dataclass(frozen=True, slots=True)
class Point:
    """A defect: where it stands, how it ended (`killed`, `survived`, `declared`, `weakest`), and what to say of it."""

    x: float
    y: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One output or gradient of a kernel over all its cases and dtypes.

    Args:
        quantity: its name; `mark` says whether it is right.
        noise: where the model noise ends, in per cent.
        ticks: SVG path of the clean cases, in a box 1000 wide and 10 high.
        wrong: places of the cases that fail.
        points: each defect that shows here, then per dtype the weakest of all that touch it.
        shown: how many of the defects, but for those that are declared to survive, are out of the tolerance here; empty where none was run.
        failing: how many cases are wrong of how many; empty where none is.
        decades: the smallest separation over the dtypes; empty where there is none.
        weakest: name of the defect it belongs to, and by what multiple of the tolerance that is seen.
    """

    quantity: str
    mark: str
    noise: float
    ticks: str
    wrong: tuple[float, ...]
    points: tuple[Point, ...]
    shown: str
    failing: str
    decades: str
    weakest: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Error of one gradient by time step, as points of an SVG polyline in a box 1000 wide and 100 high.

    Args:
        quantity: its name.
        envelope: the largest error of all cases that pass.
        wrong: the most telling case that fails, if there is one; `case` names it and `said` says where it leaves the noise.
        tolerance: height of the tolerance.
        steps: number of time steps.
    """

    quantity: str
    envelope: str
    wrong: str
    case: str
    said: str
    tolerance: float
    steps: int


def scale(run: Run) -> Scale:
    """One scale for all strips of a run."""
    excess = [one.excess for kernel in kernels(run) for one in seen(run, kernel)]
    margins = (margin for row in mutants(run) for margin in (row.margin, *row.margins.values()))
    marks = [m for m in (*excess, *margins) if m and 0 < m < math.inf]
    high = math.ceil(math.log10(max(marks))) if marks else 0
    return Scale(-3, max(min(high, 8), 3))


def strips(run: Run, kernel: str, across: Scale) -> list[Strip]:
    """Gradients first, for they are what is checked; then outputs."""
    by_quantity: dict[str, list[tuple[str, Row]]] = {}
    for dtype in dtypes(run, kernel):
        for row in rows(run, kernel, dtype):
            by_quantity.setdefault(row.quantity, []).append((dtype, row))
    defects = [row for row in mutants(run) if row.kernel == kernel and row.cases]
    names = sorted(by_quantity, key=lambda name: not name.startswith("d "))
    return [_strip(name, by_quantity[name], defects, across) for name in names]


def _strip(name: str, group: Sequence[tuple[str, Row]], defects: Sequence[MutantVerdict], across: Scale) -> Strip:
    of = {row.mutant for row in defects if row.outcome not in _DECLARED}
    out = {row.mutant for row in defects if _out(row, name)} & of
    measured = [one for _, row in group for one in row.measured]
    clean = sorted({across.at(one.excess) for one in measured if not one.failed and one.measurement.informative})
    noise = max((band.noise / band.tolerance for _, row in group for band in row.bands if band.tolerance > 0), default=0.0)
    separations = [(decades, dtype, row) for dtype, row in group if row.band and (decades := separation(row.band)) is not None]
    least = min(separations, key=lambda found: found[0], default=None)
    marks = {row.mark for _, row in group}
    return Strip(
        quantity=line(name),
        mark="✗" if "✗" in marks else "?" if "?" in marks else "✓",
        noise=across.at(noise),
        ticks="".join(f"M{10 * x:.0f} 0v10" for x in clean),
        wrong=tuple(sorted({across.at(one.excess) for one in measured if one.failed})),
        points=(
            *_apart([_point(row, name, across) for row in defects if _out(row, name) or row.quantity == name]),
            *_weakest(group, across),
        ),
        shown=f"shows {len(out)} of {len(of)}" if of else "",
        failing=f"{sum(one.failed for one in measured)} of {count(len(measured), 'case')}" if any(one.failed for one in measured) else "",
        decades="" if least is None else f"{least[0]:.1f}",
        weakest="" if least is None else _named(least[2], least[1]),
    )


def _out(row: MutantVerdict, quantity: str) -> bool:
    """Whether a defect is out of the tolerance of this gradient."""
    return over(row.margins.get(quantity, 0.0), 1.0) > 1


def _point(row: MutantVerdict, quantity: str, across: Scale) -> Point:
    best = row.quantity == quantity
    margin = row.margin if best else row.margins[quantity]
    kind = "killed" if row.outcome is Outcome.KILLED else "declared" if row.outcome in _DECLARED else "survived"
    much = "not finite or not comparable" if margin is None else f"×{number(margin)}"
    where = ", ".join(filter(None, (line(row.variant), line(row.form))))
    return Point(
        across.at(math.inf if margin is None else margin),
        0.0,
        kind if row.form == "full" else f"{kind} diluted",
        f"{line(row.mutant)} ({where}): {much}{f' by {line(row.metric)}' if best else ''}, {row.outcome.name}",
    )


def _weakest(group: Sequence[tuple[str, Row]], across: Scale) -> Iterator[Point]:
    for dtype, row in group:
        if row.band and row.band.defect is not None:
            text = f"weakest in {dtype}: {_named(row, dtype)}"
            yield Point(across.at(over(row.band.defect, row.band.tolerance)), 0.0, "weakest", text)


def _named(row: Row, dtype: str) -> str:
    """`bf16_state, ×302 by l2 in f32`."""
    band = row.band
    if band is None or band.defect is None:
        return ""
    origin = " (spliced in)" if spliced(band) else ""
    return f"{line(weakest(band))}{origin}, ×{number(over(band.defect, band.tolerance))} by {band.metric} in {dtype}"


def _apart(points: Sequence[Point]) -> list[Point]:
    """Points that would hide each other, set apart above and below the middle."""
    bins: dict[int, list[Point]] = {}
    for point in sorted(points, key=lambda p: (p.kind, p.x)):
        bins.setdefault(round(point.x / _BIN), []).append(point)
    placed = []
    for group in bins.values():
        step = min(_STEP, 2 * _HALF / max(len(group), 1))
        placed += [replace(p, y=round((k + 1) // 2 * step * (-1 if k % 2 else 1), 1)) for k, p in enumerate(group)]
    return sorted(placed, key=lambda p: "survived" in p.kind)  # what must not be overlooked is drawn last


def curves(run: Run, kernel: str) -> list[Curve]:
    """Error over time of each quantity that has time steps."""
    groups: dict[str, list[Seen]] = {}
    for one in seen(run, kernel):
        if one.measurement.profile and any(band.metric == "slice" for band in one.bands):
            groups.setdefault(one.measurement.quantity, []).append(one)
    return [_curve(name, groups[name]) for name in sorted(groups, key=lambda name: not name.startswith("d "))]


def _curve(name: str, group: Sequence[Seen]) -> Curve:
    passing = [_profile(one) for one in group if not one.failed]
    failing = [one for one in group if one.failed]
    longest = max((len(one.measurement.profile) for one in group), default=0)
    envelope = [max((p[t] for p in passing if t < len(p)), default=0.0) for t in range(longest)] if passing else []
    worst = telling(failing) if failing else None
    wrong = _profile(worst) if worst else []
    finite = [v for v in (*envelope, *wrong) if 0 < v < math.inf]
    low, high = -3.0, max(1.0, math.log10(max(finite))) if finite else 1.0
    out = [t for t, v in enumerate(wrong) if not (v <= 1)]
    steps = max(longest, 2)
    return Curve(
        line(name),
        _polyline(envelope, steps, low, high),
        _polyline(wrong, steps, low, high),
        line(worst.verdict.item.case) if worst else "",
        f"leaves the noise at t = {out[0]}, {len(out)} of {len(wrong)} steps" if out else "no step by itself leaves the noise",
        round(100 * (1 - (0 - low) / (high - low)), 1),
        longest,
    )


def _profile(one: Seen) -> list[float]:
    tolerance = next(band.tolerance for band in one.bands if band.metric == "slice")
    return [over(ratio, tolerance) for ratio in one.measurement.profile]


def _polyline(values: Sequence[float], steps: int, low: float, high: float) -> str:
    def height(value: float) -> float:
        if value <= 0:
            return 100.0
        share = 1.0 if math.isinf(value) else (math.log10(value) - low) / (high - low)
        return 100 * (1 - min(max(share, 0.0), 1.0))

    return " ".join(f"{1000 * t / (steps - 1):.0f},{height(value):.1f}" for t, value in enumerate(values))


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
