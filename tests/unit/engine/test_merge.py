"""Shards and their merge: the parts cover the plan, the union is the unsharded run, and nothing passes for the whole that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gradcheck import Evidence, ExitCode, Outcome, UsageError, WorkItem
from gradcheck.engine import store
from gradcheck.engine.assemble import group_of, planned_items
from gradcheck.engine.merge import find_runs, merge, so_far
from gradcheck.engine.plan import Request, make_plan
from gradcheck.engine.run import resume
from gradcheck.engine.shard import Shard, parse_shard, part, seconds, shares
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

from .canned import ASKED, FOLDER, answer, go, install


def quiet(_: object) -> None: ...


def merged(*runs: str, **options):
    return merge(find_runs(FOLDER, runs), folder=FOLDER, tell=quiet, **options)


def sharded(count: int = 3, **changes) -> list[str]:
    return [go(shard=f"{number}/{count}", **changes).id for number in range(1, count + 1)]


def evidence_in(run_id: str) -> dict[WorkItem, Evidence]:
    """What lies in a run folder, but for times and the order."""
    return {record.evidence.item: replace(record.evidence, seconds=0) for record in store.read(FOLDER, run_id).records}


def essence(run):
    """A run without what differs by nature."""
    same = {"id": "", "seconds": 0.0, "notes": (), "environment": {}}
    return replace(run, **same, verdicts=[(v.item, v.outcome) for v in run.verdicts], checks=[(v.item, v.outcome) for v in run.checks])


@pytest.fixture
def done(monkeypatch, tmp_path):
    return install(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def big():
    return make_plan(Request("ssm_scan", kernels=("mlx", "mlx-checkpoint"), mutants="all"), load([builtin_root().path]))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_item_is_in_one_shard_and_what_belongs_together_in_the_same(big, count):
    parts = shares(big, count)
    assert sorted(item.id for part in parts for item in part) == sorted(item.id for item in planned_items(big))
    for one in parts:
        others = {(item.kernel, group_of(item)) for other in parts if other is not one for item in other if item.mutant}
        assert not others & {(item.kernel, group_of(item)) for item in one if item.mutant}


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shards_are_balanced(big, count):
    first_waves = {item for subject in big.subjects for item in subject.waves()[0]}
    loads = [sum(seconds(item) for item in one if not item.mutant or item in first_waves) for one in shares(big, count)]
    assert max(loads) < 1.25 * min(loads), loads


def test_a_part_has_the_items_of_its_share_in_the_order_of_the_plan(big):
    whole, one = planned_items(big), planned_items(part(big, Shard(2, 3)))
    assert frozenset(one) == shares(big, 3)[1]
    places = [whole.index(item) for item in one[:200]]
    assert all(a < b for a, b in pairwise(places))


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "2", "2/0", "a/b", "1/3/5", "-1/3", "1 of 3"])
def test_a_shard_that_is_none_is_a_usage_error_that_shows_how(text):
    with pytest.raises(UsageError, match="K/N"):
        parse_shard(text)


def test_more_shards_than_work_are_refused_and_the_most_is_named(done):
    with pytest.raises(UsageError, match=r"choose at most \d+"):
        go(shard="1/9999")
    assert not list((FOLDER / "runs").glob("*"))


def test_three_shards_merged_are_the_unsharded_run_item_for_item(done):
    whole = go()
    parts = sharded()
    run = merged(*parts)
    assert evidence_in(run.id) == evidence_in(whole.id)
    assert essence(run) == essence(whole)
    assert (run.exit_code, run.done) == (ExitCode.OK, run.planned)
    assert {row.form for row in run.kills} == {"full", "one head"}
    assert len(evidence_in(whole.id)) < len(store.read(FOLDER, whole.id).plan.items), (
        "no mutant was settled early: nothing was put to the test"
    )


def test_the_order_of_the_runs_does_not_matter_and_a_shard_given_twice_changes_nothing(done):
    a, b, c = sharded()
    again = go(shard="2/3").id
    assert essence(merged(c, a, again, b)) == essence(merged(a, b, c))


def test_a_shard_does_little_more_than_its_share(done):
    sharded()
    assert len(done) < 1.25 * len(set(done))


def test_a_shard_says_that_it_is_one(done):
    run = go(shard="2/3")
    assert run.environment["shard"] == "2 of 3"
    assert "shard 2 of 3" in run.notes[0]
    assert run.command.endswith("--shard 2/3")


def test_a_missing_shard_is_named_and_the_merge_is_incomplete(done):
    a, _, c = sharded()
    run = merged(a, c)
    assert run.exit_code is ExitCode.INCONCLUSIVE
    assert run.done < run.planned
    assert any(note.startswith("shard 2 of 3 is missing") for note in run.notes)
    assert any("planned items have no verdict" in reason for reason in run.reasons)
    assert resume(run.id, folder=FOLDER, tell=quiet).exit_code is ExitCode.OK  # the rest is done here
    assert essence(resume(run.id, folder=FOLDER, tell=quiet)) == essence(go())


def test_a_shard_that_was_stopped_is_named_with_how_to_go_on(done):
    a, b, c = sharded()
    file = FOLDER / "runs" / b / "verdicts.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    run = merged(a, b, c)
    assert run.exit_code is ExitCode.INCONCLUSIVE
    assert any(f"gradcheck run --resume {b}" in note for note in run.notes)


def without(run_id: str, item: WorkItem) -> None:
    """Damage the line of an item in the journal of a run."""
    file = FOLDER / "runs" / run_id / "verdicts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    (number,) = (n for n, record in enumerate(store.read(FOLDER, run_id).records) if record.evidence.item == item)
    lines[number] = lines[number].replace(b"measured", b"m3asured", 1)
    file.write_bytes(b"".join(lines))


def settling(run_id: str) -> WorkItem:
    """An item without which its mutant is seen all the same: that of a mutant that is seen everywhere."""
    return next(item for item in evidence_in(run_id) if item.mutant == "drop_decay")


def test_a_lost_item_that_decides_nothing_is_missing_all_the_same_and_done_by_resuming(done):
    whole = go()
    a, b = sharded(2)
    lost = settling(next(run for run in (a, b) if any(item.mutant == "drop_decay" for item in evidence_in(run))))
    for run_id in (a, b):
        if lost in evidence_in(run_id):
            without(run_id, lost)
    run = merged(a, b)
    assert (run.exit_code, run.planned - run.done) == (ExitCode.INCONCLUSIVE, 1)
    assert any("at most 1 items are missing" in note for note in run.notes)
    rest = resume(run.id, folder=FOLDER, tell=quiet)
    assert (essence(rest), evidence_in(run.id)) == (essence(whole), evidence_in(whole.id))


def test_a_finished_run_whose_journal_was_damaged_does_that_item_again(done):
    whole = go()
    lost, before = settling(whole.id), evidence_in(whole.id)
    assert resume(whole.id, folder=FOLDER, tell=quiet) == whole
    without(whole.id, lost)
    done.clear()
    said = []
    assert essence(resume(whole.id, folder=FOLDER, tell=said.append)) == essence(whole)
    assert (done, evidence_in(whole.id)) == ([lost], before)
    assert any("is damaged" in one.note for one in said)


def test_a_shard_of_another_seed_is_none_of_this_plan(done):
    a, other = go(shard="1/2").id, go(shard="2/2", seed=1).id
    notes = merged(a, other, allow=["seeds"]).notes
    assert any(note.startswith("shard 2 of 2 is missing") for note in notes)
    assert not any("--resume" in note for note in notes)


def test_mutants_of_a_kernel_that_is_wrong_in_another_shard_do_not_count(monkeypatch, tmp_path):
    bad = None

    def give(item: WorkItem) -> Evidence:
        nonlocal bad
        right = answer(item)
        if item.kernel == "plain" and not item.mutant and not item.check and bad in (None, item):
            bad = item
            return replace(right, notes=("overwrites its input x",))
        return right

    install(monkeypatch, tmp_path, give)
    whole = go()
    run = merged(*sharded())
    assert (run.exit_code, whole.exit_code) == (ExitCode.WRONG, ExitCode.WRONG)
    assert {row.kernel for row in run.kills} == {"ops"}
    assert essence(run) == essence(whole)


def test_a_shard_alone_leaves_to_the_whole_what_only_that_can_tell(monkeypatch, tmp_path):
    def give(item: WorkItem) -> Evidence:  # one clean case tells something of d a, the others do not
        right = answer(item)
        tells = item.case == first
        return replace(right, measurements=tuple(replace(m, informative=tells) if m.quantity == "d a" else m for m in right.measurements))

    install(monkeypatch, tmp_path, give)
    asked = replace(ASKED, mutants="none", checks="none", kernels=("plain",), dtypes=("f32",))
    first = planned_items(make_plan(asked, load([])))[0].case
    codes = [go(asked, shard=f"{k}/3").exit_code for k in (1, 2, 3)]
    assert codes == [ExitCode.OK] * 3
    assert merged(*(path.name for path in (FOLDER / "runs").iterdir())).exit_code is ExitCode.OK
    first = ""
    assert go(asked).exit_code is ExitCode.NOTHING
    assert go(asked, shard="1/3").exit_code is ExitCode.OK


@pytest.mark.parametrize(
    "kind, changes, says, code",
    [
        ("seeds", {"seed": 1}, "seed is 1", ExitCode.INCONCLUSIVE),  # what is missing is missing
        ("plans", {"dtypes": ()}, "dtypes is", ExitCode.INCONCLUSIVE),
        ("plans", {"matrix": True}, "matrix is True", ExitCode.OK),
    ],
)
def test_runs_of_different_plans_or_seeds_are_refused_by_name_unless_told(done, kind, changes, says, code):
    a, other = go(shard="1/2").id, go(shard="2/2", **changes).id
    with pytest.raises(UsageError, match=rf"different {kind}: {says}.*--allow {kind}"):
        merged(a, other)
    run = merged(a, other, allow=[kind])
    assert any(f"although of different {kind}" in note for note in run.notes)
    assert run.exit_code is code


def test_jobs_and_limits_may_differ(done):
    a, b = go(shard="1/2", jobs=2, timeout=5.0).id, go(shard="2/2").id
    assert merged(a, b).exit_code is ExitCode.OK


def doctored(run_id: str, **environment: str) -> None:
    plan = FOLDER / "runs" / run_id / "plan.json"
    found = json.loads(plan.read_text())
    found["environment"] |= environment
    plan.write_text(json.dumps(found))


def test_runs_of_different_versions_are_refused_by_name_unless_told(done):
    a, b = sharded(2)
    doctored(b, numpy="1.0")
    with pytest.raises(UsageError, match=f"versions: numpy is '1.0' in {b} .*--allow versions"):
        merged(a, b)
    assert merged(a, b, allow=["versions"]).environment["numpy"].endswith("+ 1.0")


def test_what_changed_since_is_refused_unless_told(done):
    a, b = sharded(2)
    with Path("hello/leaky.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UsageError, match=r"different sources.*--allow sources"):
        merged(a, b)
    assert merged(a, b, allow=["sources"]).exit_code is ExitCode.OK


def test_one_item_with_two_results_is_refused_by_name_unless_told_and_then_the_first_counts(done):
    a, b = sharded(2)
    again = go(shard="2/2").id
    mine = shares(make_plan(ASKED, load([])), 2)[1]
    with store.open_existing(FOLDER, again) as run:
        item = next(one for one in store.read(FOLDER, again).records if one.evidence.item in mine and not one.evidence.item.mutant)
        run.append(replace(item.evidence, notes=("overwrites its input x",)), "FAILED")
    with pytest.raises(UsageError, match=r"different results: 1 items were done twice, first .*--allow results"):
        merged(a, b, again)
    assert merged(a, b, again, allow=["results"]).exit_code is ExitCode.OK
    assert merged(a, again, b, allow=["results"]).exit_code is ExitCode.WRONG


def test_another_machines_last_bits_of_the_clean_kernel_make_no_survivor(monkeypatch, tmp_path):
    """Each shard compares its mutants with the clean kernel as its own machine has it."""
    machine = 0

    def give(item: WorkItem) -> Evidence:
        right = answer(item)
        bits = 1 + machine * 2.0**-40
        return replace(
            right,
            measurements=tuple(
                replace(m, diluted={k: v * bits for k, v in m.diluted.items()}, ratios={k: v * bits for k, v in m.ratios.items()})
                for m in right.measurements
            ),
        )

    install(monkeypatch, tmp_path, give)
    runs = []
    for machine in (1, 2, 3):
        runs.append(go(shard=f"{machine}/3").id)  # noqa: PERF401 - `give` reads the variable
    run = merged(*runs)
    assert run.exit_code is ExitCode.OK, run.reasons
    machine = 0
    assert {(r.mutant, r.form, r.outcome) for r in run.kills} == {(r.mutant, r.form, r.outcome) for r in go().kills}


def test_runs_are_found_by_id_and_in_folders_that_were_downloaded(done, tmp_path):
    a, b = sharded(2)
    for number, run_id in enumerate((a, b)):
        (FOLDER / "runs" / run_id).rename(_made(tmp_path / "artefacts" / f"shard-{number}") / run_id)
    assert {path.name for path in find_runs(FOLDER, ["artefacts"])} == {a, b}
    assert len(find_runs(FOLDER, ["artefacts", f"artefacts/shard-0/{a}"])) == 2, "one that is named twice is one"
    assert merged("artefacts").exit_code is ExitCode.OK
    with pytest.raises(UsageError, match="no run 'nowhere'"):
        find_runs(FOLDER, ["nowhere"])


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_an_unfinished_run_can_be_told_and_reads_as_unfinished(done, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.engine.run.assemble", stop)
        with pytest.raises(KeyboardInterrupt):
            go()
    (path,) = (FOLDER / "runs").iterdir()
    file = path / "verdicts.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    before = sorted(path.iterdir())
    run = so_far(FOLDER, path.name, quiet)
    assert (run.id, run.done, run.exit_code) == (path.name, 5, ExitCode.INCONCLUSIVE)
    assert {verdict.outcome for verdict in run.verdicts} == {Outcome.PASSED}
    assert sorted(path.iterdir()) == before
    (path / "noise.json").unlink()
    with pytest.raises(UsageError, match=f"{path.name} has not come to its first item"):
        so_far(FOLDER, path.name, quiet)
