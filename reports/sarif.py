"""SARIF 2.1.0, for code scanning: each wrong gradient, broken check and surviving mutant at its line of the kernel's source."""

from __future__ import annotations

import hashlib
import json as _json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from gradcheck import MutantVerdict, Outcome, Run, report

from ._facts import replay
from ._headline import sentence
from ._kills import CONTROLS, holds, mutants, unexpected, whereabouts
from ._text import count, line
from ._troubles import troubles

Place = tuple[str, str, int]
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_RULES = {
    "wrong-gradient": ("A kernel's output or gradient differs from the truth by more than noise", "error"),
    "did-not-run": ("A kernel crashed, hung or raised instead of giving a result", "error"),
    "broken-check": ("A kernel breaks a property that must hold without any tolerance", "error"),
    "control": ("The canary lives or the null mutant dies: no result of this kernel can be trusted", "error"),
    "survivor": ("A known defect, planted here, was not noticed by the check", "warning"),
    "mutant-not-run": ("A planted defect came to no comparison, or ended otherwise than declared", "warning"),
}
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE)
_ACCEPTED = (Outcome.HARMLESS, Outcome.EQUIVALENT)


@report(suffix=".sarif")
def sarif(run: Run, *, places: Mapping[str, Place] | None = None) -> str:
    """`run` as one SARIF log.

    Args:
        run: the run.
        places: kernel name to (folder that its mutants' files are relative to, its file in there, line of its definition). Without it the files
            are named as the mutants name them, and kernels as their targets do.
    """
    where = places or {}
    results = [*_wrong(run, where), *_controls(run, where), *_mutants(run, where)]
    driver = {
        "name": "gradcheck",
        "version": run.environment.get("gradcheck", "unknown"),
        "rules": [
            {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
            for rule, (text, level) in _RULES.items()
        ],
    }
    done = run.exit_code not in (2, 70, 130) and run.done >= run.planned
    invocation = {"executionSuccessful": done, "exitCode": int(run.exit_code), "commandLine": line(run.command)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "automationDetails": {"id": f"gradcheck/{line(run.op)}/"},
                "invocations": [invocation],
                "columnKind": "unicodeCodePoints",
                "properties": {"verdict": sentence(run)},
                "results": results,
            }
        ],
    }
    return _json.dumps(log, indent=1, allow_nan=False) + "\n"


def _wrong(run: Run, places: Mapping[str, Place]) -> Iterator[dict[str, object]]:
    """One result for each thing that is wrong with a kernel; of several reasons for one outcome, the first."""
    told = set()
    for trouble in troubles(run):
        identity = (run.op, trouble.kernel, trouble.name)
        if (trouble.kind, *identity) in told or trouble.outcome in (Outcome.NO_DEVICE, Outcome.BUG):
            continue
        told.add((trouble.kind, *identity))
        rule, what = {
            "gradient": ("wrong-gradient", f"{line(trouble.name)} of {line(trouble.kernel)} is wrong"),
            "end": ("did-not-run", f"{line(trouble.kernel)} {trouble.ending}"),
            "check": ("broken-check", f"{line(trouble.kernel)} fails the check {line(trouble.name)}"),
        }[trouble.kind]
        words = [f"{what} in {count(trouble.cases, 'case')}: {trouble.text}", _again(trouble.replay)]
        facts = {"case": line(trouble.case), "element": line(trouble.where), "step": trouble.step, "place": line(trouble.place)}
        made = _result(rule, words, _at_kernel(trouble.kernel, places), identity)
        yield {**made, "properties": {name: fact for name, fact in facts.items() if fact not in (None, "")}}


def _controls(run: Run, places: Mapping[str, Place]) -> Iterator[dict[str, object]]:
    for row in run.kills:
        if row.mutant in CONTROLS and not holds(row):
            words = [f"the {row.mutant} of {line(row.kernel)} {line(row.variant)}: {row.outcome.value}"]
            yield _result("control", words, _at_kernel(row.kernel, places), (run.op, row.kernel, row.mutant, row.variant))


def _mutants(run: Run, places: Mapping[str, Place]) -> Iterator[dict[str, object]]:
    """Mutants that did not end as declared; then those that are declared to survive, as suppressed results."""
    for rows in unexpected(run):
        first = rows[0]
        rule = "survivor" if first.outcome is Outcome.SURVIVED else "mutant-not-run"
        why = next((line(row.why) for row in rows if row.why), "")
        text = f"{line(first.mutant)} on {line(first.kernel)}, {whereabouts(rows)}: {first.outcome.value}{f'. {why}' if why else ''}"
        case = next((row.case for row in rows if row.case), "")
        words = [text, *([_again(replay(run, first.kernel, case, first.mutant))] if case else [])]
        yield _result(rule, words, _at_edit(rows, places), (run.op, first.kernel, first.mutant))
    accepted: dict[tuple[str, str], list[MutantVerdict]] = {}
    for row in mutants(run):
        if row.outcome in _ACCEPTED:
            accepted.setdefault((row.kernel, row.mutant), []).append(row)
    for (kernel, mutant), rows in accepted.items():
        text = f"{line(mutant)} on {line(kernel)}, {whereabouts(rows)}: {rows[0].outcome.value}"
        made = _result("survivor", [text], _at_edit(rows, places), (run.op, kernel, mutant))
        yield {**made, "suppressions": [{"kind": "inSource", "status": "accepted", "justification": line(rows[0].why)}]}


def _result(rule: str, words: Sequence[str], location: tuple[str, int], identity: Sequence[str]) -> dict[str, object]:
    """A result whose fingerprint says what is wrong and not on which line, so that it is the same alert when the file moves."""
    uri, start = location
    mark = hashlib.sha256("\0".join([rule, *identity]).encode("utf-8", "replace")).hexdigest()
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][1],
        "message": {"text": "\n".join(words)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": start}}}],
        "partialFingerprints": {"gradcheck/v1": mark, "primaryLocationLineHash": f"{mark[:16]}:1"},
    }


def _at_kernel(kernel: str, places: Mapping[str, Place]) -> tuple[str, int]:
    if kernel in places:
        folder, file, start = places[kernel]
        return _uri(f"{folder}/{file}"), start
    return _uri(kernel.rpartition(":")[0] or kernel), 1


def _at_edit(rows: Sequence[MutantVerdict], places: Mapping[str, Place]) -> tuple[str, int]:
    """The first line that the mutant changes."""
    kernel, diff = rows[0].kernel, next((row.diff for row in rows if row.diff), "")
    name, hunk = re.search(r"^--- a/(.+)$", diff, re.MULTILINE), _HUNK.search(diff)
    if not name or not hunk:
        return _at_kernel(kernel, places)
    body = diff[hunk.end() :].split("\n")[1:]
    same = next((k for k, text in enumerate(body) if not text.startswith(" ")), 0)
    folder = f"{places[kernel][0]}/" if kernel in places else ""
    return _uri(folder + name[1].strip()), int(hunk[1]) + same


def _uri(path: str) -> str:
    """A path as a URI reference: relative to the root of the repository, or absolute."""
    plain = quote(line(path).removeprefix("./").replace("\\", "/"), safe="/")
    return f"file://{plain}" if plain.startswith("/") else plain or "unknown"


def _again(words: Sequence[str]) -> str:
    return f"replay: {shlex.join(line(word) for word in words)}"
