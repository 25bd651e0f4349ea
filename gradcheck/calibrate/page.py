"""The page of all published bands, in Markdown: made from the files beside it, never written by hand. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gradcheck._verdict import Band
from gradcheck.calibrate.published import Published

_METRIC = "l2"  # the error in the norm of the whole: the largest separation of all metrics would flatter
_SPLICED = " (spliced in)"

_INTRO = """\
# Published bands

How far noise and defect lie apart: every op, kernel, dtype and gradient. `gradcheck calibrate --op NAME` measures an op anew and rewrites its file and
this page; nothing here is written by hand.

Noise is what rounding explains (from the oracle alone), measured the largest error of the kernel as it is, defect the weakest that touches the gradient
at all; each is the error in the norm of the whole (l2) in multiples of the case's rounding unit u·Σ|terms|. Decades = log10(defect / noise).
[Noise or defect](../../docs/explanation/noise-or-defect.md) says where they come from. A defect that is *spliced in* was put into the kernel's own
gradient, since no mutant of that kernel touches it at this dtype.
"""


def page(published: Sequence[Published]) -> str:
    """The page of these ops, in the order of their names."""
    parts = [_INTRO]
    for one in sorted(published, key=lambda one: one.op):
        parts += ["\n".join(_op(one))]
    return "\n".join(parts)


def _op(one: Published) -> Iterator[str]:
    env, held = one.environment, one.held
    versions = ", ".join(f"{name} {env[name]}" for name in ("gradcheck", "python", "numpy", "mlx") if env.get(name))
    yield f"## {one.op}"
    yield ""
    yield f"{env.get('date', 'no date')}, {env.get('device', 'no device')}, {env.get('machine', '')}: {versions}."
    yield f"Seeds {_listed(one.seeds)}; k = {one.factor:g}; the largest error of a clean kernel is {one.ratio:.3g} times the model noise."
    yield (
        f"Held out, seeds {_listed(held.seeds)}: {held.false_alarms} false alarms in {held.clean:,} clean runs (largest error {held.worst:.3g} of its "
        f"tolerance), {held.missed} of {held.rows:,} rows of the kill table missed."
    )
    yield ""
    yield "| kernel | dtype | gradient | noise | measured | tolerance | defect | decades | weakest defect |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for (kernel, dtype, quantity), band in _rows(one.bands).items():
        weakest = band.weakest.partition(_SPLICED)
        cells = (
            *(_code(kernel), dtype, _code(quantity)),
            *(_number(value) for value in (band.noise, band.measured, band.tolerance, band.defect)),
            _decades(band),
            (_code(weakest[0]) + (" *spliced in*" if weakest[1] else "")) if band.weakest else "–",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _rows(bands: Sequence[Band]) -> Mapping[tuple[str, str, str], Band]:
    """The gradients' bands by the metric of the page."""
    return {(b.kernel, b.dtype, b.quantity): b for b in bands if b.metric == _METRIC and b.quantity.startswith("d ")}


def _decades(band: Band) -> str:
    if band.defect is None or not (band.defect > 0 and band.noise > 0):
        return "–"
    return f"{math.log10(band.defect / band.noise):.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _code(text: str) -> str:
    """A name as a code span in a cell; names of a suite hold no backtick that would end it, and if one does it goes."""
    return f"`{' '.join(text.replace('`', '').split())}`".replace("|", "\\|")
