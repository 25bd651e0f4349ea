"""What workers gain and what the engine costs, on a campaign of 60 Metal mutants whose truths are known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _table import Row, show

from gradcheck.suite import load, mutants_of

MUTANTS = 60
CASES = 3  # of each branch, so that there are some 300 items
GAIN = 1.7  # two workers are to do so many times as much as one


def campaign(jobs: int, names: Sequence[str]) -> tuple[float, float, int]:
    """(seconds of the command, seconds within its items, number of items)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradcheck", "run", "--op", "ssm_scan", "--kernel", "metal", "--mutants", ",".join(names)]
        command += ["--dtype", "f32", "--cases", str(CASES), "--checks", "none", "--matrix", "--jobs", str(jobs), "--json"]
        began = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, cwd=folder, text=True, check=False)
        seconds = time.perf_counter() - began
        if ran.returncode not in {0, 3}:  # at so few cases some survive
            raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
        (journal,) = Path(folder).glob(".gradcheck/runs/*/verdicts.jsonl")
        spent = [json.loads(line)["evidence"]["seconds"] for line in journal.read_text("utf-8").splitlines()]
    return seconds, sum(spent), len(spent)


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    names = [mutant.name for mutant in mutants_of(load(), "ssm_scan") if "metal" in mutant.edits][:MUTANTS]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["GRADCHECK_CACHE_DIR"] = cache
        campaign(2, names[:1])  # the truths
        shutil.rmtree(Path(cache, "metal"))
        cold, compiled, _ = campaign(1, names)
        rounds = [(campaign(1, names), campaign(2, names)) for _ in range(2)]
    alone, items, count = min(one for one, _ in rounds)
    both = min(two for _, (two, _, _) in rounds)
    print(f"{len(names)} mutants, {count} items: {alone:.1f} s with one worker ({items:.1f} s within items), {both:.1f} s with two")
    print(f"with nothing compiled yet: {cold:.1f} s with one worker ({compiled:.1f} s within items)")
    return show(
        "a campaign of Metal mutants",
        [
            Row(f"two workers, in times of one, warm (at least {GAIN} times the throughput)", both / alone, 1 / GAIN),
            Row("what is not spent within kernels and compiles, of what is, one worker", cold / compiled - 1, 0.05),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
