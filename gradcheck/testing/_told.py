"""A comparison seen close, as text: what `gradcheck replay` prints, and what an assertion says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gradcheck._columns import columns

if TYPE_CHECKING:
    from gradcheck.engine.closeup import Closeup
    from gradcheck.engine.view import Element, View

TIME, BATCH = "T", "B"  # as in gradcheck.numerics.recurrence, which loads NumPy
_BARS = "▁▂▃▄▅▆▇█"
_INDENT = "  "
_WIDE = 102  # bars on a line


def told(seen: Closeup, *, everything: bool = False) -> Iterator[str]:
    """The lines that tell of a comparison. Details of the quantities that fail, or of `everything`."""
    what = f"{seen.item.mutant} in {seen.item.kernel}" if seen.item.mutant else seen.item.kernel
    yield f"{seen.outcome.name}  {what}: {seen.ending}"
    yield f"case       {seen.item.case}"
    if seen.place:
        yield f"ran on     {seen.place}"
    if not seen.views:
        yield f"reason     {seen.why}"
        yield from (f"log        {line}" for line in seen.log.splitlines()[-8:])
        return
    yield f"truth      {seen.oracle}"
    yield f"tolerance  {seen.limits}"
    if seen.why and all(view.passed for view in seen.views):
        yield f"reason     {seen.why}"
    for remark in seen.remarks:
        yield f"seen       {remark}"
    yield ""
    yield columns([_metrics(view) for view in seen.views])
    yield "Errors in rounding units of the case, each / its tolerance; above 1 it is no noise."
    for view in seen.views:
        if (everything or not view.passed) and view.elements:
            yield ""
            yield from _details(view)


def _metrics(view: View) -> dict[str, object]:
    """One row: every metric against its tolerance."""
    m = view.measurement
    name = f"{'✓' if view.passed else '✗'} {m.quantity}"
    word = m.problem or {"zero-kept": "exactly zero, as the truth is", "zero-broken": "not exactly zero, as the truth is"}.get(m.zero, "")
    told = {metric: _against(m.ratios.get(metric), limit) if m.ratios else "" for metric, limit in view.tolerances.items()}
    return {"": name, **told, "elements": m.checked, "note": word or ("" if m.informative else "the truth is below the oracle's own error")}


def _against(ratio: float | None, limit: float) -> str:
    return f"{_short(ratio)} / {_short(limit)}{'' if ratio is not None and ratio <= limit else ' !'}"


def _details(view: View) -> Iterator[str]:
    m = view.measurement
    yield f"{m.quantity}  [{' '.join(m.axes)}]"
    yield from (_INDENT + line for line in columns([_element(m.axes, e) for e in view.elements]).splitlines())
    limit = view.tolerances["slice"]
    head = next((axis for axis in m.axes if axis not in {TIME, BATCH}), "")
    for axis, what in {TIME: "time step", head: f"head ({head})", BATCH: "row"}.items():
        if axis not in m.axes:
            continue
        out, slices, index = view.out(axis), view.slices[axis], axis.lower()
        reach = f"{len(out)} of {len(slices)} out of the noise" + (f", first at {index} = {out[0]}" if out else "")
        worst = max(range(len(slices)), key=lambda i: math.inf if slices[i] is None else slices[i] or 0.0)
        yield f"{_INDENT}by {what}: {reach}; worst at {index} = {worst}, {_short(slices[worst])} / {_short(limit)}"
        if len(slices) > 1:
            yield from (2 * _INDENT + line for line in _profile(slices, limit))


def _element(axes: Sequence[str], element: Element) -> dict[str, object]:
    return {
        "worst elements": ", ".join(f"{axis.lower()}={i}" for axis, i in zip(axes, element.index, strict=True)),
        "got": f"{element.got:.9g}",
        "want": f"{element.want:.9g} ± {element.error:.1g}",
        "off": _short(element.off),
    }


def _profile(slices: Sequence[float | None], limit: float) -> Iterator[str]:
    """The error of each index: as numbers where there are few, else as bars over the four decades about the tolerance."""
    if len(slices) <= 8:
        yield "  ".join(f"{i}: {_short(ratio)}" for i, ratio in enumerate(slices))
        return
    per = math.ceil(len(slices) / _WIDE)
    yield "".join(_bar(slices[i : i + per], limit) for i in range(0, len(slices), per))


def _bar(ratios: Sequence[float | None], limit: float) -> str:
    """The worst of these errors; `!` where one is not finite."""
    finite = [ratio for ratio in ratios if ratio is not None]
    if len(finite) < len(ratios):
        return "!"
    level = 0.5 + math.log10(max(finite) / limit) / 4 if max(finite) > 0 else 0.0
    return _BARS[min(max(int(level * len(_BARS)), 0), len(_BARS) - 1)]


def _short(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3g}" if value == 0 or 0.01 <= abs(value) < 1000 else f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
