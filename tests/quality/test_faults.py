"""What can happen to a run, happens to one: it is killed, told to stop, out of disk, not alone, or its sources change under it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradcheck import ExitCode

from .conftest import Ran, edit, run_ids, shell, start

RUN = ("run", "--op", "leaky_scan", "--mutants", "all", "--kernel", "plain", "--dtype", "f32", "--jobs", "2", "--checks", "none", "--json")
BY_NATURE = {"id", "command", "seconds", "environment"}  # what differs from run to run
SEED = 20261130


@pytest.fixture
def slow(hello: Path) -> Path:
    """A suite whose kernel takes so long that it can be caught at it."""
    imports, begin = "import numpy as np", "dy, carried = cotangents"
    edit(hello / "hello" / "leaky.py", {imports: f"import time\n\n{imports}", begin: f"time.sleep(0.1)\n        {begin}"})
    return hello


def plain(value: object) -> object:
    """A run as JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in BY_NATURE}
    return [plain(one) for one in value] if isinstance(value, list) else value


def journal(folder: Path, run_id: str) -> list[bytes]:
    """The whole lines that are there."""
    file = folder / ".gradcheck" / "runs" / run_id / "verdicts.jsonl"
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def items(lines: list[bytes]) -> list[str]:
    return sorted(json.dumps(json.loads(line)["evidence"]["item"], sort_keys=True) for line in lines)


def lines_of_newest(folder: Path) -> list[bytes]:
    ids = run_ids(folder)
    return journal(folder, ids[-1]) if ids else []


def wait_until(what, process: subprocess.Popen[str], seconds: float = 120) -> bool:
    """Wait for it; False where the process has ended meanwhile."""
    deadline = time.monotonic() + seconds
    while not what():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("kills, cases, matrix", [(4, 6, ()), pytest.param(100, 48, ("--matrix",), marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_loses_no_verdict_and_doubles_none(slow, kills, cases, matrix):
    dice = random.Random(SEED)
    args = (*RUN, "--cases", str(cases), *matrix)
    done, early, torn = 0, 0, 0
    before: list[bytes] = []
    while done < kills:
        process = start(slow, *(("run", "--resume", "--json") if run_ids(slow) else args))
        if dice.random() < 0.2:  # before it has done anything, or even written its plan
            early += 1
            time.sleep(dice.uniform(0, 1.5))
        else:
            wanted = len(before) + dice.randint(1, 2)
            if not wait_until(lambda: len(lines_of_newest(slow)) >= wanted, process):  # noqa: B023 - called at once
                process.communicate()
                break  # it was done sooner than it could be killed
            time.sleep(dice.uniform(0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        done += 1
        lines = lines_of_newest(slow)
        assert lines[: len(before)] == before
        before = lines
        if ids := run_ids(slow):
            torn += bool(lines) and not (slow / ".gradcheck" / "runs" / ids[-1] / "verdicts.jsonl").read_bytes().endswith(b"\n")
    (first,) = run_ids(slow)
    ended = shell(slow, "run", "--resume", first, "--json")
    assert ended.code == ExitCode.OK, ended.err
    lines = journal(slow, first)
    assert lines[: len(before)] == before

    undisturbed = shell(slow, *args)
    assert undisturbed.code == ExitCode.OK, undisturbed.err
    assert items(lines) == items(journal(slow, undisturbed.run["id"]))
    assert len(lines) == len(set(items(lines))) == ended.run["done"]
    assert plain(ended.run) == plain(undisturbed.run)
    print(f"{done} kills -9 ({early} before the first item, {torn} in the middle of a line): {len(lines)} items, none lost, none twice")  # noqa: T201 - the count, for whoever asks with -s


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_polite_signal_ends_a_run_as_ctrl_c_does(slow, name):
    process = start(slow, *RUN, "--cases", "6")
    assert wait_until(lambda: len(lines_of_newest(slow)) >= 3, process), process.communicate()
    os.kill(process.pid, getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, ""), err
    assert "gradcheck run --resume" in err
    assert "Traceback" not in err
    kept = lines_of_newest(slow)
    resumed = shell(slow, "run", "--resume", "--json")
    assert resumed.code == ExitCode.OK, resumed.err
    assert lines_of_newest(slow)[: len(kept)] == kept


def test_a_run_that_ignores_the_end_of_its_terminal_goes_on(slow):
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from gradcheck.cli import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", code, *RUN, "--cases", "4"], cwd=slow, text=True, stdout=-1, stderr=-1)
    assert wait_until(lambda: len(lines_of_newest(slow)) >= 1, process), process.communicate()
    os.kill(process.pid, signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == ExitCode.OK, err


def test_two_runs_in_one_folder_at_once_are_two_runs(slow):
    both = [start(slow, *RUN, "--cases", "4") for _ in range(2)]
    assert wait_until(lambda: len(run_ids(slow)) == 2, both[0])
    busy = shell(slow, "run", "--resume", run_ids(slow)[0])
    ran = [Ran(process.wait(), *process.communicate()) for process in both]
    assert [one.code for one in ran] == [ExitCode.OK] * 2, [one.err for one in ran]
    assert busy.code == ExitCode.USAGE
    assert "is being worked on by process" in busy.err
    assert ran[0].run["id"] != ran[1].run["id"]
    assert plain(ran[0].run) == plain(ran[1].run)


CHANGES = {
    "the kernel": ("hello/leaky.py", "carried = a * G", "carried = G * a"),
    "the reference": ("oracles/leaky_scan.py", "h = a * h + x", "h = x + a * h"),
    "how inputs are drawn": ("oracles/_draw.py", "0.3, 0.9", "0.3, 0.8"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_suite_that_changes_under_a_run_ends_it_and_no_verdict_is_given(slow, what):
    file, find, replace = CHANGES[what]
    process = start(slow, *RUN, "--cases", "6")
    assert wait_until(lambda: len(lines_of_newest(slow)) >= 1, process), process.communicate()
    text = (slow / file).read_text()
    assert find in text
    (slow / file).write_text(text.replace(find, replace))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (ExitCode.USAGE, ""), err
    assert "changed while it ran" in err
    assert shell(slow, "run", "--resume").code == ExitCode.USAGE


@pytest.fixture
def small_disk(slow: Path) -> Iterator[Path]:
    """The run folder on a disk of its own, of 96 kB."""
    (slow / ".gradcheck").mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "none", slow / ".gradcheck"], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield slow / ".gradcheck"
    subprocess.run(["umount", "-l", slow / ".gradcheck"], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_disk_is_a_clear_error_and_with_room_the_run_goes_on(slow, small_disk):
    args = (*RUN, "--cases", "12", "--matrix")
    full = shell(slow, *args)
    assert full.code == ExitCode.USAGE, full.err
    assert "No space left on device" in full.err
    assert "Traceback" not in full.err
    kept = lines_of_newest(slow)
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    resumed = shell(slow, *(("run", "--resume", "--json") if run_ids(slow) else args))
    assert resumed.code == ExitCode.OK, resumed.err
    lines = lines_of_newest(slow)
    assert lines[: len(kept)] == kept
    assert len(lines) == len(set(items(lines))) == resumed.run["done"]
    print(f"the disk was full after {len(kept)} of {len(lines)} items; with room the others were done, each once")  # noqa: T201 - the count, for whoever asks with -s
