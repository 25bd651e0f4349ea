"""The run folder `.gradcheck/runs/<id>/`: a plan, one line per finished item, and at the end a summary.

plan.json        written whole before work starts: all that is needed to resume
noise.json       what rounding explains, once the truths of all cases are there
verdicts.jsonl   append-only: one line per finished item, each with its own checksum
run.json         the summary; a run without one is unfinished
logs/            whatever the workers leave
lock, pid        held by, and naming, the process that works on the run
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import filelock
import msgspec

from gradcheck._errors import UsageError
from gradcheck._verdict import Evidence, WorkItem
from gradcheck.engine.files import StoreError, decode, trouble, write_json
from gradcheck.engine.folders import BusyError, find, hold, is_free, is_unfinished, new_folder, newest_first
from gradcheck.engine.journal import Journal, Record, open_journal, read_journal, scan_journal
from gradcheck.engine.ledger import Ledger

Noise = Mapping[str, Mapping[str, Mapping[str, float]]]
"""dtype and carried dtype (`f32/f32`) to quantity to metric to noise."""

FORMAT = 1
"""Of plan.json and verdicts.jsonl."""

_VERDICTS, _NOISE = "verdicts.jsonl", "noise.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run has to do.

    Args:
        op: name of the op.
        request: what was asked for: a JSON object that only the engine reads.
        items: every item, in the order in which they are done.
        environment: versions, device, platform.
        digest: of items and sources, see `digest_of`.
        whole: digest of the plan that this is a shard of; that of the plan itself where it is whole.
        sources: digest of everything that evidence depends on beside the case.
    """

    op: str
    request: Mapping[str, object] = field(hash=False)
    items: tuple[WorkItem, ...]
    environment: Mapping[str, str] = field(hash=False)
    digest: str
    format: int = FORMAT
    whole: str = ""
    sources: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as it lies on disk.

    Args:
        records: of finished items in the order of writing; the last one where an item has several.
        damage: a sentence for each line that cannot be used; its item counts as not done.
        summary: what `finish` was given; None while the run is unfinished.
        noise: what `keep_noise` was given; None where the run has not come so far.
    """

    id: str
    plan: Manifest
    records: tuple[Record, ...]
    damage: tuple[str, ...]
    summary: Mapping[str, object] | None = field(hash=False)
    noise: Noise | None = field(default=None, hash=False)

    @property
    def to_do(self) -> tuple[WorkItem, ...]:
        """The items of the plan that have no record."""
        done = {record.evidence.item for record in self.records}
        return tuple(item for item in self.plan.items if item not in done)


@dataclass(slots=True)
class RunFolder:
    """A run that this process works on: it holds the lock until `close`, or the end of a `with` block."""

    path: Path
    plan: Manifest
    _lock: filelock.BaseFileLock
    _journal: Journal

    @property
    def id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def logs(self) -> Path:
        """A folder for whatever the workers leave."""
        return self.path / "logs"

    def append(self, evidence: Evidence, outcome: str) -> int:
        """Write one finished item; the place where it lies. Once this returns, a crash of the process cannot lose it.

        Raises:
            StoreError: it could not be written. All before it is kept, and the run can be resumed.
        """
        with trouble(self._verdicts, f"the result of {evidence.item.id!r} is not saved, all before it are; {self._next}"):
            return self._journal.append(Record(str(outcome), evidence))

    def ledger(self) -> tuple[Ledger, tuple[str, ...]]:
        """What is done so far, and a sentence for each line that cannot be used.

        Raises:
            StoreError: it cannot be read.
        """
        found, damage = Ledger(self.plan.items, self._read), []
        with trouble(self._verdicts, f"make it readable; {self._next}"):
            for place, item in scan_journal(self._verdicts):
                if isinstance(item, str):
                    damage.append(item)
                else:
                    found.note(item, place)
        return found, tuple(damage)

    def _read(self, place: int) -> Evidence:
        try:
            return self._journal.read(place)
        except OSError as error:
            raise StoreError(f"cannot use {self._verdicts}: {error.strerror or error}. So make it readable; {self._next}.") from error

    def keep_noise(self, noise: Noise) -> None:
        """Write what rounding explains: who reads the run elsewhere then needs no truths to judge it.

        Raises:
            StoreError: it could not be written.
        """
        with trouble(self.path / _NOISE, f"make room or make it writable; {self._next}"):
            write_json(self.path / _NOISE, noise)

    def finish(self, summary: Mapping[str, object]) -> None:
        """Write the summary, which says that nothing is left to do. An interrupted run has none, so that it can be resumed.

        Raises:
            StoreError: it could not be written. The verdicts are kept.
        """
        with trouble(self.path / "run.json", f"the verdicts are saved; {self._next}"):
            self._journal.sync()
            write_json(self.path / "run.json", summary)

    def discard(self) -> None:
        """Let go of the run and take its folder away, where no result was written: a run that was refused is none to go on with."""
        self.close()
        if not self._verdicts.exists() or not self._verdicts.stat().st_size:
            shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Force what was written to disk and let go of the run. A second time does nothing."""
        try:
            with trouble(self._verdicts, f"the last results may not have reached the disk; {self._next}"):
                self._journal.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _next(self) -> str:
        return f"make room or make it writable, then go on with --resume {self.id}"

    @property
    def _verdicts(self) -> Path:
        return self.path / _VERDICTS


def digest_of(items: Iterable[WorkItem], sources: str) -> str:
    """Digest of a plan: the same for two runs that would do the same items on the same `sources` (itself a digest)."""
    return hashlib.sha256(msgspec.json.encode([sources, list(items)])).hexdigest()


def create(root: Path, plan: Manifest) -> RunFolder:
    """Begin a run in the folder `root` (`.gradcheck`), which is made if need be and hidden from git.

    Raises:
        StoreError: the folder cannot be written.
    """
    with trouble(root, "nothing was run; make room or make it writable"):
        path = new_folder(root, plan.op)
        lock = hold(path)
        try:
            write_json(path / "plan.json", plan)
            return RunFolder(path, plan, lock, open_journal(path / _VERDICTS))
        except BaseException:
            lock.release()
            raise


def open_existing(root: Path, run_id: str | None = None) -> RunFolder:
    """Go on with a run; without an id, with the newest unfinished one that no process works on. A torn last line is mended.

    Raises:
        UsageError: no such run, nothing to resume, or another process works on it.
        StoreError: its plan cannot be read, or its folder not be written.
    """
    if run_id is not None:
        return _reopen(find(root, run_id))
    busy: UsageError | None = None
    for path in filter(is_unfinished, newest_first(root)):
        try:
            return _reopen(path)
        except BusyError as error:
            busy = busy or error
    raise busy or UsageError(f"no unfinished run in {root / 'runs'}, so there is nothing to resume: leave out --resume to start one")


def read(root: Path, run_id: str) -> Stored:
    """A run as it lies on disk, even while a process works on it. A damaged line costs only its own item.

    Raises:
        UsageError: no such run.
        StoreError: its plan or summary cannot be read.
    """
    return read_folder(find(root, run_id))


def read_folder(path: Path) -> Stored:
    """As `read`, of a run folder wherever it lies.

    Raises:
        StoreError: its plan or summary cannot be read.
    """
    plan = _manifest(path)
    with trouble(path / _VERDICTS, "make it readable"):
        records, damage = read_journal(path / _VERDICTS)
    return Stored(path.name, plan, records, damage, summary_of(path), noise_of(path))


def summary_of(path: Path) -> dict[str, object] | None:
    """What `finish` was given in this run folder; None where the run is unfinished.

    Raises:
        StoreError: it cannot be read.
    """
    return decode(path / "run.json", dict[str, object]) if (path / "run.json").exists() else None


def noise_of(path: Path) -> Noise | None:
    """What `keep_noise` was given in this run folder; None where the run has not come so far.

    Raises:
        StoreError: it cannot be read.
    """
    return decode(path / _NOISE, dict[str, dict[str, dict[str, float]]]) if (path / _NOISE).exists() else None


def unfinished(root: Path, digest: str) -> list[str]:
    """Ids of the unfinished runs of this plan that no process works on, newest first."""
    return [path.name for path in filter(is_unfinished, newest_first(root)) if _head_digest(path) == digest and is_free(path)]


@dataclass(frozen=True, slots=True)
class _Head:
    """The part of plan.json that tells whether and for what it is of use; the rest is skipped unread."""

    digest: str
    format: int


def _reopen(path: Path) -> RunFolder:
    plan = _manifest(path)
    with trouble(path, "make room or make it writable, then resume again"):
        lock = hold(path)
        try:
            return RunFolder(path, plan, lock, open_journal(path / _VERDICTS))
        except BaseException:
            lock.release()
            raise


def _head_digest(path: Path) -> str:
    """Digest of the plan, or nothing where it cannot be read."""
    try:
        return decode(path / "plan.json", _Head).digest
    except StoreError:
        return ""


def _manifest(path: Path) -> Manifest:
    """The plan of a run; one of another format is refused, never guessed at."""
    plan = path / "plan.json"
    if (found := decode(plan, _Head).format) != FORMAT:
        raise StoreError(f"{plan} has format {found}, this gradcheck reads {FORMAT}: start a new run, or use the version that wrote it")
    return decode(plan, Manifest)
