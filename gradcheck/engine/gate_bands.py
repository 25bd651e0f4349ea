"""By which bands a change is judged: those of the base, whatever the change says of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode
from gradcheck.calibrate.published import Published
from gradcheck.engine.gate_base import Base, text_at
from gradcheck.engine.gate_change import Change
from gradcheck.engine.gate_judge import Finding, loosened
from gradcheck.engine.published import file_of, parse_published
from gradcheck.engine.touched import Touched
from gradcheck.engine.truth import sources_of
from gradcheck.suite import Suite

_FRESH = "noise is measured in this run"


@dataclass(frozen=True, slots=True)
class Bands:
    """What a run is told of bands: the file to judge by, as `Request.bands` has it, and what a reader must know."""

    file: str
    notes: tuple[str, ...] = ()


def bands_for(op: str, suite: Suite, change: Change, found: Touched, folder: Path) -> tuple[Published | None, Bands]:
    """(bands to compare separations with, those to judge by): the base's, whatever the change says of its own."""
    path = file_of(suite, op)
    if change.base and path.resolve().is_relative_to(change.root.resolve()):
        return _of_base(op, suite, change.base, path, folder)
    if op in found.bands:
        return None, Bands("none", (f"the diff changes the published bands of {op}, so they are not used: {_FRESH}",))
    if change.whole or not path.is_file():
        return None, Bands("")
    if op in found.mutants and change.base is None:
        return None, Bands(
            "", (f"a diff does not say which mutants of {op} are new, so separations were not compared with the published ones",)
        )
    return parse_published(path.read_bytes(), path), Bands("")


def _of_base(op: str, suite: Suite, base: Base, path: Path, folder: Path) -> tuple[Published | None, Bands]:
    content = text_at(base, path)
    if content is None:
        return None, Bands("none", (f"the base publishes no bands of {op}: {_FRESH}",))
    try:
        bands = parse_published(content, path)
    except UsageError as error:  # a change that mends them must not be stopped by them
        return None, Bands("none", (f"the base's bands of {op} cannot be read, so {_FRESH}: {error}",))
    if bands.sources != sources_of(suite.ops[op]):
        return bands, Bands("none", (f"the base's bands of {op} are of another reference or gradcheck than this: {_FRESH}",))
    copy = folder.absolute() / "gate" / f"{op}-{base.commit[:12]}.json"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(content)
    return bands, Bands(str(copy), (f"judged by the bands of {op} at the base {base}",))


def own_bands(op: str, suite: Suite, change: Change, factor: float) -> list[Finding]:
    """What is wrong with bands that the change itself publishes: the next change would be judged by them."""
    path = file_of(suite, op)
    content = text_at(change.base, path) if change.base else None
    if content is None:
        return []
    if not path.is_file():
        return [(ExitCode.SURVIVORS, f"published bands: those of {op} are taken out")]
    after = parse_published(path.read_bytes(), path)
    try:
        before = parse_published(content, path)
    except UsageError:
        before = after
    return list(loosened(before, after, factor))
