"""What this user's caches hold: truths, compiled Metal kernels, compiled lanes. All of it can be made anew, so all of it may go."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import unknown
from gradcheck._files import cache_folder
from gradcheck.engine import cache
from gradcheck.metal.cache import sum_of
from gradcheck.suite import Suite

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Cache:
    """One of them.

    Args:
        name: `truth`, `metal` or `lanes`.
        folders: where its files lie.
        suffixes: the endings of its files, in the order in which they may be taken away: first what names the others.
        check: what is wrong with a file, or nothing; None is nothing to check it by.
    """

    name: str
    folders: tuple[Path, ...]
    suffixes: tuple[str, ...]
    check: Callable[[Path], str | None]

    def files(self) -> list[Path]:
        """Its files; half-written ones, which begin with a dot, are their writers'."""
        return [path for suffix in self.suffixes for folder in self.folders for path in sorted(folder.glob(f"[!.]*{suffix}"))]


def caches(suite: Suite) -> list[Cache]:
    """All caches; lanes lie beside the ops of these suites."""
    homes = sorted({root.path / "oracles" / "__pycache__" for root in suite.homes.values()})
    return [
        Cache("truth", (cache.folder(),), (".npz",), _truth),
        Cache("metal", (cache_folder("metal"),), (".json", ".so", ".pch", ".txt"), _metal),
        Cache("lanes", tuple(homes), (".nbi", ".nbc"), _lanes),
    ]


def chosen(all_: Sequence[Cache], names: Iterable[str]) -> list[Cache]:
    """Those of these names; all, if none is given.

    Raises:
        UsageError: there is none of such a name.
    """
    known = {one.name: one for one in all_}
    if stray := [name for name in names if name not in known]:
        raise unknown("cache", stray[0], known)
    return [one for one in all_ if one.name in set(names or known)]


def sizes(files: Iterable[Path]) -> dict[Path, int]:
    """Bytes of each file that is still there."""
    found = {}
    for file in files:
        with contextlib.suppress(OSError):
            found[file] = file.stat().st_size
    return found


def clear(one: Cache, older_than: float | None = None) -> dict[Path, int]:
    """Take its files away, or those that were written more than so many days ago; what went, with its size.

    Processes that use the cache at this moment make anew what they miss.
    """
    latest = float("inf") if older_than is None else time.time() - older_than * _DAY
    gone = {}
    for file in one.files():
        with contextlib.suppress(OSError):
            about = file.stat()
            if about.st_mtime < latest:
                file.unlink()
                gone[file] = about.st_size
    return gone


def verify(one: Cache) -> tuple[int, int, list[str]]:
    """(files whose checksum is right, files that have none, a sentence for each damaged one)."""
    right, silent, damaged = 0, 0, []
    for file in one.files():
        try:
            wrong = one.check(file)
        except FileNotFoundError:  # another process has taken it away
            continue
        except OSError as error:
            wrong = f"cannot be read ({error.strerror})"
        if wrong:
            damaged.append(f"{file} {wrong}")
        right, silent = right + (wrong == ""), silent + (wrong is None)
    return right, silent, damaged


def _truth(file: Path) -> str:
    return "" if cache.whole(file) else "does not bear the seal of its content"


def _metal(file: Path) -> str | None:
    """A kernel's record vouches for its library; precompiled headers and the runtime have nothing that does."""
    if file.suffix != ".json":
        return None
    try:
        record = json.loads(file.read_bytes())
        library = file.parent / record["library"]
    except (ValueError, KeyError, TypeError):
        return "is no record of a kernel"
    if not library.is_file():
        return f"is of a library that is gone, {library.name}"
    if record.get("sum") is None:
        return None
    return "" if record["sum"] == sum_of(library) else f"is of {library}, whose content is another"


def _lanes(_: Path) -> None:
    return None
