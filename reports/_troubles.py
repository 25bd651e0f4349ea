"""What is wrong with clean kernels, one item each: a wrong gradient, a kind of trouble, a broken check. Reports put it into their own words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gradcheck import Outcome, Run, Verdict

from ._facts import GOOD, Seen, kernels, replay, seen
from ._failures import out_of_noise, reason_of, telling
from ._text import count, line, number, value

_FINE = (*GOOD, Outcome.UNINFORMATIVE)
_LONG = 1000  # characters of a stranger's error text that a report other than the terminal's shows


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong.

    Args:
        kind: a `gradient` (or output) off the truth, a case that came to no good `end`, a `check` that does not hold.
        kernel: the kernel.
        name: of the quantity, the outcome or the check.
        outcome: how the cases ended; `ending` says it in words that follow the kernel's name.
        cases: how many.
        text: what was seen, in words, on one line.
        replay: the words of the command that shows it again.
        case: the case that is told of.
        where, step: the worst element of it in words, and the time step of the worst slice, where there is one.
        place: where its Metal kernels ran, as in `Evidence`.
    """

    kind: Literal["gradient", "end", "check"]
    kernel: str
    name: str
    outcome: Outcome
    ending: str
    cases: int
    text: str
    replay: tuple[str, ...]
    case: str
    where: str = ""
    step: int | None = None
    place: str = ""


def troubles(run: Run) -> Iterator[Trouble]:
    """All of a run: kernel by kernel, its wrong quantities first and the worst of them before the others."""
    for kernel in kernels(run):
        wrong = _wrong(run, kernel)
        told = {one.verdict.item.id for group in wrong for one in group}
        yield from (_gradient(run, kernel, group) for group in wrong)
        ends: dict[tuple[Outcome, str], list[Verdict]] = {}
        for verdict in run.verdicts:
            if verdict.item.kernel == kernel and verdict.outcome not in _FINE and verdict.item.id not in told:
                ends.setdefault((verdict.outcome, reason_of(verdict)), []).append(verdict)
        yield from (_end(run, outcome, why, group) for (outcome, why), group in ends.items())
        yield from _checks(run, kernel)


def _wrong(run: Run, kernel: str) -> list[list[Seen]]:
    groups: dict[str, list[Seen]] = {}
    for one in seen(run, kernel):
        if one.failed:
            groups.setdefault(one.measurement.quantity, []).append(one)
    return sorted(groups.values(), key=lambda group: -max(one.excess for one in group))


def _gradient(run: Run, kernel: str, group: list[Seen]) -> Trouble:
    worst = telling(group)
    m, out = worst.measurement, out_of_noise(worst)
    much = line(m.problem) or (
        "the truth is exactly zero here" if m.zero == "zero-broken" else f"{number(worst.excess)} times its tolerance"
    )
    parts = [much]
    if m.worst:
        parts.append(f"{line(m.quantity)}[{line(m.where)}] is {value(m.got)}, should be {value(m.want)}")
    if m.worst_step is not None:
        parts.append(f"worst step t = {m.worst_step}")
    if out:
        parts.append(f"leaves the noise at t = {out[0]}, {len(out)} of {count(len(m.profile), 'step')}")
    again = tuple(replay(run, kernel, worst.verdict.item.case))
    told, item, ending = "; ".join(parts), worst.verdict.item, worst.verdict.ending
    return Trouble(
        "gradient",
        kernel,
        m.quantity,
        Outcome.FAILED,
        ending,
        len(group),
        told,
        again,
        item.case,
        m.where,
        m.worst_step,
        _place(worst.verdict),
    )


def _end(run: Run, outcome: Outcome, why: str, group: list[Verdict]) -> Trouble:
    item, ending = group[0].item, line(group[0].ending)
    again = tuple(replay(run, item.kernel, item.case))
    text, place = why[:_LONG] or ending, _place(group[0])
    return Trouble("end", item.kernel, outcome.name, outcome, ending, len(group), text, again, item.case, place=place)


def _checks(run: Run, kernel: str) -> Iterator[Trouble]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in run.checks:
        if verdict.item.kernel == kernel and verdict.outcome not in _FINE:
            groups.setdefault(verdict.item.check, []).append(verdict)
    for check, group in groups.items():
        item = group[0].item
        again = tuple(replay(run, kernel, item.case, check=check))
        text, place = reason_of(group[0])[:_LONG], _place(group[0])
        yield Trouble("check", kernel, check, group[0].outcome, group[0].ending, len(group), text, again, item.case, place=place)


def _place(verdict: Verdict) -> str:
    return verdict.evidence.place if verdict.evidence else ""


def tallies(run: Run, kernel: str) -> list[tuple[str, int, int]]:
    """(check, cases in which it holds, cases that could tell) of each check of a kernel."""
    groups: dict[str, list[Outcome]] = {}
    for verdict in run.checks:
        if verdict.item.kernel == kernel:
            groups.setdefault(verdict.item.check, []).append(verdict.outcome)
    told = {check: [outcome for outcome in outcomes if outcome is not Outcome.UNINFORMATIVE] for check, outcomes in groups.items()}
    return [(check, sum(outcome in GOOD for outcome in outcomes), len(outcomes)) for check, outcomes in told.items()]
