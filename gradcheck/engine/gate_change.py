"""What a change is: the files, and what they are taken against."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gradcheck._errors import UsageError
from gradcheck.engine.gate_base import Base, changed_since, find_base, repository, text_at
from gradcheck.engine.gate_patch import Files, mismatch, parse_diff


@dataclass(frozen=True, slots=True)
class Change:
    """The files, and the commit where there is one.

    Args:
        root: the folder that paths are relative to.
        files: what changed.
        compared: with what, in words.
        base: the commit.
        whole: nothing is compared with, so all is run.
    """

    root: Path
    files: Files = field(hash=False)
    compared: str
    base: Base | None = None
    whole: bool = False

    def before(self, file: Path) -> bytes | None:
        """What the base has of this file; None where there is no base, or no such file in it."""
        return text_at(self.base, file) if self.base else None


def find_change(base: str, in_diff: Path | None, cwd: Path) -> Change:
    """What is compared: a git ref, a diff that led to this tree, or nothing.

    Raises:
        UsageError: both are given, or the one that is cannot be used.
    """
    if base and in_diff:
        raise UsageError("--base and --in-diff both say what changed; give one of them")
    if base:
        found = find_base(cwd, base)
        return Change(found.root, changed_since(found), f"base {found}", found)
    root = repository(cwd) or cwd
    if in_diff is None:
        return Change(root, {}, "nothing: all is run", whole=True)
    try:
        text = in_diff.read_text("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read the diff {in_diff}: {error.strerror or error}") from error
    try:
        files = parse_diff(text)
    except UsageError as error:
        raise UsageError(f"{in_diff}: {error}") from error
    if wrong := mismatch(files, root):
        raise UsageError(f"the diff {in_diff} does not lead to the tree at {root}: {wrong}. Apply it first, or make it anew")
    return Change(root, files, f"diff {in_diff}")
