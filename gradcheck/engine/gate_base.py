"""What a pull request goes to: the commit it branched off, read by git. Nothing in the repository is changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gradcheck._errors import UsageError, unknown
from gradcheck.engine.gate_patch import Hunk, parse_diff, whole

_OWN = ".gradcheck/"
"""Our own run folder, which is no part of a change."""


@dataclass(frozen=True, slots=True)
class Base:
    """The commit to compare with.

    Args:
        root: of the repository.
        commit: its hash.
        ref: what was asked for.
    """

    root: Path
    commit: str
    ref: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} ({self.ref})"


def repository(folder: Path) -> Path | None:
    """The root of the git repository around `folder`; None where there is none, or no git."""
    try:
        return Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    except UsageError:
        return None


def find_base(folder: Path, ref: str) -> Base:
    """Where the history of `HEAD` left that of `ref`.

    Raises:
        UsageError: there is no git, no repository, no such ref, or no common commit (a shallow clone).
    """
    root = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    shallow = _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    deepen = "this clone is shallow; fetch all of its history (actions/checkout: `fetch-depth: 0`, else `git fetch --unshallow`)"
    try:
        _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except UsageError:
        names = _git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags").decode().split()
        hint = "In CI the branch that a pull request goes to is `origin/NAME`." if "origin" in "".join(names) else ""
        raise unknown("git ref", ref, names, hint=f"{deepen[0].upper()}{deepen[1:]}." if shallow else hint) from None
    try:
        commit = _git(root, "merge-base", "--end-of-options", ref, "HEAD").decode().strip()
    except UsageError as error:
        why = deepen if shallow else "the two histories have no commit in common; name another ref"
        raise UsageError(f"no common commit of {ref} and HEAD: {why}") from error
    return Base(root, commit, ref)


def changed_since(base: Base) -> dict[str, tuple[Hunk, ...]]:
    """The files that differ between the base and the working tree, committed or not, with new ones that git does not ignore.

    Raises:
        UsageError: git fails.
    """
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--unified=0", "--src-prefix=a/", "--dst-prefix=b/")
    text = _git(base.root, "-c", "core.quotePath=false", "diff", *options, base.commit, "--").decode("utf-8", errors="replace")
    found = parse_diff(text)
    for name in _git(base.root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        path = os.fsdecode(name)
        if path and not f"/{path}".count(f"/{_OWN}"):
            content = (base.root / path).read_bytes() if (base.root / path).is_file() else b""
            found[path] = () if b"\0" in content else whole(content.decode("utf-8", errors="replace"))
    return found


def text_at(base: Base, path: Path) -> bytes | None:
    """What the base has at this path; None where it has no such file, or the path lies outside the repository."""
    file = path.resolve()
    if not file.is_relative_to(base.root.resolve()):
        return None
    name = file.relative_to(base.root.resolve()).as_posix()
    if not _git(base.root, "ls-tree", "--name-only", "-z", base.commit, "--", f":(literal){name}"):
        return None
    return _git(base.root, "cat-file", "blob", f"{base.commit}:{name}")


def copy_at(base: Base, paths: Iterable[Path], into: Path) -> Path:
    """Write the files that the base has at or below these paths into a folder, and return it: its tree, as far as it was asked for."""
    root = base.root.resolve()
    names = [f":(literal){path.resolve().relative_to(root).as_posix()}" for path in paths]
    for name in _git(base.root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base.commit, "--", *names).split(b"\0"):
        if name:
            file = into / os.fsdecode(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_git(base.root, "cat-file", "blob", f"{base.commit}:{os.fsdecode(name)}"))
    return into


def _git(folder: Path, *args: str) -> bytes:
    """What this git command writes.

    Raises:
        UsageError: there is no git, or it fails; the message has its own words.
    """
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *args], cwd=folder, capture_output=True, env=environment, check=False)  # noqa: S607 - the user's own git
    except FileNotFoundError as error:
        raise UsageError("there is no git here, and --base needs it: install it, or give the change as --in-diff FILE") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"
        raise UsageError(f"git {args[0] if args[0] != '-c' else args[2]} fails in {folder}: {said}")
    return done.stdout
