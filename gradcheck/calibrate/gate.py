"""The gate: from judged evidence to one exit code and the sentences that explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradcheck._verdict import CANARY, NULL, Band, Evidence, ExitCode, MutantVerdict, Outcome, Verdict
from gradcheck.calibrate.bands import ROOM, unseparated


def gate(
    verdicts: Sequence[Verdict],
    kills: Sequence[MutantVerdict],
    bands: Sequence[Band],
    *,
    missing: int,
    absent: Mapping[str, str],
    rotten: Sequence[str],
    forward_only: bool,
    checks: Sequence[Verdict] = (),
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
    """
    found: list[tuple[ExitCode, str]] = []
    found += [(ExitCode.WRONG, text) for text in (*_wrong(verdicts), *_violated(checks))]
    found += [(ExitCode.ROTTEN, text) for text in rotten]
    found += [(ExitCode.ROTTEN, text) for text in _rotten(kills)]
    found += [(ExitCode.NOTHING, text) for text in _nothing(verdicts, forward_only=forward_only)]
    survivors = [row for row in kills if row.outcome is Outcome.SURVIVED and row.mutant not in {CANARY, NULL}]
    if survivors:
        names = ", ".join(f"{row.mutant} ({row.form}, {row.variant or row.kernel})" for row in survivors)
        found.append((ExitCode.SURVIVORS, f"{len(survivors)} rows of the kill table survived: {names}"))
    found += [(ExitCode.INCONCLUSIVE, text) for text in _inconclusive((*verdicts, *checks), kills, bands)]
    if missing:
        found.append((ExitCode.INCONCLUSIVE, f"{missing} planned items have no verdict"))
    found += [(ExitCode.INCONCLUSIVE, f"kernel {kernel} was asked for and cannot run here: {why}") for kernel, why in absent.items()]
    return ExitCode.worst(*(code for code, _ in found)), tuple(dict.fromkeys(text for _, text in found))


def _wrong(verdicts: Sequence[Verdict]) -> list[str]:
    by_kernel: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_kernel.setdefault(verdict.item.kernel, []).append(verdict)
    out = []
    for kernel, group in by_kernel.items():
        bad = [verdict for verdict in group if verdict.outcome in {Outcome.FAILED, Outcome.CRASHED}]
        if bad:
            first = bad[0].why.splitlines()[0] if bad[0].why else str(bad[0].outcome)
            out.append(f"kernel {kernel} is wrong in {len(bad)} of {len(group)} cases; first: {first}")
    return out


def _violated(checks: Sequence[Verdict]) -> list[str]:
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in checks:
        groups.setdefault((verdict.item.kernel, verdict.item.check), []).append(verdict)
    out = []
    for (kernel, check), group in groups.items():
        bad = [verdict for verdict in group if verdict.outcome in {Outcome.FAILED, Outcome.CRASHED}]
        if bad:
            first = bad[0].why.splitlines()[0] if bad[0].why else str(bad[0].outcome)
            out.append(f"kernel {kernel} fails the check {check} in {len(bad)} of {len(group)} cases; first: {first}")
    return out


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
    if not compared and not any(one.status in {"crashed", "memory", "raised", "timeout", "unviable"} for one in evidence):
        out.append("nothing was compared")
    informative: dict[tuple[str, str], bool] = {}
    for one in evidence:
        for m in one.measurements:
            key = one.item.kernel, m.quantity
            informative[key] = informative.get(key, False) or bool(m.problem) or (m.informative and not m.zero)
    for (kernel, quantity), seen in informative.items():
        if not seen and (quantity.startswith("d ") or forward_only):
            out.append(f"kernel {kernel}: no case of the plan says anything about {quantity}; choose other regimes or objectives")
    return out


def _no_backward(evidence: Sequence[Evidence]) -> dict[str, str]:
    return {one.item.kernel: one.detail for one in evidence if one.status == "no-backward"}


def _inconclusive(verdicts: Sequence[Verdict], kills: Sequence[MutantVerdict], bands: Sequence[Band]) -> list[str]:
    out = [f"kernel {v.item.kernel} timed out at {v.item.case}" for v in verdicts if v.outcome is Outcome.TIMEOUT]
    out += [
        f"mutant {row.mutant} on {row.kernel} {row.variant}: {row.outcome}, which is no kill"
        for row in kills
        if row.outcome in {Outcome.TIMEOUT, Outcome.CRASHED}
    ]
    out += [
        f"mutant {row.mutant} on {row.kernel} {row.variant}: killed at {row.margin:.3g} times the tolerance of {row.quantity}; "
        f"{ROOM:g} times room is needed to tell it from noise"
        for row in kills
        if row.outcome is Outcome.KILLED and row.form == "full" and row.mutant not in {CANARY, NULL}
        if row.margin is not None and not (row.margin >= ROOM)
    ]
    for (kernel, dtype, quantity), band in unseparated(bands).items():
        out.append(
            f"{quantity} on {kernel} ({dtype}): no tolerance separates noise {band.noise:.3g} from the defect {band.weakest} at "
            f"{band.defect:.3g} rounding units; {ROOM:g} times room is needed"
        )
    return out
