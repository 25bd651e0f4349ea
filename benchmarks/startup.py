"""What starting costs: importing the package in someone else's process, and asking for help."""

from __future__ import annotations

import subprocess
import sys
import time

from _table import Row, show


def seconds(*command: str, rounds: int = 9) -> float:
    """The least wall time of a command."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    python = sys.executable
    bare = seconds(python, "-c", "pass")
    return show(
        "startup",
        [
            Row("import gradcheck, beyond Python itself", 1e3 * (seconds(python, "-c", "import gradcheck") - bare), 50, " ms"),
            Row("gradcheck --help", 1e3 * seconds(python, "-m", "gradcheck", "--help"), 250, " ms"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
