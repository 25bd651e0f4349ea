"""The two jobs a user waits for, warm: the main job, and a stranger's kernel over the whole covering grid."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _table import Row, show

ROOT = Path(__file__).resolve().parent.parent
STRANGER = ROOT / "tests" / "testdata" / "strangers" / "autodiff.py"


def seconds(*arguments: str) -> float:
    """Wall time of the second of two equal runs: the first fills the cache of truths."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradcheck", "run", "--op", "ssm_scan", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        return time.perf_counter() - began


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    return show(
        "jobs, warm, on all cores of this machine",
        [
            Row("gradcheck run --op ssm_scan --mutants all", seconds("--mutants", "all"), 60, " s"),
            Row("a stranger's callable over the whole grid", seconds("--kernel", f"{STRANGER}:scan"), 20, " s"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
