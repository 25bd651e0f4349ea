"""A run on a dask cluster is the run of one machine, item for item, also where a worker is lost on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gradcheck
from gradcheck import ExitCode

from .conftest import edit, run_ids, shell, start

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

RUN = ("run", "--op", "leaky_scan", "--kernel", "plain", "--mutants", "all", "--dtype", "f32", "--cases", "6", "--json")
BY_NATURE = {"id", "command", "seconds", "environment"}  # what differs from run to run


def plain(value: object) -> object:
    """A run as JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in BY_NATURE}
    return [plain(one) for one in value] if isinstance(value, list) else value


def journal(folder: Path, run_id: str) -> list[str]:
    lines = (folder / ".gradcheck" / "runs" / run_id / "verdicts.jsonl").read_text().splitlines()
    return [json.dumps(json.loads(line)["evidence"]["item"], sort_keys=True) for line in lines]


@pytest.fixture
def dask(tmp_path_factory) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a part of dask in an empty folder, with an empty cache; all are killed in the end."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(gradcheck.__file__).parents[1]),
        "GRADCHECK_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder),
    }
    processes = []

    def begin(part: str, *args: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-P",
            "-m",
            f"distributed.cli.dask_{part}",
            "--scheduler-file",
            "scheduler.json",
            "--no-dashboard",
            *args,
        ]
        with (folder / "log").open("ab") as log:
            processes.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
        return processes[-1]

    begin.folder = folder
    yield begin
    for process in processes:
        process.kill()
        process.wait()


def address_of(folder: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (file := folder / "scheduler.json").exists() and (text := file.read_text()):
            return json.loads(text)["address"]
        time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())


@pytest.fixture
def slow(hello: Path) -> Path:
    """A suite whose kernel takes so long that a worker can be caught at it."""
    imports, begin = "import numpy as np", "dy, carried = cotangents"
    edit(hello / "hello" / "leaky.py", {imports: f"import time\n\n{imports}", begin: f"time.sleep(0.2)\n        {begin}"})
    return hello


@pytest.mark.slow
def test_a_worker_that_is_lost_in_mid_run_changes_nothing(slow, dask):
    dask("scheduler", "--port", "0", "--host", "127.0.0.1")
    address = address_of(dask.folder)
    worker = ("worker", "--no-nanny", "--nthreads", "1")
    first, second = dask(*worker), dask(*worker)
    process = start(slow, *RUN, "--engine", "dask", "--scheduler", address)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (ids := run_ids(slow)):
        time.sleep(0.05)
    while time.monotonic() < deadline and len(journal(slow, ids[-1])) < 10:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    first.kill()
    before = len(journal(slow, ids[-1]))
    out, err = process.communicate(timeout=240)
    assert process.returncode == ExitCode.OK, err
    assert second.poll() is None

    alone = shell(slow, *RUN, "--jobs", "2")
    assert alone.code == ExitCode.OK, alone.err
    found = json.loads(out)
    assert plain(found) == plain(alone.run)
    lines = journal(slow, ids[-1])
    assert before < len(lines) == len(set(lines)) == found["done"] == alone.run["done"]
    print(f"one of two workers was killed after {before} of {len(lines)} items; the others were done once, and the run is the same")  # noqa: T201 - the count, for whoever asks with -s
    assert list(dask.folder.glob("gradcheck-*/**/hello/leaky.py"))  # of the one that was killed; the other has tidied up
