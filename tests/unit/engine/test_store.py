"""The run folder: what was written is never lost, what is damaged is named, and two processes never share a run."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gradcheck import Evidence, GradcheckError, Measurement, Outcome, UsageError, WorkItem
from gradcheck.engine import store
from gradcheck.engine.store import Manifest, RunFolder, StoreError

ITEMS = tuple(WorkItem("ssm_scan", "mlx", f"ssm_scan/B1,T5/f32/ordinary/{seed}", mutant) for seed in range(4) for mutant in ("", "drop"))


def manifest(items: tuple[WorkItem, ...] = ITEMS, sources: str = "abc") -> Manifest:
    return Manifest("ssm_scan", {"op": "ssm_scan", "jobs": 2}, items, {"numpy": "2.4"}, store.digest_of(items, sources))


def evidence(item: WorkItem, steps: int = 5) -> Evidence:
    ratios = dict.fromkeys(("z", "l2", "max", "slice", "maa"), 1.25)
    measurement = Measurement(
        "d x", ratios=ratios, errors={"z": None, "l2": 3e-7}, worst=(0, 1), got=-0.0, profile=(0.123456789, None) * steps
    )
    return Evidence(item, "measured", (measurement,) * 8, "a\nb", "log \x00 \u2028 é", 0.25, ("overwrites its input x",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / ".gradcheck"


def begun(root: Path, done: int = 3) -> Path:
    """A run that ended after `done` items; its folder."""
    with store.create(root, manifest()) as run:
        for item in ITEMS[:done]:
            run.append(evidence(item), Outcome.PASSED)
    return run.path


def test_a_run_reads_back_as_it_was_written(root: Path) -> None:
    path = begun(root)
    stored = store.read(root, path.name)
    assert stored.plan == manifest()
    assert [record.evidence for record in stored.records] == [evidence(item) for item in ITEMS[:3]]
    assert [record.outcome for record in stored.records] == ["agrees with the truth"] * 3
    assert (stored.to_do, stored.damage, stored.summary) == (ITEMS[3:], (), None)
    assert re.fullmatch(r"\d{8}-\d{6}-ssm_scan-[0-9a-f]{4}", path.name)
    assert (root / ".gitignore").read_text() == "*\n"
    assert (path / "logs").is_dir()


def test_lines_are_json_for_whoever_has_no_gradcheck(root: Path) -> None:
    path = begun(root)
    lines = [msgspec.json.decode(line) for line in (path / "verdicts.jsonl").read_bytes().splitlines()]
    assert [line["evidence"]["item"]["case"] for line in lines] == [item.case for item in ITEMS[:3]]


def test_the_plan_is_there_before_any_work_and_each_line_as_soon_as_it_is_appended(root: Path) -> None:
    with store.create(root, manifest()) as run:
        assert store.read(root, run.id).to_do == ITEMS
        run.append(evidence(ITEMS[0]), "x")
        assert store.read(root, run.id).to_do == ITEMS[1:]


def test_a_resumed_run_goes_on_where_it_stopped(root: Path) -> None:
    path = begun(root)
    with store.open_existing(root) as run:
        assert run.id == path.name
        assert run.plan == manifest()
        for item in store.read(root, run.id).to_do:
            run.append(evidence(item), "x")
        run.finish({"exit": 0})
    stored = store.read(root, path.name)
    assert (stored.to_do, stored.summary) == ((), {"exit": 0})
    with pytest.raises(UsageError, match="nothing to resume"):
        store.open_existing(root)


def test_wherever_a_crash_cuts_the_file_only_the_last_item_is_lost(root: Path) -> None:
    path = begun(root) / "verdicts.jsonl"
    whole = path.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    around = {place + shift for place in (0, *ends) for shift in (-20, -2, -1, 0, 1, 2, 20)}
    for cut in sorted(around & set(range(len(whole) + 1))):
        path.write_bytes(whole[:cut])
        kept = sum(cut >= end for end in ends)  # at `end` only the newline is missing, and nothing is lost
        before = store.read(root, path.parent.name)
        assert [r.evidence.item for r in before.records] == list(ITEMS[:kept])
        assert len(before.damage) == (cut not in {0, *ends, *(end + 1 for end in ends)})
        with store.open_existing(root, path.parent.name) as run:
            run.append(evidence(ITEMS[7]), "x")
        after = store.read(root, path.parent.name)
        assert [r.evidence.item for r in after.records] == [*ITEMS[:kept], ITEMS[7]], "nothing is glued together"
        assert after.damage == ()


@pytest.mark.parametrize("how", ["bit", "garbage", "half", "other schema"])
def test_a_damaged_line_in_the_middle_costs_its_own_item_and_is_named(root: Path, how: str) -> None:
    path = begun(root) / "verdicts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    flipped = bytearray(lines[1])
    flipped[len(flipped) // 2] ^= 1
    lines[1] = {"bit": bytes(flipped), "garbage": b"\xff\x00{]\n", "half": lines[1][:50] + b"\n", "other schema": b'{"outcome":"x"}\n'}[how]
    path.write_bytes(b"".join(lines))
    stored = store.read(root, path.parent.name)
    assert stored.to_do == (ITEMS[1], *ITEMS[3:])
    assert len(stored.damage) == 1
    assert f"{path} line 2 is damaged" in stored.damage[0]


def test_an_item_done_twice_counts_once_and_the_last_time_counts(root: Path) -> None:
    with store.create(root, manifest()) as run:
        for item, outcome in ((ITEMS[0], "first"), (ITEMS[1], "other"), (ITEMS[0], "second")):
            run.append(evidence(item), outcome)
    assert [record.outcome for record in store.read(root, run.id).records] == ["other", "second"]


HOLDER = """
import sys
from pathlib import Path
from gradcheck.engine import store
run = store.open_existing(Path(sys.argv[1]), sys.argv[2])
print(run.id, flush=True)
sys.stdin.read()
"""


def test_a_run_that_another_process_works_on_is_refused_by_name_and_pid(root: Path) -> None:
    path = begun(root)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), path.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == f"{path.name}\n"
        for run_id in (path.name, None):
            with pytest.raises(UsageError, match=f"{path.name} .* process {other.pid}"):
                store.open_existing(root, run_id)
        assert store.unfinished(root, manifest().digest) == []
        assert store.read(root, path.name).to_do == ITEMS[3:], "reading needs no lock"
        other.kill()
    with store.open_existing(root) as run:
        assert run.id == path.name, "the lock dies with its process"


def test_resume_without_a_name_takes_the_newest_run_that_is_free(root: Path) -> None:
    older, newer = begun(root), begun(root)
    with store.open_existing(root) as first, store.open_existing(root) as second:
        assert [first.id, second.id] == [newer.name, older.name]


def test_unfinished_runs_are_those_of_the_same_plan(root: Path) -> None:
    older, newer = begun(root), begun(root)
    digest = manifest().digest
    assert store.unfinished(root, digest) == [newer.name, older.name]
    assert store.unfinished(root, manifest(sources="edited").digest) == []
    assert store.unfinished(root, manifest(items=ITEMS[1:]).digest) == []
    with store.open_existing(root, newer.name) as run:
        run.finish({})
    (older.parent / "torn").mkdir()  # a crash before the plan was there
    (older / "plan.json").write_text("{")
    assert store.unfinished(root, digest) == []
    assert store.unfinished(root / "nowhere", digest) == []


def test_an_unknown_run_is_a_usage_error_with_near_names(root: Path) -> None:
    path = begun(root)
    with pytest.raises(UsageError, match=f"did you mean '{path.name}'"):
        store.read(root, path.name[:-1] + "x")
    with pytest.raises(UsageError, match="There are no runs"):
        store.open_existing(root / "nowhere", "x")


def test_a_plan_that_is_damaged_or_of_another_version_is_an_error_that_names_it(root: Path) -> None:
    plan = begun(root) / "plan.json"
    text = plan.read_text()
    plan.write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(StoreError, match=f"{plan} has format 99"):
        store.open_existing(root)
    plan.write_text(text[:-40])
    with pytest.raises(StoreError, match=f"{plan} is damaged"):
        store.read(root, plan.parent.name)


def limited(run: RunFolder, room: int, item: WorkItem) -> None:
    """Append while the disk has only `room` bytes left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((run.path / "verdicts.jsonl").stat().st_size + room, hard))
    try:
        run.append(evidence(item), "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 300])
def test_a_full_disk_loses_nothing_that_was_written(root: Path, room: int) -> None:
    with store.create(root, manifest()) as run:
        run.append(evidence(ITEMS[0]), "x")
        with pytest.raises(StoreError, match=re.escape(f"{run.path / 'verdicts.jsonl'}") + f".*--resume {run.id}"):
            limited(run, room, ITEMS[1])
        run.append(evidence(ITEMS[2]), "x")  # room again
    stored = store.read(root, run.id)
    assert [record.evidence.item for record in stored.records] == [ITEMS[0], ITEMS[2]]
    assert stored.damage == ()


def test_a_folder_that_cannot_be_made_is_a_clear_error(root: Path) -> None:
    root.write_text("in the way")
    with pytest.raises(GradcheckError, match=f"{re.escape(str(root))}: .*make it writable"):
        store.create(root, manifest())


def test_closing_twice_is_fine_and_a_closed_run_takes_nothing_more(root: Path) -> None:
    run = store.create(root, manifest())
    run.close()
    run.close()
    with pytest.raises(ValueError, match="closed"):
        run.append(evidence(ITEMS[0]), "x")
    assert store.unfinished(root, manifest().digest) == [run.id]


def test_the_evidence_of_five_thousand_items_reads_back_in_well_under_a_second(root: Path) -> None:
    items = tuple(WorkItem("ssm_scan", "mlx", f"ssm_scan/B1,T5/f32/ordinary/{seed}") for seed in range(5000))
    with store.create(root, manifest(items)) as run:
        for item in items:
            run.append(evidence(item, steps=20), "x")
    seconds = []
    for _ in range(3):  # the best of them: other processes only slow it down
        start = time.process_time()
        stored = store.read(root, run.id)
        seconds.append(time.process_time() - start)
        assert len(stored.records) == 5000
        assert stored.to_do == ()
    assert min(seconds) < 1, seconds


def test_a_run_that_was_refused_is_taken_away_and_one_with_a_result_is_kept(root: Path) -> None:
    refused, begun = (store.create(root, manifest()) for _ in range(2))
    begun.append(evidence(begun.plan.items[0]), "PASSED")
    for run in (refused, begun):
        run.discard()
    assert not refused.path.exists()
    assert store.read(root, begun.id).records
