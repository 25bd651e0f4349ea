"""What the gate adds to the verdict of a run: separations that shrank or are too small, what did not fit, survivors that are allowed. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from gradcheck._case import Case
from gradcheck._verdict import CANARY, NULL, Band, Evidence, ExitCode, Outcome, Run, WorkItem
from gradcheck.calibrate.bands import planted
from gradcheck.calibrate.noise import FACTOR
from gradcheck.calibrate.published import Published
from gradcheck.engine.change import separations

Finding = tuple[ExitCode, str]

SPLICED = "(spliced in)"
"""Ends the name of a defect that is no mutant's."""

_SOUND = {Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.UNINFORMATIVE}

_SURVIVED = "of the kill table survived"  # one row, or more
_ROUNDED = 1.001
"""Published numbers have four digits."""


def survivors(run: Run) -> list[tuple[str, str]]:
    """(kernel, mutant) of those that survive in some branch or form."""
    rows = (row for row in run.kills if row.outcome is Outcome.SURVIVED and row.mutant not in {CANARY, NULL})
    return list(dict.fromkeys((row.kernel, row.mutant) for row in rows))


def without_survivors(run: Run) -> tuple[ExitCode, tuple[str, ...]]:
    """Exit code and reasons of a run whose survivors are allowed."""
    reasons = tuple(reason for reason in run.reasons if _SURVIVED not in reason)
    if run.exit_code is not ExitCode.SURVIVORS:
        return run.exit_code, reasons
    # Of all codes only 6 and 0 give way to 3, so whatever other reason there is stands for 6.
    return (ExitCode.INCONCLUSIVE if reasons else ExitCode.OK), reasons


def shrunk(run: Run, evidence: Sequence[Evidence], base: Published, new: Collection[tuple[str, str]], factor: float) -> Iterator[Finding]:
    """Gradients whose separation is smaller than the base's by more than the factor.

    By the mutants that the base has too: a new mutant that is harder to see weakens nothing.

    Args:
        run: the run, its mutants measured in full.
        evidence: of its mutants.
        base: the bands of the base.
        new: (mutant id, kernel) of mutants that the base does not plant.
        factor: as in "by more than the factor".
    """
    by_mutants = [band for band in base.bands if not band.weakest.endswith(SPLICED)]
    before = {key: value for key, value in separations(by_mutants).items() if key[2].startswith("d ")}
    unsound = {verdict.item.kernel for verdict in (*run.verdicts, *run.checks) if verdict.outcome not in _SOUND}
    for kernel, dtype in dict.fromkeys((band.kernel, band.dtype) for band in run.bands):
        if kernel in unsound:
            continue  # its mutants were not run, and the run says why
        noise: dict[str, dict[str, float]] = {}
        for band in run.bands:
            if (band.kernel, band.dtype) == (kernel, dtype):
                noise.setdefault(band.quantity, {})[band.metric] = band.noise
        known = [
            one
            for one in evidence
            if one.item.kernel == kernel
            and one.item.mutant not in {"", CANARY, NULL}
            and Case.parse(one.item.case).dtype == dtype
            and (f"{run.op}/{one.item.mutant}", kernel) not in new
        ]
        now: dict[str, float] = {}
        for (quantity, metric), (size, _) in planted(known, noise).items():
            if noise[quantity][metric] > 0:
                now[quantity] = max(now.get(quantity, 0.0), size / noise[quantity][metric])
        for (name, of, quantity), value in before.items():
            if (name, of) == (kernel, dtype) and not (now.get(quantity, 0.0) * factor * _ROUNDED >= value):
                yield ExitCode.SURVIVORS, _shrank(f"{quantity} of {kernel} in {dtype}", value, now.get(quantity), factor)


def loosened(before: Published, after: Published, factor: float) -> Iterator[Finding]:
    """Where bands that a change publishes ask for less than the base's."""
    old, new = separations(before.bands), separations(after.bands)
    for (kernel, dtype, quantity), value in old.items():
        if quantity.startswith("d ") and not (new.get((kernel, dtype, quantity), 0.0) * factor * _ROUNDED >= value):
            yield (
                ExitCode.SURVIVORS,
                _shrank(f"published bands: {quantity} of {kernel} in {dtype}", value, new.get((kernel, dtype, quantity)), factor),
            )
    known = {_key(band): band for band in before.bands}
    for band in after.bands:
        told = f"published bands: the tolerance of {band.quantity} of {band.kernel} in {band.dtype} by {band.metric}"
        if not (band.tolerance <= FACTOR * band.noise * _ROUNDED):
            yield ExitCode.SURVIVORS, f"{told} is {band.tolerance:g}, more than {FACTOR:g} times its noise, {band.noise:g}"
        elif (was := known.get(_key(band))) and not (band.tolerance <= was.tolerance * factor * _ROUNDED):
            yield ExitCode.SURVIVORS, f"{told} grew from {was.tolerance:g} to {band.tolerance:g}, by more than the factor {factor:g}"


def too_small(run: Run, least: float) -> Iterator[Finding]:
    """Gradients whose separation is below so many decades, or is not known."""
    found = separations(run.bands)
    for kernel, dtype, quantity in dict.fromkeys((band.kernel, band.dtype, band.quantity) for band in run.bands):
        ratio = found.get((kernel, dtype, quantity))
        if not quantity.startswith("d "):
            continue
        if ratio is None:
            yield ExitCode.INCONCLUSIVE, f"{quantity} of {kernel} in {dtype}: no defect was measured, so its separation is not known"
        elif not (math.log10(max(ratio, 1e-300)) >= least):
            decades = math.log10(max(ratio, 1e-300))
            yield (
                ExitCode.SURVIVORS,
                f"{quantity} of {kernel} in {dtype}: noise and weakest defect are {decades:.2f} decades apart, {least:g} are asked for",
            )


def unfinished(planned: Sequence[WorkItem], done: Collection[WorkItem], settled: Mapping[str, Collection[str]]) -> list[str]:
    """What of a plan did not fit into the time, in words; mutants that are settled need no further item."""
    out = []
    for kernel in dict.fromkeys(item.kernel for item in planned):
        mine = [item for item in planned if item.kernel == kernel]
        clean = [item for item in mine if not item.mutant and not item.check]
        checks = [item for item in mine if item.check]
        mutants = dict.fromkeys(
            item.mutant for item in mine if item.mutant and item not in done and item.mutant not in settled.get(kernel, ())
        )
        for what, group in {"cases": clean, "checks": checks}.items():
            if left := sum(item not in done for item in group):
                out.append(f"{left} of {len(group)} {what} of {kernel}")
        if mutants:
            out.append(f"of {kernel} the mutants {', '.join(mutants)}")
    return out


def _shrank(what: str, before: float, after: float | None, factor: float) -> str:
    if not after:
        return f"{what}: the base's weakest defect is {math.log10(before):.2f} decades above noise, and here no mutant moves it any more"
    return f"{what}: the separation shrank from {math.log10(before):.2f} to {math.log10(after):.2f} decades, by more than the factor {factor:g}"


def _key(band: Band) -> tuple[str, str, str, str]:
    return band.kernel, band.dtype, band.quantity, band.metric
