"""What went wrong with clean kernels: the worst case of each gradient, and the items that did not end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradcheck import Case, Outcome, Run, Verdict

from ._facts import GOOD, Seen, kernels, over, replay, seen
from ._text import brief, command, count, line, number, safe, say, spark, value, words

_SHOWN, _LOG_LINES = 6, 8
_FAR = 0.01  # a case this much less wrong than the worst may be wrong by accident only
_SPREAD = ("all", "y")  # objectives that weigh every step
_TOLD = (*GOOD, Outcome.UNINFORMATIVE)  # the headline counts these, and there is nothing to replay


def failures(run: Run, width: int) -> Iterator[RenderableType]:
    """Per kernel one case of each gradient that is wrong, worst gradient first; then what crashed, hung or could not be judged."""
    for kernel in kernels(run):
        wrong: dict[str, list[Seen]] = {}
        for one in seen(run, kernel):
            if one.failed:
                wrong.setdefault(one.measurement.quantity, []).append(one)
        ranked = sorted(wrong.values(), key=lambda group: -max(s.excess for s in group))
        for group in ranked[:_SHOWN]:
            yield from _wrong(run, kernel, group, width)
        if len(ranked) > _SHOWN:
            yield say(
                ("\n… and ", "dim"), f"{len(ranked) - _SHOWN} more: ", words(line(g[0].measurement.quantity) for g in ranked[_SHOWN:])
            )
        explained = {s.verdict.item.id for group in wrong.values() for s in group}
        rest = [v for v in run.verdicts if v.item.kernel == kernel and v.outcome not in _TOLD and v.item.id not in explained]
        yield from _unmeasured(run, rest, width)


def _wrong(run: Run, kernel: str, group: Sequence[Seen], width: int) -> Iterator[RenderableType]:
    worst = telling(group)
    m, item = worst.measurement, worst.verdict.item
    cases = sum(v.item.kernel == kernel and v.evidence is not None for v in run.verdicts)
    yield say(
        "\n",
        ("FAILED ", "bold red"),
        (line(m.quantity), "bold"),
        f" of {line(kernel)} in {len(group)} of {count(cases, 'case')}; the most telling:",
    )
    yield _facts(
        [
            ("case", Text(line(item.case), overflow="fold")),
            *([("problem", say((line(m.problem), "red")))] if m.problem else []),
            *([("problem", say(("the truth is exactly zero here, the kernel's is not", "red")))] if m.zero == "zero-broken" else []),
            *(
                [("seen", Text(reason_of(worst.verdict), overflow="fold"))]
                if worst.verdict.evidence and worst.verdict.evidence.notes
                else []
            ),
            *([("element", _element(worst))] if m.worst else []),
            *([("step", _steps(worst, width))] if m.profile else []),
            *([("error", _errors(worst))] if any(ratio is not None for ratio in m.ratios.values()) and worst.bands else []),
            ("replay", Text(command([line(word) for word in replay(run, kernel, item.case)], width - 12), overflow="fold")),
        ]
    )


def telling(group: Sequence[Seen]) -> Seen:
    """Of the cases that are far off, the one with the smallest share of wrong steps: where a defect strikes shows best there.

    Not one whose cotangent is an impulse or lives at the end, if there is another: its gradient is confined by itself. Nor one of a single step
    or where the truth is zero: it says neither where in time the defect strikes nor by how much.
    """
    told = [one for one in group if _tells(one)] or list(group)
    most = max(one.excess for one in told)
    far = [one for one in told if not (one.excess < most * _FAR)]
    spread = [one for one in far if Case.parse(one.verdict.item.case).objective in _SPREAD] or far
    return min(
        spread, key=lambda one: (len(out_of_noise(one)) / len(one.measurement.profile) if one.measurement.profile else 1.0, -one.excess)
    )


def _tells(one: Seen) -> bool:
    steps = dict(Case.parse(one.verdict.item.case).dims).get("T", 2)
    return bool(one.measurement.problem) or (steps > 1 and bool(one.measurement.want))


def out_of_noise(one: Seen) -> list[int]:
    """The time steps that are out of the noise."""
    tolerance = next((band.tolerance for band in one.bands if band.metric == "slice"), 0.0)
    return [t for t, ratio in enumerate(one.measurement.profile) if over(ratio, tolerance) > 1]


def _element(one: Seen) -> Text:
    m = one.measurement
    return say((f"{line(m.quantity)}[{line(m.where)}]", "bold"), "  got ", (value(m.got), "red"), "  want ", (value(m.want), "green"))


def _steps(one: Seen, width: int) -> Text:
    """First step out of the noise, worst step, and the error over time."""
    m = one.measurement
    tolerance = next((band.tolerance for band in one.bands if band.metric == "slice"), 0.0)
    out = out_of_noise(one)
    first = f"first out of the noise at t = {out[0]}, " if out else "none out of the noise by itself, "
    reach = f"{len(out)} of {count(len(m.profile), 'step')}" if out else count(len(m.profile), "step")
    worst = f"worst at t = {m.worst_step}, " if m.worst_step is not None else ""
    return say(first, worst, f"{reach}\n") + spark(m.profile, tolerance, width - 14)


def _errors(one: Seen) -> Text:
    """Every metric against its tolerance, the one exceeded most first."""
    text = Text()
    ranked = sorted(one.bands, key=lambda band: -over(one.measurement.ratios.get(band.metric, 0.0), band.tolerance))
    for band in ranked:
        ratio = one.measurement.ratios.get(band.metric, 0.0)
        bad = over(ratio, band.tolerance) > 1
        text.append("   " if text else "")
        text.append(f"{band.metric} ", style="dim")
        text.append(number(ratio), style="bold red" if bad else "")
        text.append(f" {'>' if bad else '≤'} {number(band.tolerance)}")
    return text


def _unmeasured(run: Run, rest: Sequence[Verdict], width: int) -> Iterator[RenderableType]:
    """Crashes, time-outs and the like: one per outcome and reason, for a hundred cases of one crash say nothing more than one."""
    groups: dict[tuple[Outcome, str], list[Verdict]] = {}
    for verdict in rest:
        groups.setdefault((verdict.outcome, reason_of(verdict)), []).append(verdict)
    for (outcome, reason), group in list(groups.items())[:_SHOWN]:
        first = group[0]
        log = safe(first.evidence.log).strip("\n") if first.evidence else ""
        again = f" and {len(group) - 1} more" if len(group) > 1 else ""
        style = "bold red" if outcome in (Outcome.FAILED, Outcome.CRASHED) else "bold yellow"
        yield say("\n", (outcome.name, style), f" {line(first.item.kernel)} {line(first.ending)}")
        yield _facts(
            [
                ("case", Text(line(first.item.case) + again, overflow="fold")),
                *([("reason", Text(reason, overflow="fold"))] if reason else []),
                *([("log", Text("\n".join(log.split("\n")[-_LOG_LINES:]), style="dim", overflow="fold"))] if log else []),
                ("replay", Text(command([line(w) for w in replay(run, first.item.kernel, first.item.case)], width - 12), overflow="fold")),
            ]
        )
    if len(groups) > _SHOWN:
        yield say(("\n… and ", "dim"), f"{len(groups) - _SHOWN} more kinds of trouble")


def reason_of(verdict: Verdict) -> str:
    """Everything that is said of why a verdict is what it is, on one line; of a traceback its place alone."""
    evidence = verdict.evidence
    parts = (verdict.why, evidence.detail, *evidence.notes) if evidence else (verdict.why,)
    told: list[str] = []
    for part in map(brief, parts):
        told += [part] if part and not any(part in before for before in told) else []  # a verdict's why is often made of the notes
    return "; ".join(told)


def _facts(rows: Sequence[tuple[str, Text]]) -> Padding:
    """Label and text, aligned."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, text)
    return Padding(grid, (0, 0, 0, 2))
