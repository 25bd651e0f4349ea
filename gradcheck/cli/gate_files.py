"""The gate for machines: one SARIF log, one JUnit file and one JSON value of all its runs, and GitHub's annotations."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from gradcheck.cli.gate_text import MEANING, headline
from gradcheck.engine.gate import Gated

PER_STEP = 10
"""Annotations that GitHub shows of one step; further ones are lost."""

FORMAT = 1
_KERNEL = ("wrong-gradient", "did-not-run", "broken-check")
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True, slots=True)
class Note:
    """What GitHub shows at a line."""

    level: str
    file: str
    first: int
    last: int
    title: str
    text: str

    def __str__(self) -> str:
        place = f"file={_property(self.file)},line={self.first},endLine={self.last}," if self.file else ""
        return f"::{self.level} {place}title={_property(self.title)}::{_data(self.text)}"


def sarif(logs: Sequence[str]) -> str:
    """One log with the runs of all."""
    runs = [run for log in logs for run in json.loads(log)["runs"]]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=1, allow_nan=False) + "\n"


def junit(texts: Sequence[str], found: Gated) -> str:
    """One file with the suites of all; the gate itself comes last, so that the file fails where the gate does."""
    root = ET.Element("testsuites", name="gradcheck gate")
    for text in texts:
        root.extend(ET.fromstring(text))  # noqa: S314 - our own report's text
    suite = ET.SubElement(root, "testsuite", name="gate", tests="1", failures="0", errors="0", skipped="0", time="0")
    case = ET.SubElement(suite, "testcase", classname="gradcheck", name=f"gate: {MEANING[found.exit_code]}", time="0")
    if found.exit_code:
        failure = ET.SubElement(case, "failure", message=_safe(headline(found)), type=found.exit_code.name)
        failure.text = _safe("\n".join([*found.reasons, *(reason for run in found.runs for reason in run.reasons)]))
        suite.set("failures", "1")
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(each.get(key, "0")) for each in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def plain(found: Gated, runs: Sequence[str]) -> dict[str, Any]:
    """The gate as a JSON value; `runs` are those of the report `json`."""
    return {
        "format": FORMAT,
        "exit_code": int(found.exit_code),
        "verdict": headline(found),
        "reasons": list(found.reasons),
        "compared": found.compared,
        "touched": {op: list(why) for op, why in found.touched.ops.items()},
        "other_files": list(found.touched.other),
        "stale": [
            {"op": op, **asdict(each), "file": _relative(each.file.as_posix(), found)}
            for op, group in found.stale.items()
            for each in group
        ],
        "notes": list(found.notes),
        "terms": asdict(found.terms),
        "runs": [json.loads(run) for run in runs],
    }


def marks(found: Gated, logs: Sequence[str]) -> list[str]:
    """Lines for GitHub: at most as many as it shows, the worst first, the last of them saying how many there are besides."""
    placed = list(dict.fromkeys([*_results(found, logs), *_stale(found)]))
    notes = [*placed, *_reasons(found, unplaced=not placed)]
    notes.sort(key=lambda note: note.level != "error")
    if len(notes) > PER_STEP:
        left = len(notes) - PER_STEP + 1
        notes = [*notes[: PER_STEP - 1], Note("error", "", 0, 0, "gradcheck", f"and {left} more; the summary of this step has them all")]
    return [str(note) for note in notes]


def _results(found: Gated, logs: Sequence[str]) -> Iterator[Note]:
    """The results of SARIF logs. What is wrong with a kernel that the change touches stands at the first changed lines of the kernel."""
    for log in logs:
        for run in json.loads(log)["runs"]:
            op = str(run["automationDetails"]["id"]).split("/")[1]
            for result in run["results"]:
                if result.get("suppressions"):
                    continue
                place = result["locations"][0]["physicalLocation"]
                file, line = unquote(place["artifactLocation"]["uri"]), int(place["region"]["startLine"])
                first = last = line
                if result["ruleId"] in _KERNEL:
                    file, first, last = _changed(found, op, file) or (file, line, line)
                yield Note(result["level"], file, first, last, f"gradcheck {op}: {result['ruleId']}", result["message"]["text"])


def _changed(found: Gated, op: str, file: str) -> tuple[str, int, int] | None:
    """The first changed lines of this file, else of another one of the op's kernels."""
    for path in dict.fromkeys([file, *found.touched.sources.get(op, ())]):
        if found.files.get(path):
            hunk = found.files[path][0]
            return path, hunk.first, hunk.last
    return None


def _stale(found: Gated) -> Iterator[Note]:
    for op, group in found.stale.items():
        for each in group:
            file = _relative(each.file.as_posix(), found)
            yield Note("error", file, each.line, each.line, f"gradcheck {op}: stale mutant {each.mutant}", f"{each}\n{each.diff}")


def _reasons(found: Gated, *, unplaced: bool) -> Iterator[Note]:
    """Reasons that belong to no line; those of runs where nothing else says why they fail."""
    level = "error" if found.exit_code else "notice"
    yield from (Note(level, "", 0, 0, "gradcheck gate", reason) for reason in found.reasons)
    if unplaced:
        yield from (Note("error", "", 0, 0, f"gradcheck {run.op}", reason) for run in found.runs if run.exit_code for reason in run.reasons)


def _relative(path: str, found: Gated) -> str:
    return path.removeprefix(f"{found.root.resolve().as_posix()}/")


def _data(text: str) -> str:
    """As GitHub's workflow commands want it: a line that begins a command of its own must not."""
    return _visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _safe(text: str) -> str:
    """Characters that XML can hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
