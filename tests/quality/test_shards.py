"""Shards on one machine, by the real command line and workers, merged: the run of one machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from gradcheck import ExitCode

from .conftest import edit, run_ids

RUN = ("run", "--op", "leaky_scan", "--mutants", "all", "--dtype", "f32", "--cases", "6", "--jobs", "2", "--checks", "taint")


def evidence(folder: Path, run_id: str) -> dict[str, object]:
    """Item to what it yielded, but for the time it took."""
    lines = [json.loads(line) for line in (folder / ".gradcheck" / "runs" / run_id / "verdicts.jsonl").read_bytes().splitlines()]
    return {json.dumps(one["evidence"]["item"]): {**one["evidence"], "seconds": 0} for one in lines}


def test_three_shards_merged_equal_the_unsharded_run_item_for_item(cli, hello):
    whole = cli(*RUN, "--json")
    assert whole.code == ExitCode.OK, whole.err
    for number in (1, 2, 3):
        shard = cli(*RUN, "--shard", f"{number}/3")
        assert shard.code == ExitCode.OK, shard.report
        assert shard.report.startswith(f"PART PASSED leaky_scan, shard {number} of 3: ")
    first, *parts = run_ids(hello)
    for run_id in parts:  # as if from other machines
        shutil.move(hello / ".gradcheck" / "runs" / run_id, hello / "shards" / run_id)
    merged = cli("merge", "shards", "--json")
    assert merged.code == ExitCode.OK, merged.err
    assert evidence(hello, merged.run["id"]) == evidence(hello, first)
    assert merged.kills == whole.kills
    assert (merged.run["bands"], merged.run["done"], merged.run["planned"]) == (
        whole.run["bands"], whole.run["done"], whole.run["planned"],
    )  # fmt: skip
    assert merged.outcomes() == whole.outcomes()

    shutil.rmtree(hello / "shards" / parts[1])
    poor = cli("merge", "shards")
    assert poor.code == ExitCode.INCONCLUSIVE
    assert re.search(r"shard 2 of 3 is missing: at most \d+ items", poor.report)
    rest = cli("run", "--resume", run_ids(hello)[-1], "--json")
    assert rest.code == ExitCode.OK, rest.err
    assert rest.kills == whole.kills


def test_a_shard_whose_kernel_is_wrong_exits_as_any_run_and_so_does_the_merge(cli, hello):
    edit(hello / "hello" / "leaky.py", {"carried = a * G": "carried = G"})
    few = ("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f32", "--cases", "4", "--jobs", "1", "--checks", "none")
    codes = {cli(*few, "--shard", f"{number}/2").code for number in (1, 2)}
    assert ExitCode.WRONG in codes
    merged = cli("merge", *run_ids(hello))
    assert merged.code == ExitCode.WRONG
    assert merged.report.startswith("FAIL leaky_scan: ")


def test_a_finished_run_that_is_resumed_is_told_again_and_nothing_is_done(cli, hello):
    few = ("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f32", "--cases", "2", "--jobs", "1", "--checks", "none")
    first = cli(*few, "--json")
    (run_id,) = run_ids(hello)
    before = evidence(hello, run_id)
    again = cli("run", "--resume", run_id, "--json")
    assert again.run == first.run
    assert evidence(hello, run_id) == before


def test_an_unfinished_run_reads_as_unfinished_in_a_report(cli, hello):
    few = ("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f32", "--cases", "4", "--jobs", "1", "--checks", "none")
    assert cli(*few).code == ExitCode.OK
    (run_id,) = run_ids(hello)
    folder = hello / ".gradcheck" / "runs" / run_id
    (folder / "run.json").unlink()
    lines = (folder / "verdicts.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "verdicts.jsonl").write_bytes(b"".join(lines[:2]))
    told = cli("report", run_id)
    assert told.code == ExitCode.INCONCLUSIVE
    assert "2 of 8 items done" in told.out, told.out
    assert f"gradcheck run --resume {run_id}" in told.out
    assert cli("run", "--resume", run_id).code == ExitCode.OK
    assert cli("report", run_id).code == ExitCode.OK
