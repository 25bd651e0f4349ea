"""A campaign whose items are answered at once: everything of the engine but workers, truths and kernels."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck import Case, Evidence, Measurement, Run, WorkItem
from gradcheck.engine import run as engine
from gradcheck.engine import stages
from gradcheck.engine.execute import Job
from gradcheck.engine.plan import Request

HELLO = Path(__file__).parents[2] / "testdata" / "hello"
FOLDER = Path(".gradcheck")
QUANTITIES = ("y", "h_T", "d h", "d x", "d a")
METRICS = ("z", "l2", "max", "slice", "maa")
ASKED = Request("leaky_scan", mutants="all", checks="taint,split", dtypes=("f32",), jobs=1)

Answer = Callable[[WorkItem], Evidence]


def answer(item: WorkItem) -> Evidence:
    """Right where nothing is planted. A defect shows in `d h`, and in one head of it at every second case only."""
    if item.check:
        return Evidence(item, "measured", detail="held")
    case = Case.parse(item.case)
    noise = 0.1 + case.seed % 7 / 10
    size = {"": noise, "null": noise, "canary": 1e9, "drop_decay": 1e5, "state_after_in_da": 1e4 * (case.seed % 5 > 1)}[
        item.mutant
    ] or noise
    local = size if item.mutant not in {"", "null"} and case.seed % 2 else noise
    rows = [
        Measurement(
            name,
            checked=9,
            errors=dict.fromkeys(METRICS, 0.1),
            ratios=dict.fromkeys(METRICS, size if name == "d h" else noise),
            diluted={"one head": local if name == "d h" else noise},
        )
        for name in QUANTITIES
    ]
    digits = int(hashlib.sha256(item.id.encode()).hexdigest()[:4], 16)
    return Evidence(item, "measured", tuple(rows), seconds=digits / 1e5)


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, give: Answer = answer) -> list[WorkItem]:
    """Work in a copy of the suite `hello`; what is returned collects the items in the order in which they are done."""
    shutil.copytree(HELLO, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    done: list[WorkItem] = []

    def evidences(_: object, jobs: Iterator[Job], **__: object) -> Iterator[Evidence]:
        for job in jobs:
            done.append(job.item)
            yield give(job.item)

    noise = {name: dict.fromkeys(METRICS, 1.0) for name in QUANTITIES}
    monkeypatch.setattr(stages, "evidences", evidences)
    monkeypatch.setattr(stages, "prepare_all", lambda _, cases, *__, **___: {case: {"f32": noise, case.dtype: noise} for case in cases})
    return done


def go(request: Request = ASKED, **changes: object) -> Run:
    """A run, in a folder of its own."""
    return engine.run(replace(request, **changes), folder=FOLDER, tell=lambda _: None)  # type: ignore[arg-type] # by name
