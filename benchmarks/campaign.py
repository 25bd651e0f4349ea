"""The coordinator of a long campaign: what it holds, and how soon a finished run is resumed. Its items are answered at once, so that no
kernel is in the figures."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _table import Row, show

from gradcheck import Evidence, Measurement, WorkItem
from gradcheck.engine import run as engine
from gradcheck.engine import stages
from gradcheck.engine.execute import Job
from gradcheck.engine.plan import Request

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(".gradcheck")
CASES = 48  # of the grid of the suite `hello` in float32
METRICS = ("z", "l2", "max", "slice", "maa")
QUANTITIES = ("y", "h_T", "d h", "d x", "d a")
MIB = 1 << 10  # ru_maxrss is in KiB on Linux

MUTANT = """
m{number} = Mutant(
    op="leaky_scan", defect="dropped-term", why="one of many", seen_in="invented for this benchmark",
    edits={{"plain": Edit("leaky.py", "carried = a * G", "carried = G")}},
)
"""


def suite(items: int) -> None:
    """In the working directory: the suite `hello`, with so many mutants that every one at every case makes so many items."""
    shutil.copytree(ROOT / "tests" / "testdata" / "hello", ".", dirs_exist_ok=True)
    mutants = "".join(MUTANT.format(number=number) for number in range(items // CASES))
    Path("mutants/leaky_scan.py").write_text(f'"""Many."""\n\nfrom gradcheck import Edit, Mutant\n{mutants}', encoding="utf-8")


def answer(item: WorkItem) -> Evidence:
    """Right where nothing is planted, wrong elsewhere; as long as what a kernel yields."""
    if item.check:
        return Evidence(item, "measured")
    size = 0.5 if item.mutant in {"", "null"} else 1e5
    rows = (
        Measurement(
            name, checked=999, errors=dict.fromkeys(METRICS, 1 / 3), ratios=dict.fromkeys(METRICS, size / 3),
            diluted={"last step": size / 3, "one head": size / 3}, axes=("B", "T", "D"), worst=(0, 1, 2), got=1 / 3, want=2 / 3, worst_step=3,
            profile=() if item.mutant else (1 / 3,) * 37,
        )
        for name in QUANTITIES
    )  # fmt: skip
    return Evidence(item, "measured", tuple(rows), seconds=1 / 3)


def campaign(items: int) -> str:
    """A run of so many items; its id."""
    suite(items)
    noise = {name: dict.fromkeys(METRICS, 1.0) for name in QUANTITIES}

    def evidences(_: object, jobs: Iterator[Job], **__: object) -> Iterator[Evidence]:
        return (answer(job.item) for job in jobs)

    stages.evidences = evidences  # type: ignore[assignment] # a stand-in of the same use
    stages.prepare_all = lambda _, cases, *__, **___: {case: {"f32": noise} for case in cases}  # type: ignore[assignment] # as above
    asked = Request("leaky_scan", kernels=("plain",), mutants="all", checks="none", dtypes=("f32",), matrix=True, jobs=1)
    done = engine.run(asked, folder=FOLDER, tell=lambda _: None)
    assert done.done == done.planned >= items * 0.9, done.reasons
    return done.id


def peak(items: int) -> float:
    """MiB that the coordinator of so many items holds at most."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(items)]
        said = subprocess.run(command, check=True, capture_output=True, cwd=folder, text=True).stdout
    return float(said.split()[-1])


def resumed(items: int) -> tuple[float, float, float]:
    """CPU seconds to resume a finished run of so many items, to judge it anew where its summary is gone, and of `gradcheck --version`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, str(items)], check=True, capture_output=True, cwd=folder)
        (run,) = (path.name for path in (Path(folder) / ".gradcheck" / "runs").iterdir())
        finished = cpu(folder, "run", "--resume", run)
        (Path(folder) / ".gradcheck" / "runs" / run / "run.json").unlink()  # as if it had been stopped before its last line
        return finished, cpu(folder, "run", "--resume", run), cpu(folder, "--version")


def cpu(folder: str, *arguments: str) -> float:
    """CPU seconds of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "gradcheck", *arguments], check=True, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print, and say whether all promises hold."""
    seconds, anew, version = resumed(5_000)
    few, many = peak(500), peak(50_000)
    return show(
        "campaigns, the coordinator alone",
        [
            Row(f"resume a finished run of 5,000 items (judge it anew: {anew:.1f} s; --version: {version:.1f} s)", seconds, 2, " s"),
            Row(f"memory at 50,000 items ({many:.0f} MiB) to that at 500 ({few:.0f} MiB)", many / few, 1.75),
        ],
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        began = time.process_time()
        campaign(int(sys.argv[1]))
        print(f"{time.process_time() - began:.1f} s", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB)
    else:
        sys.exit(main())
