"""A run that was stopped, however it was, goes on where it stopped; the result is that of a run that was not."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from gradcheck import ExitCode

from .conftest import edit, run_ids, shell, start

FEW = ("--kernel", "plain", "--dtype", "f32", "--cases", "8", "--jobs", "2", "--checks", "none")
RUN = ("run", "--op", "leaky_scan", "--mutants", "all", *FEW)


def journal(folder: Path, run_id: str) -> list[bytes]:
    file = folder / ".gradcheck" / "runs" / run_id / "verdicts.jsonl"
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def stop(folder: Path, number: signal.Signals, after: int) -> tuple[str, int, str, str]:
    """Start a run, and send a signal once so many items are done: (run, exit status, stdout, stderr)."""
    process = start(folder, *RUN)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (ids := run_ids(folder)):
        time.sleep(0.02)
    while time.monotonic() < deadline and len(journal(folder, ids[-1])) < after:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=30)
    return ids[-1], process.returncode, out, err


@pytest.fixture
def slow(hello: Path) -> Path:
    """A suite whose kernel takes so long that it can be caught at it."""
    imports, begin = "import numpy as np", "dy, carried = cotangents"
    edit(hello / "hello" / "leaky.py", {imports: f"import time\n\n{imports}", begin: f"time.sleep(0.1)\n        {begin}"})
    return hello


def ids_of(lines: list[bytes]) -> list[str]:
    return [json.dumps(json.loads(line)["evidence"]["item"], sort_keys=True) for line in lines]


def test_ctrl_c_keeps_what_is_done_says_how_to_go_on_and_the_rest_is_done_once(cli, slow):
    first, code, out, err = stop(slow, signal.SIGINT, after=10)
    kept = journal(slow, first)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert "Traceback" not in err
    assert "gradcheck run --resume" in err
    assert len(kept) >= 10

    undisturbed = cli(*RUN, "--json")  # a plain run begins anew, and says that it need not
    assert undisturbed.code == ExitCode.OK, undisturbed.err
    assert f"gradcheck run --resume {first}" in undisturbed.err

    resumed = cli("run", "--resume", "--json")
    assert resumed.code == ExitCode.OK, resumed.err
    assert resumed.run["id"] == first
    assert resumed.kills == undisturbed.kills
    assert resumed.run["bands"] == undisturbed.run["bands"]
    lines = journal(slow, first)
    assert lines[: len(kept)] == kept
    assert len(kept) < len(lines)
    assert sorted(ids_of(lines)) == sorted(ids_of(journal(slow, undisturbed.run["id"])))  # every item once

    assert cli("run", "--resume").code == ExitCode.USAGE  # nothing is left


def test_a_run_that_was_killed_goes_on_even_behind_a_line_cut_short(cli, slow):
    first, code, _, _ = stop(slow, signal.SIGKILL, after=10)
    assert code == -signal.SIGKILL
    kept = journal(slow, first)
    with (slow / ".gradcheck" / "runs" / first / "verdicts.jsonl").open("ab") as file:
        file.write(kept[0][:40])
    resumed = cli("run", "--resume", first, "--json")
    assert resumed.code == ExitCode.OK, resumed.err
    lines = journal(slow, first)
    assert lines[: len(kept)] == kept
    assert len(kept) < len(set(ids_of(lines))) == len(lines) == resumed.run["done"]
    assert {row[0] for key, row in resumed.kills.items() if key[1] in {"drop_decay", "state_after_in_da"}} == {"KILLED"}


def test_killed_runs_leave_no_worker_behind(slow):
    note = f"\n        import os\n        open({str(slow / 'pids')!r}, 'a').write(str(os.getpid()) + ' ')"
    edit(slow / "hello" / "leaky.py", {"time.sleep(0.1)": f"time.sleep(0.1){note}"})
    stop(slow, signal.SIGKILL, after=2)
    pids = set((slow / "pids").read_text().split())
    assert pids
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


CHANGES = {
    "the kernel": ("hello/leaky.py", "carried = a * G", "carried = G * a"),
    "a mutant": ("mutants/leaky_scan.py", '"carried = a * G", "carried = G")}', '"carried = a * G", "carried = -G")}'),
    "how inputs are drawn": ("oracles/_draw.py", "0.3, 0.9", "0.3, 0.8"),
}


@pytest.fixture
def stopped(cli, hello, monkeypatch):
    """A run of these arguments that was stopped before its last item."""

    def stopped(*args: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("gradcheck.engine.run.assemble", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            assert cli("run", "--op", "leaky_scan", "--cases", "2", "--checks", "none", *args).code == ExitCode.INTERRUPTED

    return stopped


def test_nothing_changed_and_so_it_goes_on(cli, hello, stopped):
    stopped("--kernel", "plain", "--mutants", "state_after_in_da", "--dtype", "f32")
    assert cli("run", "--resume").code == ExitCode.OK


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_since_cannot_be_gone_on_with(cli, hello, stopped, what):
    file, find, replace = CHANGES[what]
    stopped("--kernel", "plain", "--mutants", "all", "--dtype", "f32")
    text = (hello / file).read_text()
    assert find in text
    (hello / file).write_text(text.replace(find, replace))
    ran = shell(hello, "run", "--resume")
    assert ran.code == ExitCode.USAGE
    assert "has changed since it began" in ran.err
    assert "Start a new run" in ran.err


@pytest.mark.parametrize(
    "target, changed", [("mine.py:leaky_scan", "mine.py"), ("mine.py:leaky_scan", "_helper.py"), ("mine:leaky_scan", "_helper.py")]
)
def test_a_strangers_run_cannot_go_on_once_its_file_or_the_helper_beside_it_changed(cli, hello, stopped, target, changed):
    (hello / "_helper.py").write_text((hello / "hello" / "leaky.py").read_text())
    (hello / "mine.py").write_text("from _helper import leaky_scan\n")
    stopped("--kernel", target)
    with (hello / changed).open("a") as file:
        file.write("# changed\n")
    ran = shell(hello, "run", "--resume")
    assert ran.code == ExitCode.USAGE
    assert "has changed since it began" in ran.err


@pytest.mark.parametrize("name", ["leaky.metal", "inner/common.h"])
def test_a_source_in_another_language_that_changed_since_cannot_be_gone_on_with(cli, hello, stopped, name):
    file = hello / "hello" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("// one\n")
    stopped("--kernel", "plain", "--dtype", "f32")
    file.write_text("// two\n")
    ran = shell(hello, "run", "--resume")
    assert ran.code == ExitCode.USAGE
    assert "has changed since it began" in ran.err
