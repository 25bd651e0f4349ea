"""Which cases of a wave come first: those at which the last finished run of the op saw the most mutants for its time.

All cases of a wave are run, so the order changes no verdict: it says how soon a defect shows, and what there is of a run that is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from gradcheck.engine import folders
from gradcheck.engine.journal import scan_outcomes

LEAST = 1e-3
"""Seconds that an item takes at least: what is shorter is noise of the clock."""


def kill_rates(root: Path, op: str) -> Mapping[str, float]:
    """Case to mutants seen there per second, in the newest finished run of the op that had any; empty where there is none."""
    for path in folders.newest_first(root):
        if folders.op_of(path) != op or folders.is_unfinished(path):
            continue
        kills: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for item, outcome, took in scan_outcomes(path / "verdicts.jsonl"):
            if item.mutant:
                kills[item.case] += outcome == "KILLED"
                seconds[item.case] += max(took, LEAST)  # type: ignore[assignment] # a Counter adds any numbers
        if seconds:
            return {case: kills[case] / total for case, total in seconds.items()}
    return {}
