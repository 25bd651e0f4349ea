"""What changed between two runs, or between the published bands and a run. Pure.

Numbers are compared by factors: `moved` holds what grew or shrank by more than the stated one. The separation of a gradient is that of
the metric that separates best, defect / noise, since one metric is enough to see a defect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradcheck._errors import UsageError
from gradcheck._verdict import CANARY, NULL, Band, ExitCode, MutantVerdict, Outcome, Run, Verdict
from gradcheck.calibrate.published import Published

FACTOR = 2.0
"""By how much a number may move without being mentioned, unless the user says otherwise."""

_GOOD = {Outcome.PASSED, Outcome.PASSED_ZERO}
_WRONG = {Outcome.FAILED, Outcome.CRASHED, Outcome.UNVIABLE}
_NUMBERS = ("noise", "tolerance", "measured", "defect")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things compared. Published bands come from clean kernels and have no verdicts and no kill table."""

    name: str
    op: str
    bands: tuple[Band, ...]
    verdicts: tuple[Verdict, ...] = ()
    kills: tuple[MutantVerdict, ...] = ()
    published: bool = False


@dataclass(frozen=True, slots=True)
class Flip:
    """A verdict, or a row of the kill table, that ends otherwise. `where` is the case, or the branch and form."""

    kernel: str
    mutant: str
    where: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Move:
    """A number of a gradient that moved by more than the factor; None where there is none."""

    kernel: str
    dtype: str
    quantity: str
    metric: str
    what: str
    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """What changed from `old` to `new`.

    Args:
        common: verdicts on clean kernels that both have: two runs of different seeds or `--cases` share none.
        flips: of clean kernels and of mutants.
        moved: noise, tolerance, measured, defect by metric, and the separation; of a kernel that is wrong on either side only measured.
        gone: what the old one compared and the new one does not; not the mutants of a kernel that is wrong, which are never run.
        worse: the reasons why the exit code is not 0.
    """

    old: str
    new: str
    factor: float
    common: int
    flips: tuple[Flip, ...]
    moved: tuple[Move, ...]
    gone: tuple[str, ...]
    worse: tuple[str, ...]
    exit_code: ExitCode


def of_run(run: Run) -> Side:
    """A run as a side."""
    return Side(run.id, run.op, run.bands, (*run.verdicts, *run.checks), run.kills)


def of_published(published: Published) -> Side:
    """Published bands as a side."""
    return Side("published", published.op, published.bands, published=True)


def change(old: Side, new: Side, factor: float = FACTOR) -> Change:
    """What changed, and whether anything is worse.

    Exit 1: a kernel is wrong at a case where it was not, or wrong now and not before. Exit 3: a separation shrank by more than `factor`,
    or a mutant survives, or ends as no kill, that did not. Exit 6: something that was compared is not any more. Else 0.

    Raises:
        UsageError: the two are of different ops, or have nothing in common.
    """
    if old.op != new.op:
        raise UsageError(f"{old.name} is a run of {old.op}, {new.name} one of {new.op}; compare two of one op")
    if not set(_kernels(old)) & set(_kernels(new)):
        raise UsageError(f"no kernel is in both: {old.name} has {_listed(_kernels(old))}, {new.name} has {_listed(_kernels(new))}")
    flips = (*_verdict_flips(old, new), *_mutant_flips(old, new))
    moved = tuple(_moves(old, new, factor))
    gone = tuple(_gone(old, new))
    found = [
        *((ExitCode.WRONG, text) for text in _newly_wrong(old, new, flips)),
        *((ExitCode.SURVIVORS, text) for text in _newly_unseen(old, new, flips)),
        *((ExitCode.SURVIVORS, text) for text in _shrunk(moved, factor)),
        *((ExitCode.INCONCLUSIVE, f"not compared any more: {text}") for text in gone),
        *((ExitCode.INCONCLUSIVE, text) for text in _undecided(flips)),
    ]
    common = len(set(_outcomes(old)) & set(_outcomes(new)))
    worse = tuple(text for _, text in found)
    return Change(old.name, new.name, factor, common, flips, moved, gone, worse, ExitCode.worst(*(code for code, _ in found)))


def _kernels(side: Side) -> list[str]:
    return list(dict.fromkeys([*(v.item.kernel for v in side.verdicts), *(band.kernel for band in side.bands)]))


def _outcomes(side: Side) -> dict[tuple[str, str], Outcome]:
    """By kernel and case; a check that needs no tolerance stands behind its case."""
    return {(v.item.kernel, f"{v.item.case}, check {v.item.check}" if v.item.check else v.item.case): v.outcome for v in side.verdicts}


def _rows(side: Side) -> dict[tuple[str, str, str, str], Outcome]:
    return {(row.kernel, row.mutant, row.variant, row.form): row.outcome for row in side.kills}


def _verdict_flips(old: Side, new: Side) -> Iterator[Flip]:
    before = _outcomes(old)
    for (kernel, case), outcome in _outcomes(new).items():
        if before.get((kernel, case), outcome) is not outcome:
            yield Flip(kernel, "", case, before[kernel, case].name, outcome.name)


def _mutant_flips(old: Side, new: Side) -> Iterator[Flip]:
    before = _rows(old)
    for key, outcome in _rows(new).items():
        if before.get(key, outcome) is not outcome:
            kernel, mutant, variant, form = key
            yield Flip(kernel, mutant, ", ".join(filter(None, (variant, form))), before[key].name, outcome.name)


def _wrong(side: Side) -> set[str]:
    """The kernels that are wrong there. Their mutants were not run, so all but their own error is of no meaning."""
    return {kernel for (kernel, _), outcome in _outcomes(side).items() if outcome in _WRONG}


def _moves(old: Side, new: Side, factor: float) -> Iterator[Move]:
    before, after, wrong = _by_key(old.bands), _by_key(new.bands), _wrong(old) | _wrong(new)
    for (kernel, dtype, quantity, metric), band in after.items():
        known = before.get((kernel, dtype, quantity, metric))
        for what in _NUMBERS if known and kernel not in wrong else ("measured",) if known else ():
            values = getattr(known, what), getattr(band, what)
            if _far(*values, factor):
                yield Move(kernel, dtype, quantity, metric, what, *values)
    best_before, best_after = separations(old.bands), separations(new.bands)
    for key, ratio in best_after.items():
        if key in best_before and key[0] not in wrong and _far(best_before[key], ratio, factor):
            yield Move(*key, "best", "separation", best_before[key], ratio)


def _by_key(bands: Iterable[Band]) -> dict[tuple[str, str, str, str], Band]:
    return {(band.kernel, band.dtype, band.quantity, band.metric): band for band in bands}


def separations(bands: Iterable[Band]) -> dict[tuple[str, str, str], float]:
    """Defect / noise of each gradient, by the metric that separates best."""
    out: dict[tuple[str, str, str], float] = {}
    for band in bands:
        if band.defect is not None and band.noise > 0:
            key = band.kernel, band.dtype, band.quantity
            out[key] = max(out.get(key, 0.0), band.defect / band.noise)
    return out


def _far(old: float | None, new: float | None, factor: float) -> bool:
    """Whether two numbers differ by more than the factor. One that is there and one that is not do."""
    if old is None or new is None:
        return old is not new
    low, high = sorted((abs(old), abs(new)))
    return not (high <= factor * low)


def _gone(old: Side, new: Side) -> Iterator[str]:
    """Kernels, gradients and mutants that only the old one has. Cases are not counted: another seed has others."""
    kept = set(_kernels(new))
    yield from (f"kernel {kernel}" for kernel in _kernels(old) if kernel not in kept)
    have = {(band.kernel, band.dtype, band.quantity) for band in new.bands if band.measured is not None}
    had = dict.fromkeys((band.kernel, band.dtype, band.quantity) for band in old.bands if band.measured is not None)
    lost: dict[tuple[str, str], list[str]] = {}
    for kernel, dtype, quantity in had:
        if kernel in kept and (kernel, dtype, quantity) not in have:
            lost.setdefault((kernel, dtype), []).append(quantity)
    yield from (f"{_listed(names)} of {kernel} in {dtype}" for (kernel, dtype), names in lost.items())
    mutants, wrong = {key[:3] for key in _rows(new)}, _wrong(new)
    missing: dict[str, list[str]] = {}
    for kernel, mutant, variant in dict.fromkeys(key[:3] for key in _rows(old)):
        if kernel in kept - wrong and (kernel, mutant, variant) not in mutants:
            missing.setdefault(kernel, []).append(f"{mutant} ({variant})" if variant else mutant)
    yield from (f"mutants of {kernel}: {_listed(names)}" for kernel, names in missing.items())


def _newly_wrong(old: Side, new: Side, flips: Sequence[Flip]) -> Iterator[str]:
    wrong = {outcome.name for outcome in _WRONG}
    before = {kernel for (kernel, _), outcome in _outcomes(old).items() if outcome in _WRONG}
    after = _count(kernel for (kernel, _), outcome in _outcomes(new).items() if outcome in _WRONG)
    flipped = _count(flip.kernel for flip in flips if not flip.mutant and flip.new in wrong and flip.old not in wrong)
    for kernel, cases in after.items():
        if kernel not in before:
            yield f"kernel {kernel} newly fails, at {cases} of its cases"
        elif kernel in flipped:
            yield f"kernel {kernel} newly fails at {flipped[kernel]} cases, beside those where it already did"


def _newly_unseen(old: Side, new: Side, flips: Sequence[Flip]) -> Iterator[str]:
    for flip in flips:
        if flip.mutant and flip.old == Outcome.KILLED.name and flip.mutant != NULL:
            yield f"mutant {flip.mutant} on {flip.kernel} ({flip.where}) was KILLED and is {flip.new}"
        elif flip.mutant and flip.new == Outcome.SURVIVED.name and flip.mutant != NULL:
            yield f"mutant {flip.mutant} on {flip.kernel} ({flip.where}) was {flip.old} and has SURVIVED"
        elif flip.mutant == NULL and flip.old == Outcome.SURVIVED.name:
            yield f"the null mutant on {flip.kernel} ({flip.where}) was not seen, as it should be, and is {flip.new}"
    if not old.published:  # which has no kill table that a row could be missing from
        for (kernel, mutant, variant, form), outcome in _rows(new).items():
            if outcome is Outcome.SURVIVED and mutant not in {CANARY, NULL} and (kernel, mutant, variant, form) not in _rows(old):
                yield f"mutant {mutant} on {kernel} ({', '.join(filter(None, (variant, form)))}) is new and has SURVIVED"


def _shrunk(moved: Iterable[Move], factor: float) -> Iterator[str]:
    for move in moved:
        if move.what == "separation" and move.old and move.new and move.new < move.old:
            before, after = (math.log10(value) for value in (move.old, move.new))
            yield (
                f"{move.quantity} of {move.kernel} in {move.dtype}: the separation shrank from {before:.1f} to {after:.1f} decades, "
                f"by more than the factor {factor:g}"
            )


def _undecided(flips: Iterable[Flip]) -> Iterator[str]:
    """Cases that passed and now end as neither right nor wrong."""
    good, wrong = ({outcome.name for outcome in group} for group in (_GOOD, _WRONG))
    lost = _count(flip.kernel for flip in flips if not flip.mutant and flip.old in good and flip.new not in good | wrong)
    yield from (f"kernel {kernel} has no verdict any more at {cases} cases where it passed" for kernel, cases in lost.items())


def _count(names: Iterable[str]) -> Mapping[str, int]:
    out: dict[str, int] = {}
    for name in names:
        out[name] = out.get(name, 0) + 1
    return out


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
