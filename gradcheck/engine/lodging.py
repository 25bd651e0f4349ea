"""On a worker of a cluster: where the sources of a run live, and the processes that do its items."""

from __future__ import annotations

import atexit
import importlib.metadata
import platform
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as once
from pathlib import Path
from typing import TypeVar

import gradcheck
from gradcheck._errors import UsageError
from gradcheck._verdict import Evidence
from gradcheck.engine.cache import source_digest
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.parcels import FOLDERS, Parcel
from gradcheck.engine.prepare import Prepare
from gradcheck.process import Died, Done, Limits, Standing
from gradcheck.suite._roots import builtin_root

Item = TypeVar("Item")

Facts = Mapping[str, str]
"""What must be the same on both sides, by name."""


@once
def facts() -> Facts:
    """What this process has. Of the python and of the packages that a result depends on, the versions; of gradcheck, the text too."""
    suite = builtin_root().path
    ours = [Path(str(gradcheck.__file__)).parent, *(suite / name for name in FOLDERS if (suite / name).is_dir())]
    owners = {entry.dist.name for entry in importlib.metadata.entry_points(group="gradcheck.suites") if entry.dist}
    return {
        "gradcheck": f"{gradcheck.__version__} ({source_digest(ours)[:8]})",
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{package: _version(package) for package in ("numpy", "mlx", "numba", *sorted(owners - {"gradcheck"}))},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def different(theirs: Facts, mine: Facts, worker: str) -> str:
    """Why a worker may not take part, or nothing: an answer would depend on who gave it."""
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    if not names:
        return ""
    pairs = "; ".join(f"{name} {theirs.get(name, 'not installed')} there, {mine.get(name, 'not installed')} here" for name in names)
    return f"the dask worker {worker} differs from this machine: {pairs}. Install the same on both."


def do(
    house: str, expected: Facts, parcels: Sequence[Parcel], function: Callable[[Item], object], item: Item, limits: Limits
) -> Done | Died:
    """What becomes of `function(item)` in a worker process on this machine.

    Args:
        house: name of the run; what it has unpacked and started here is its own.
        expected: what this machine must have.
        parcels: the files that the item needs.
        function, item, limits: as for `process.run_all`.

    Raises:
        UsageError: this machine has something else.
    """
    if said := different(facts(), expected, platform.node()):
        raise UsageError(said)
    return _den(house).do(parcels, function, item, limits)


def leave(house: str) -> None:
    """Forget a run: its processes are ended, its files removed."""
    with _moving:
        den = _dens.pop(house, None)
    if den is not None:
        den.close()


@dataclass(slots=True)
class Den:
    """A folder in which files lie at the paths that they have on the machine they came from, and idle processes."""

    folder: Path
    _unpacked: set[str] = field(default_factory=set)
    _idle: list[tuple[Limits, Standing]] = field(default_factory=list)
    _all: list[Standing] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self, parcels: Sequence[Parcel], function: Callable[[Item], object], item: Item, limits: Limits) -> Done | Died:
        """Unpack what is new, and do the item. Several threads may ask at once; each has a process to itself."""
        with self._lock:
            for parcel in parcels:
                self._unpack(parcel)
            idle = next((pair for pair in self._idle if pair[0] == limits), None)
            if idle is None:
                worker = Standing(limits, self.folder / "logs")
                self._all.append(worker)
            else:
                self._idle.remove(idle)
                worker = idle[1]
        try:
            return self._home(worker.call(function, self._here(item)))
        finally:
            with self._lock:
                self._idle.append((limits, worker))

    def close(self) -> None:
        """End all processes, under whatever item, and remove the folder."""
        with self._lock:
            everyone = list(self._all)
        for worker in everyone:
            worker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _unpack(self, parcel: Parcel) -> None:
        if parcel.digest in self._unpacked:
            return
        for name, content in parcel.files:
            file = Path(self._path(name))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        self._unpacked.add(parcel.digest)

    def _path(self, there: str) -> str:
        """Where a file or folder of the other machine is on this one."""
        return str(self.folder / there.lstrip("/"))

    def _here(self, item: Item) -> Item:
        """The item with paths of this machine."""
        if not isinstance(item, Job | Prepare):
            return item
        source = Source(tuple(map(self._path, item.source.suites)), self._path(item.source.cwd), item.source.oracle)
        Path(source.cwd).mkdir(parents=True, exist_ok=True)
        if not isinstance(item, Job):
            return replace(item, source=source)
        target = item.kernel.target
        kernel = replace(item.kernel, target=self._path(target)) if Path(target).is_absolute() else item.kernel
        return replace(item, source=source, kernel=kernel, package=self._path(item.package) if item.package else "")

    def _home(self, outcome: Done | Died) -> Done | Died:
        """The outcome with paths of the other machine, as far as it has any."""
        if isinstance(outcome, Died):
            return replace(outcome, detail=self._there(outcome.detail), log=self._there(outcome.log))
        value = outcome.value
        if not isinstance(value, Evidence):
            return outcome
        notes = tuple(map(self._there, value.notes))
        return replace(outcome, value=replace(value, detail=self._there(value.detail), log=self._there(value.log), notes=notes))

    def _there(self, text: str) -> str:
        return text.replace(str(self.folder), "")


_dens: dict[str, Den] = {}  # of this process: dask hands a worker's state to its tasks in no other way
_moving = threading.Lock()


def _den(house: str) -> Den:
    with _moving:
        if house not in _dens:
            _dens[house] = Den(Path(tempfile.mkdtemp(prefix="gradcheck-")).resolve())
            atexit.register(leave, house)
        return _dens[house]
