"""The gate: from judged evidence to one exit code and the sentences that explain it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradcheck._verdict import CANARY, NULL, Band, Evidence, ExitCode, MutantVerdict, Outcome, Verdict, fault
from gradcheck._words import count
from gradcheck.calibrate.bands import ROOM, unseparated

_BAD = frozenset({Outcome.FAILED, Outcome.CRASHED})


def gate(  # noqa: PLR0913 - all that a verdict may hang on
    verdicts: Sequence[Verdict],
    kills: Sequence[MutantVerdict],
    bands: Sequence[Band],
    *,
    missing: int,
    absent: Mapping[str, str],
    rotten: Sequence[str],
    forward_only: bool,
    checks: Sequence[Verdict] = (),
    part: bool = False,
) -> tuple[ExitCode, tuple[str, ...]]:
    """(exit code, reasons).

    Args:
        verdicts: of the clean kernels.
        kills: the kill table.
        bands: of all kernels.
        missing: planned items without evidence.
        absent: kernels that were asked for by name and cannot run here, with the reason.
        rotten: what is wrong with the suite itself (stale mutants).
        forward_only: no gradient was to be checked.
        checks: of the clean kernels, in the checks that need no tolerance.
        part: this is a shard of a plan, and whether every gradient was checked is for the whole of it to tell.
    """
    found: list[tuple[ExitCode, str]] = []
    found += [(ExitCode.BUG, text) for text in _failed_ourselves(checks)]
    found += [(ExitCode.WRONG, text) for text in (*_wrong(verdicts), *_violated(checks))]
    found += [(ExitCode.ROTTEN, text) for text in rotten]
    # Where no gradient could tell, a canary cannot die: nothing was checked, which is no fault of the suite.
    told = [
        (kernel, {name: seen for name, seen in _informative(group).items() if name.startswith("d ")})
        for (kernel, _), group in _by_kernel(verdicts)
    ]
    mute = {kernel for kernel, gradients in told if gradients and not any(gradients.values())}
    found += [(ExitCode.ROTTEN, text) for text in _rotten([row for row in kills if row.mutant != CANARY or row.kernel not in mute])]
    if not part:
        found += [(ExitCode.NOTHING, text) for text in _nothing(verdicts, forward_only=forward_only)]
    survivors = [row for row in kills if row.outcome is Outcome.SURVIVED and row.mutant not in {CANARY, NULL}]
    if survivors:
        names = ", ".join(f"{row.mutant} ({row.form}, {row.variant or row.kernel})" for row in survivors)
        found.append((ExitCode.SURVIVORS, f"{count(len(survivors), 'row')} of the kill table survived: {names}"))
    found += [(ExitCode.INCONCLUSIVE, text) for text in _inconclusive((*verdicts, *checks), kills, bands)]
    if missing:
        found.append((ExitCode.INCONCLUSIVE, f"{count(missing, 'planned item')} {'has' if missing == 1 else 'have'} no verdict"))
    found += [(ExitCode.INCONCLUSIVE, f"kernel {kernel} was asked for and cannot run here: {why}") for kernel, why in absent.items()]
    return ExitCode.worst(*(code for code, _ in found)), tuple(dict.fromkeys(text for _, text in found))


def _wrong(verdicts: Sequence[Verdict]) -> list[str]:
    return [text for (kernel, _), group in _by_kernel(verdicts) for text in _told(f"kernel {kernel} {fault(group)}", group, _BAD)]


def _violated(checks: Sequence[Verdict]) -> list[str]:
    return [
        text for (kernel, check), group in _by_kernel(checks) for text in _told(f"kernel {kernel} fails the check {check}", group, _BAD)
    ]


def _failed_ourselves(checks: Sequence[Verdict]) -> list[str]:
    ours = frozenset({Outcome.BUG})
    found = [
        text for (kernel, check), group in _by_kernel(checks) for text in _told(f"the check {check} of kernel {kernel} failed", group, ours)
    ]
    return [f"{text}. This is a bug in gradcheck, or in the step of the op, and says nothing of the kernel" for text in found]


def _starved(verdicts: Sequence[Verdict]) -> list[str]:
    short = frozenset({Outcome.MEMORY})
    found = [text for (kernel, _), group in _by_kernel(verdicts) for text in _told(f"kernel {kernel} {Outcome.MEMORY}", group, short)]
    return [f"{text}. Give it more by --memory, if it may have it" for text in found]


def _by_kernel(verdicts: Sequence[Verdict]) -> Iterable[tuple[tuple[str, str], list[Verdict]]]:
    """The verdicts of each kernel and check."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.item.kernel, verdict.item.check), []).append(verdict)
    return groups.items()


def _told(what: str, group: Sequence[Verdict], outcomes: frozenset[Outcome]) -> list[str]:
    """In how many cases it ended like this, and why in the first of them; nothing where there is none. What raised is said to have."""
    bad = [verdict for verdict in group if verdict.outcome in outcomes]
    if not bad:
        return []
    first = bad[0]
    raised = "it raised " if first.evidence is not None and first.evidence.status == "raised" else ""
    why = first.why.splitlines()[0] if first.why else first.ending
    return [f"{what} in {len(bad)} of {len(group)} cases; first: {raised}{why}"]


def _rotten(kills: Sequence[MutantVerdict]) -> list[str]:
    out = []
    for row in kills:
        where = f"{row.kernel} {row.variant}".strip()
        if row.mutant == CANARY and row.outcome is not Outcome.KILLED:
            out.append(f"the canary (a gradient of zeros) was not killed on {where}: nothing that passed there means anything")
        elif row.mutant == NULL and row.outcome is not Outcome.SURVIVED:
            out.append(f"the null mutant (an edit that changes nothing) did not survive on {where}: kills there mean nothing")
        elif row.outcome is Outcome.UNVIABLE:
            out.append(f"mutant {row.mutant} does not run on {where}: {row.why.splitlines()[0] if row.why else row.outcome}")
        elif row.outcome is Outcome.KILLED and row.why:
            out.append(f"mutant {row.mutant} on {where}: {row.why}")
    return out


def _nothing(verdicts: Sequence[Verdict], *, forward_only: bool) -> list[str]:
    evidence = [verdict.evidence for verdict in verdicts if verdict.evidence is not None]
    compared = [m for one in evidence for m in one.measurements if m.checked]
    out = [f"kernel {kernel}: {detail.splitlines()[0]}" for kernel, detail in _no_backward(evidence).items()]
    if not compared and not any(one.status in {"crashed", "memory", "raised", "fault", "timeout", "unviable"} for one in evidence):
        out.append("nothing was compared")
    out += [
        f"kernel {kernel}: no case of the plan says anything about {quantity}; choose other regimes or objectives"
        for (kernel, _), group in _by_kernel(verdicts)
        for quantity, told in _informative(group).items()
        if not told and (quantity.startswith("d ") or forward_only)
    ]
    return out


def _informative(group: Sequence[Verdict]) -> dict[str, bool]:
    """Whether any of these cases says anything about a quantity, by quantity."""
    told: dict[str, bool] = {}
    for m in (m for verdict in group if verdict.evidence is not None for m in verdict.evidence.measurements):
        told[m.quantity] = told.get(m.quantity, False) or bool(m.problem) or (m.informative and not m.zero)
    return told


def _no_backward(evidence: Sequence[Evidence]) -> dict[str, str]:
    return {one.item.kernel: one.detail for one in evidence if one.status == "no-backward"}


def has_room(row: MutantVerdict) -> bool:
    """Whether a kill, if the row is one, is far enough from noise; a diluted form need only be seen."""
    return row.outcome is not Outcome.KILLED or row.form != "full" or row.margin is None or row.margin >= ROOM


def _inconclusive(verdicts: Sequence[Verdict], kills: Sequence[MutantVerdict], bands: Sequence[Band]) -> list[str]:
    out = [f"kernel {v.item.kernel} timed out at {v.item.case}" for v in verdicts if v.outcome is Outcome.TIMEOUT]
    out += _starved(verdicts)
    nowhere = frozenset({Outcome.NO_DEVICE})
    out += [text for (kernel, _), group in _by_kernel(verdicts) for text in _told(f"kernel {kernel} did not run", group, nowhere)]
    out += [
        f"mutant {row.mutant} on {row.kernel} {row.variant}: {row.outcome}, which is no kill"
        for row in kills
        if row.outcome in {Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY}
    ]
    out += [
        f"mutant {row.mutant} on {row.kernel} {row.variant}: killed at {row.margin:.3g} times the tolerance of {row.quantity}; "
        f"{ROOM:g} times room is needed to tell it from noise"
        for row in kills
        if row.mutant not in {CANARY, NULL} and not has_room(row)
    ]
    for (kernel, dtype, quantity), band in unseparated(bands).items():
        out.append(
            f"{quantity} on {kernel} ({dtype}): no tolerance separates noise {band.noise:.3g} from the defect {band.weakest} at "
            f"{band.defect:.3g} rounding units; {ROOM:g} times room is needed"
        )
    return out
