"""The run as JUnit XML, which CI systems show: a suite per kernel for its cases, one for its checks, one for its mutants."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from gradcheck import MutantVerdict, Outcome, Run, Verdict, report

from ._facts import GOOD, kernels, replay
from ._failures import reason_of
from ._headline import badge, meaning, sentence
from ._kills import CONTROLS, holds
from ._text import command, count, line, number, safe

_WIDTH = 120
_ERRORS = (
    Outcome.BUG,
    Outcome.CRASHED,
    Outcome.MEMORY,
    Outcome.TIMEOUT,
    Outcome.STALE,
    Outcome.UNVIABLE,
)  # it did not come to a comparison
_SKIPPED = (Outcome.NO_DEVICE, Outcome.UNINFORMATIVE, Outcome.INCONCLUSIVE)
_LIVE = (Outcome.HARMLESS, Outcome.EQUIVALENT)


@report(suffix=".xml")
def junit(run: Run) -> str:
    """Clean cases, checks and mutants as test cases, and last the gate itself, so that the file fails exactly where the run does.

    A survivor is a failure; so is a canary that lives or a null mutant that dies. What did not come to a comparison is an error. What could tell
    nothing is skipped, and so is a kernel that was not run: a skip is no pass. Where a Metal kernel ran is the property `place` of a test case.
    """
    root = ET.Element("testsuites", name=f"gradcheck {line(run.op)}", time=f"{run.seconds:.3f}")
    for kernel in kernels(run):
        _suite(root, f"{line(kernel)}: cases", [_case(run, v) for v in run.verdicts if v.item.kernel == kernel])
        _suite(root, f"{line(kernel)}: checks", [_case(run, v) for v in run.checks if v.item.kernel == kernel])
        _suite(root, f"{line(kernel)}: mutants", [_mutant(run, row) for row in run.kills if row.kernel == kernel])
    _suite(root, "not run", [_absent(kernel, why) for kernel, why in run.not_run.items()])
    _suite(root, "gate", [_gate(run)])
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, name: str, cases: Sequence[ET.Element]) -> None:
    """A suite with its counts; nothing where it would be empty."""
    if not cases:
        return
    suite = ET.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
    for key, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    suite.extend(cases)


def _case(run: Run, verdict: Verdict) -> ET.Element:
    item = verdict.item
    name = f"{line(item.case)} check {line(item.check)}" if item.check else line(item.case)
    place = verdict.evidence.place if verdict.evidence else ""
    made = _element(run, item.kernel, name, verdict.evidence.seconds if verdict.evidence else 0.0, place)
    if verdict.outcome in GOOD:
        return made
    again = command([line(word) for word in replay(run, item.kernel, item.case, check=item.check)], _WIDTH)
    traceback = verdict.evidence.detail if verdict.evidence and verdict.evidence.status == "raised" else ""
    lines = [reason_of(verdict), f"replay: {again}", traceback, verdict.evidence.log if verdict.evidence else ""]
    _ended(made, verdict.outcome, verdict.ending, lines)
    return made


def _mutant(run: Run, row: MutantVerdict) -> ET.Element:
    name = " ".join(filter(None, (line(row.mutant), line(row.variant), line(row.form))))
    made = _element(run, row.kernel, name, 0.0, row.place)
    as_declared = row.outcome in _LIVE or (row.outcome is Outcome.KILLED and not row.why)
    if not (holds(row) if row.mutant in CONTROLS else as_declared):
        again = command([line(w) for w in replay(run, row.kernel, row.case, row.mutant)], _WIDTH) if row.case else ""
        nearest = f", at most {number(row.margin)} times the tolerance of {line(row.quantity)}" if row.margin is not None else ""
        seen = f"seen in {row.kills} of {count(row.cases, 'case')}{nearest}" if row.cases else ""
        _ended(made, row.outcome, row.outcome.value, [row.why, seen, f"replay: {again}" if again else "", row.diff])
    return made


def _absent(kernel: str, why: str) -> ET.Element:
    made = ET.Element("testcase", classname="not run", name=line(kernel), time="0")
    ET.SubElement(made, "skipped", message=line(why))
    return made


def _gate(run: Run) -> ET.Element:
    made = _element(run, "gate", f"exit {int(run.exit_code)}: {meaning(run)}", 0.0)
    if run.exit_code:
        failure = ET.SubElement(made, "failure", type=badge(run), message=sentence(run))
        failure.text = _text(run.reasons)
    return made


def _element(run: Run, kernel: str, name: str, seconds: float, place: str = "") -> ET.Element:
    made = ET.Element("testcase", classname=f"{line(run.op)}.{line(kernel)}", name=name, time=f"{seconds:.3f}")
    if place:
        ET.SubElement(ET.SubElement(made, "properties"), "property", name="place", value=line(place))
    return made


def _ended(made: ET.Element, outcome: Outcome, ending: str, lines: Sequence[str]) -> None:
    tag = "error" if outcome in _ERRORS else "skipped" if outcome in _SKIPPED else "failure"
    first = next((line(text) for text in lines if text), "")
    message = f"{line(ending)}: {first}" if first else line(ending)
    child = (
        ET.SubElement(made, tag, message=message[:500])
        if tag == "skipped"
        else ET.SubElement(made, tag, type=outcome.name, message=message[:500])
    )
    child.text = _text(lines)


def _text(lines: Sequence[str]) -> str:
    """Lines without what XML cannot hold."""
    return "\n".join(_sane(lines))


def _sane(lines: Sequence[str]) -> Iterator[str]:
    yield from (safe(text).strip("\n") for text in lines if text)
