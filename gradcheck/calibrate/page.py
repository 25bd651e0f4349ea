"""The page of all published bands, and the README's table of ops, in Markdown: made from the suite and its files, never written by hand. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gradcheck._mutant import Mutant
from gradcheck._op import Op
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


def ops_table(ops: Sequence[Op], mutants: Sequence[Mutant], published: Sequence[Published]) -> str:
    """One row per op: what is checked, and, where its bands are published, how far noise and the weakest defect lie apart.

    The decades are those of the gradient in which they are fewest, over all its kernels, by dtype; false alarms and missed defects are those on
    the held-out seeds.
    """
    known = {one.op: one for one in published}
    rows = [
        "| op | branches | gradients | kernels | mutants | decades | held out |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for op in sorted(ops, key=lambda op: op.name):
        own = [mutant for mutant in mutants if mutant.op == op.name]
        controls = sum(mutant.expect != "killed" for mutant in own)
        cells = (
            _code(op.name),
            ", ".join(map(_code, op.variants)) or "–",
            ", ".join(name for name in op.inputs if name not in op.constants),
            ", ".join(_code(kernel.name) for kernel in op.kernels) or "–",
            f"{len(own)}{f', {controls} of them controls that must survive' if controls else ''}",
            *(_apart(known[op.name]) if op.name in known else ("not published", "–")),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _apart(one: Published) -> tuple[str, str]:
    """(least decades by dtype, what the trial on held-out seeds said and when)."""
    least: dict[str, float] = {}
    for (_, dtype, _), band in _rows(one.bands).items():
        if band.defect is not None and band.defect > 0 and band.noise > 0:
            least[dtype] = min(least.get(dtype, math.inf), math.log10(band.defect / band.noise))
    held = one.held
    trial = f"{held.alarms} in {held.clean:,}, {held.missed} missed of {held.rows:,}"
    return (
        ", ".join(f"{dtype} {decades:.1f}" for dtype, decades in least.items()) or "–",
        f"{trial} ({one.environment.get('date', 'no date')})",
    )


def _op(one: Published) -> Iterator[str]:
    env, held = one.environment, one.held
    versions = ", ".join(f"{name} {env[name]}" for name in ("gradcheck", "python", "numpy", "mlx") if env.get(name))
    yield f"## {one.op}"
    yield ""
    yield f"{env.get('date', 'no date')}, {env.get('device', 'no device')}, {env.get('machine', '')}: {versions}."
    yield f"Seeds {_listed(one.seeds)}; k = {one.factor:g}; the largest error of a clean kernel is {one.ratio:.3g} times the model noise."
    yield (
        f"Held out, seeds {_listed(held.seeds)}: {held.alarms} in {held.clean:,} clean runs (largest error {held.worst:.3g} of its "
        f"tolerance), {held.missed} of {held.rows:,} rows of the kill table missed."
    )
    for kernel, trial in one.trials.items():
        if trial.place:
            yield f"{_code(kernel)} was measured on {_code(trial.place)}{', which is no GPU' if trial.place == 'metal-cpu' else ''}."
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
