"""Two calls that must yield the same: bit by bit, or, where a kernel may add up in another order, within noise."""

from __future__ import annotations

from collections.abc import Callable

from gradcheck._truth import Truth
from gradcheck.engine.checks.bench import Bench, Result, differences


def same(bench: Bench, want: Result, got: Result, truth: Callable[[], Truth]) -> tuple[list[str], list[str]]:
    """(sentences on what is not the same, remarks on what is the same only within noise).

    `truth` is asked only where two calls are not equal bit by bit; what the first call has wrong already is left out.
    """
    different = differences(bench, want, got)
    if not different:
        return [], []
    known = truth()
    unsound, off = bench.wrong_anyway(want, known), bench.off(got, known)
    broken, within = [], []
    for name, text in different.items():
        if name not in want.gots:  # a note
            broken.append(text)
        elif name not in unsound and name not in off:
            within.append(name)
        else:
            broken.append(text if name in unsound else f"{text}, which is beyond noise")
    return broken, [f"{', '.join(within)} within noise, not bit by bit"] if within else []
