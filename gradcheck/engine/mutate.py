"""Copy a kernel's package with one edit applied."""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gradcheck import Edit, StaleMutant, UsageError


def copy_with_edit(package: Path, edit: Edit | None, who: str, into: Path) -> Path:
    """The folder of a copy of `package` with the edit applied; without an edit, the null mutant: an identical copy.

    The copy's folder is named by its content, so that equal copies are made once, and it appears all at once: any number of
    processes may ask for it at the same time. A package is copied whole; of a folder without `__init__.py` the files directly in
    it and the packages below it. Caches and hidden files stay behind.

    Args:
        package: the kernel's package, or the folder that holds its file.
        edit: the edit, or None.
        who: name of the mutant, for the error.
        into: the folder in which the copy is made.

    Raises:
        StaleMutant: `find` does not match exactly once, or its file is gone.
        UsageError: the edit's file lies outside the package.
    """
    package = package.resolve()
    contents = {str(file.relative_to(package)): file.read_bytes() for file in files_of(package)}
    if edit is not None:
        _, after = _before_after(package, edit, who)
        contents[str(Path(edit.file))] = after.encode()
    folder = into / f"{package.name}-{_digest(package, contents)}"
    if folder.is_dir():
        return folder
    into.mkdir(parents=True, exist_ok=True)
    private = Path(tempfile.mkdtemp(prefix=".copying-", dir=into))
    for name, content in contents.items():
        file = private / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    try:
        private.rename(folder)
    except OSError:
        shutil.rmtree(private, ignore_errors=True)
        if not folder.is_dir():  # not another process that was faster
            raise
    return folder


def diff(package: Path, edit: Edit, who: str = "") -> str:
    """The edit as a unified diff.

    Raises:
        StaleMutant: as `copy_with_edit`.
    """
    before, after = _before_after(package.resolve(), edit, who)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{edit.file}", f"b/{edit.file}", lineterm="")
    return "\n".join(lines)


def _before_after(package: Path, edit: Edit, who: str) -> tuple[str, str]:
    file = (package / edit.file).resolve()
    if not file.is_relative_to(package):
        raise UsageError(f"mutant {who}: its file {edit.file} lies outside the kernel's package {package}")
    if not file.is_file():
        raise StaleMutant(f"mutant {who}: the kernel's package {package} has no file {edit.file}. The kernel changed: write the edit anew.")
    before = file.read_bytes().decode()  # not read_text: line ends stay as they are
    return before, edit.apply(before, who)


def files_of(package: Path) -> Iterator[Path]:
    """The files of a package that a copy has: all but caches and hidden ones, whatever language they are in."""
    for root, folders, names in os.walk(package):
        here = Path(root)
        loose = not (package / "__init__.py").is_file()
        folders[:] = sorted(name for name in folders if _wanted(name) and not (loose and not (here / name / "__init__.py").is_file()))
        yield from (here / name for name in sorted(names) if _wanted(name))


def _wanted(name: str) -> bool:
    return name != "__pycache__" and not name.startswith(".")


def _digest(package: Path, contents: dict[str, bytes]) -> str:
    state = hashlib.sha256(str(package).encode())
    for name, content in contents.items():
        state.update(b"%d %d " % (len(name.encode()), len(content)) + name.encode() + content)
    return state.hexdigest()[:16]
