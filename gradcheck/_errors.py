"""The errors a user can cause. A wrong kernel is a verdict, never one of these.

Each message names the thing, its value and the next step. The command line turns them into exit codes (see `ExitCode`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GradcheckError(Exception):
    """Base of every error that a user can mend."""


class UsageError(GradcheckError):
    """A name, option or configuration that does not exist or does not fit (exit 2)."""


class SuiteError(UsageError):
    """A suite file that cannot be loaded, or two suites that claim one name (exit 2)."""


class StaleMutant(GradcheckError):
    """A mutant whose `find` no longer matches exactly once (exit 4)."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsageError:
    """The error for a name that does not exist, with the near names that do.

    >>> str(unknown("op", "ssm_scn", ["ssm_scan", "wkv7"]))
    "no op 'ssm_scn'; did you mean 'ssm_scan'? Known: ssm_scan, wkv7."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    guess = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    tail = f" Known: {', '.join(names)}." if names else f" There are no {kind}s."
    return UsageError(f"no {kind} {name!r}{guess}{tail}{' ' + hint if hint else ''}")
