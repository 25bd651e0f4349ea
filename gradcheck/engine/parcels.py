"""What an item needs of the files of this machine, as parcels that travel by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from gradcheck._errors import UsageError
from gradcheck.engine.execute import Job
from gradcheck.engine.mutate import files_of
from gradcheck.engine.prepare import Prepare
from gradcheck.engine.target import source_files
from gradcheck.suite import Suite

Item = TypeVar("Item")

FOLDERS = ("oracles", "mutants", "reports")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files by their absolute paths where they come from, and a digest of both."""

    digest: str
    files: tuple[tuple[str, bytes], ...] = field(repr=False)


def parcel_of(paths: Iterable[Path]) -> Parcel:
    """These files."""
    files = tuple((str(path), path.read_bytes()) for path in sorted(set(paths)))
    sha = hashlib.sha256()
    for name, content in files:
        sha.update(b"%d %d " % (len(name.encode()), len(content)) + name.encode() + content)
    return Parcel(sha.hexdigest(), files)


@dataclass(slots=True)
class Sender:
    """Makes parcels. What was packed once is not read again: all items of a run are about the same text, whatever becomes of it meanwhile."""

    suite: Suite
    cwd: Path
    _packed: dict[str, Parcel] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The suites that travel. Those that are installed must be installed on the other side too."""
        return tuple(root.path for root in self.suite.roots if root.origin == "folder")

    def parcels_for(self, item: object) -> list[Parcel]:
        """All that `item` needs: the suites, and for a job the package of its kernel, or what a stranger's kernel is made of."""
        parcels = [self._once("suites", self._of_suites)]
        if isinstance(item, Job):
            package, target = item.package, item.kernel.target
            parcels.append(
                self._once(package, lambda: files_of(Path(package))) if package else self._once(target, lambda: self._of(target))
            )
        return parcels

    def addressed(self, item: Item) -> Item:
        """The item, naming the suites that travel with it; those that are installed are found there without a name."""
        if not isinstance(item, Job | Prepare):
            return item
        return replace(item, source=replace(item.source, suites=tuple(map(str, self.roots))))

    def _once(self, key: str, files: Callable[[], Iterable[Path]]) -> Parcel:
        if key not in self._packed:
            self._packed[key] = parcel_of(files())
        return self._packed[key]

    def _of_suites(self) -> Iterator[Path]:
        for root in self.roots:
            for folder in FOLDERS:
                yield from files_of(root / folder) if (root / folder).is_dir() else ()
            yield from [file for here in (root, *root.parents) if (file := here / "pyproject.toml").is_file()][:1]

    def _of(self, target: str) -> Iterator[Path]:
        """The files of a stranger's kernel: its package, or what lies beside it. An installed module must be installed there too."""
        try:
            beside = source_files(target, folder=self.cwd)
        except UsageError:  # which a worker says better
            return
        if not beside or not (target.rpartition(":")[0].endswith(".py") or beside[0].is_relative_to(self.cwd)):
            return
        top = beside[0].parent
        while (top.parent / "__init__.py").is_file():
            top = top.parent
        yield from files_of(top) if (top / "__init__.py").is_file() else beside
