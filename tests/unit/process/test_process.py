"""Whatever a kernel does to its process is the outcome of its item, and the next item still runs."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradcheck.process import Died, Done, Limits, Outcome, Standing, Team, run_all
from gradcheck.process.desk import Desk
from gradcheck.process.spawn import EXIT_ZERO, PINNED, Spawn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # workers get this path too, and import the kernels by name

import deadly  # type: ignore[import-not-found] # noqa: E402 - found by the line above

LIMITS = Limits(seconds=60, memory=256 * deadly.MIB)
ENDINGS = {
    "segfault": "SIGSEGV (signal 11)",
    "crash_after_talking": "SIGSEGV (signal 11)",
    "overflow": "SIGSEGV (signal 11)",
    "abort": "SIGABRT (signal 6)",
    "sigterm": "SIGTERM (signal 15)",
    "exit 3": "exit status 3",
    "exit 0": "exit status 0",
    "exit in C": "exit status 5",
    "sys.exit(4)": "exit status 4",
    "sys.exit()": "exit status 0",
    "sys.exit(text)": "exit status 1",
    "babble": "exit status 1",
}
HOGS = ["hog_in_numpy", "hog_in_mlx", "hog_in_one_mlx_array", "more_than_there_is", "bad_alloc"]
RAISED = {
    "odd_exception": "Odd: 1 and 2",
    "unpicklable_exception": "ValueError: holds a lambda",
    "mute_exception": "Mute: (its message cannot be had",
    "long_exception": "ValueError: xxx",
    "unpicklable_result": "lambda",
    "trapped_result": "its result cannot be unpickled: LookupError: sprung",
}
HARMLESS = {"close_descriptors": None, "fork": 1}


@pytest.fixture(scope="module", autouse=True)
def light_workers() -> Iterator[None]:
    """Workers import the parent's main module, here all of pytest; these need nothing from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "__spec__", None)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        yield


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[object, Outcome]:
    """One run of every kernel that ends by itself, with a harmless item (its own number) after each."""
    names = [*ENDINGS, *HOGS, *RAISED, *HARMLESS]
    items: list[object] = [item for number, name in enumerate(names) for item in (name, number)]
    return dict(run_all(deadly.perform, items, jobs=2, limits=LIMITS, logs=tmp_path_factory.mktemp("logs")))


def died(outcome: Outcome) -> Died:
    assert isinstance(outcome, Died), outcome
    return outcome


@pytest.mark.parametrize("name", ENDINGS)
def test_an_item_that_ends_its_process_has_crashed_and_says_how(outcomes: dict[object, Outcome], name: str) -> None:
    outcome = died(outcomes[name])
    assert (outcome.kind, outcome.detail) == ("crashed", ENDINGS[name])


@pytest.mark.parametrize("name", HOGS)
def test_an_item_that_takes_too_much_memory_says_what_the_limit_was(outcomes: dict[object, Outcome], name: str) -> None:
    outcome = died(outcomes[name])
    assert outcome.kind == "memory", outcome
    assert "the limit is 256 MiB" in outcome.detail


def test_a_hog_is_stopped_long_before_it_has_all_it_wants(outcomes: dict[object, Outcome]) -> None:
    for name in ("hog_in_numpy", "hog_in_mlx", "hog_in_one_mlx_array"):
        held = float(died(outcomes[name]).detail.split()[1])
        assert 256 <= held < 2000, outcomes[name]


@pytest.mark.parametrize("name", RAISED)
def test_an_exception_or_a_result_that_cannot_travel_is_raised(outcomes: dict[object, Outcome], name: str) -> None:
    outcome = died(outcomes[name])
    assert outcome.kind == "raised"
    assert RAISED[name] in outcome.detail
    assert len(outcome.detail) < 5000


def test_what_raised_names_the_line_of_the_kernel(outcomes: dict[object, Outcome]) -> None:
    detail = died(outcomes["odd_exception"]).detail
    assert "deadly.py" in detail
    assert "raise Odd(1, 2)" in detail


@pytest.mark.parametrize("name", HARMLESS)
def test_closed_descriptors_and_a_fork_do_no_harm(outcomes: dict[object, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert isinstance(outcome, Done), outcome
    assert outcome.value == HARMLESS[name]


def test_every_item_after_a_deadly_one_still_runs_and_keeps_its_own_outcome(outcomes: dict[object, Outcome]) -> None:
    values = {item: outcome.value for item, outcome in outcomes.items() if isinstance(item, int) and isinstance(outcome, Done)}
    numbers = [item for item in outcomes if isinstance(item, int)]
    assert len(numbers) == len(ENDINGS) + len(HOGS) + len(RAISED) + len(HARMLESS)
    assert values == {number: number for number in numbers}


def test_the_last_words_of_a_crash_are_kept_from_python_c_and_descriptors(outcomes: dict[object, Outcome]) -> None:
    log = died(outcomes["crash_after_talking"]).log
    for words in ("last words in Python", "last words in C", "last words by descriptor", "Segmentation fault", "in segfault"):
        assert words in log


def test_a_log_is_of_its_own_item_only(outcomes: dict[object, Outcome]) -> None:
    assert "last words" not in died(outcomes["segfault"]).log
    assert died(outcomes["odd_exception"]).log == ""
    assert died(outcomes["sys.exit(text)"]).log == "some text\n"


def test_of_seventy_megabytes_of_babble_the_end_is_kept(outcomes: dict[object, Outcome]) -> None:
    log = died(outcomes["babble"]).log
    assert log.endswith("the end\n")
    assert len(log) <= 4096


def test_an_endless_log_is_cut_down_to_its_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.log(1).write_text("short")
    with desk.log(2).open("wb") as file:
        file.truncate(300 * deadly.MIB)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    for number in (1, 2, 3):
        desk.shorten(number)
    assert desk.tail(1) == "short"
    assert desk.tail(2).endswith("the end")
    assert desk.log(2).stat().st_size == 4096
    assert not desk.log(3).exists()


def test_a_worker_that_closes_its_pipe_has_no_answer_and_the_others_do(tmp_path: Path) -> None:
    outcomes = dict(run_all(deadly.perform, ["close_everything", 1, 2, 3], jobs=2, limits=Limits(5, None), logs=tmp_path))
    assert died(outcomes["close_everything"]).kind in {"timeout", "crashed"}
    assert [getattr(outcomes[number], "value", None) for number in (1, 2, 3)] == [1, 2, 3]


def test_a_hang_is_an_outcome_wherever_it_hangs(tmp_path: Path) -> None:
    hangs = ["hang_in_python", "hang_in_c", "hang_with_the_gil"]
    start = time.monotonic()
    outcomes = dict(run_all(deadly.perform, [*hangs, 1, 2, 3], jobs=3, limits=Limits(1, None), logs=tmp_path))
    assert time.monotonic() - start < 12
    for name in hangs:
        outcome = died(outcomes[name])
        assert (outcome.kind, outcome.detail) == ("timeout", "no answer within 1 s")
        assert 1 <= outcome.seconds < 5
    assert [getattr(outcomes[number], "value", None) for number in (1, 2, 3)] == [1, 2, 3]


def test_time_is_counted_from_the_start_of_the_item_not_from_its_scheduling(tmp_path: Path) -> None:
    items = [("pause", 0.4)] * 5
    outcomes = [outcome for _, outcome in run_all(deadly.perform, items, jobs=1, limits=Limits(1.6, None), logs=tmp_path)]
    assert all(isinstance(outcome, Done) for outcome in outcomes), outcomes  # 2 s in all
    assert all(0.4 <= outcome.seconds < 1.6 for outcome in outcomes)


def test_leaks_of_earlier_items_are_not_charged_to_later_ones(tmp_path: Path) -> None:
    items = [("leak_100_mib",)] * 5
    outcomes = [outcome for _, outcome in run_all(deadly.perform, items, jobs=1, limits=LIMITS, logs=tmp_path)]
    # Three fit under the limit together, then the worker steps down: nobody is called a hog for what others left.
    assert [outcome.value if isinstance(outcome, Done) else outcome for outcome in outcomes] == [1, 2, 3, 1, 2]


def test_a_worker_that_dies_between_items_takes_nothing_down(tmp_path: Path) -> None:
    seen = []
    for item, outcome in run_all(deadly.perform, ["die_later", 1, 2, 3], jobs=1, limits=LIMITS, logs=tmp_path):
        seen.append((item, outcome.value if isinstance(outcome, Done) else outcome))
        time.sleep(0.8 if item == "die_later" else 0)
    assert seen == [("die_later", "alive"), (1, 1), (2, 2), (3, 3)]


def test_a_quick_death_is_not_lost_on_a_busy_parent(tmp_path: Path) -> None:
    done = threading.Event()

    def burn() -> None:
        while not done.is_set():
            sum(range(20_000))

    threads = [threading.Thread(target=burn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        items = [1, "exit 3"] * 4
        results = list(run_all(deadly.perform, items, jobs=2, limits=Limits(20, None), logs=tmp_path))
    finally:
        done.set()
    assert [outcome.detail for item, outcome in results if isinstance(outcome, Died)] == ["exit status 3"] * 4
    assert [item for item, outcome in results if isinstance(outcome, Done)] == [1] * 4


def test_a_death_is_told_to_pebble_a_little_late_and_status_zero_as_a_death() -> None:
    spawn = Spawn()
    process = spawn.Process(target=time.sleep, args=(0,))
    process.start()
    assert process.pid is not None
    assert wait_for(lambda: process.pid in spawn.exits or not process.is_alive(), 20)
    assert process.is_alive()  # its last message may still be on its way
    assert wait_for(lambda: not process.is_alive(), 2)
    assert process.exitcode == spawn.exits[process.pid] == EXIT_ZERO != 0


def test_items_are_read_only_as_workers_become_free(tmp_path: Path) -> None:
    read = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            read.append(number)
            yield number
            number += 1

    results = run_all(deadly.perform, endless(), jobs=2, limits=LIMITS, logs=tmp_path)
    for taken in range(1, 30):
        next(results)
        assert len(read) <= taken + 4
    results.close()  # type: ignore[attr-defined] # a generator
    assert list(tmp_path.iterdir()) == []


def test_workers_have_pinned_threads_and_the_parent_keeps_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    [(_, outcome)] = run_all(deadly.environment, [tuple(PINNED)], jobs=1, limits=LIMITS, logs=tmp_path)
    assert isinstance(outcome, Done)
    assert outcome.value == dict.fromkeys(PINNED, "1")
    assert dict(os.environ) == before


@pytest.mark.parametrize(("word", "kind"), [("raise", "raised"), ("crash", "crashed")])
def test_an_initializer_that_fails_is_an_outcome_too(tmp_path: Path, word: str, kind: str) -> None:
    results = list(run_all(deadly.prepared, [1], jobs=1, limits=LIMITS, logs=tmp_path, initializer=deadly.prepare, initargs=(word,)))
    assert [died(outcome).kind for _, outcome in results] == [kind]


def test_the_initializer_runs_once_in_a_worker(tmp_path: Path) -> None:
    results = list(
        run_all(deadly.prepared, [1, 2, 3], jobs=1, limits=LIMITS, logs=tmp_path, initializer=deadly.prepare, initargs=("once",))
    )
    assert [outcome.value for _, outcome in results if isinstance(outcome, Done)] == [["once"]] * 3


def test_no_items_need_no_worker(tmp_path: Path) -> None:
    assert list(run_all(deadly.perform, [], jobs=2, limits=LIMITS, logs=tmp_path)) == []


@pytest.mark.parametrize(("seconds", "memory"), [(0, None), (-1, None), (float("nan"), None), (1, 0), (1, -5)])
def test_a_limit_that_is_not_positive_is_refused(seconds: float, memory: int | None) -> None:
    with pytest.raises(ValueError, match="give a positive number"):
        Limits(seconds, memory)


def test_no_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs is 0"):
        run_all(deadly.perform, [1], jobs=0, limits=LIMITS, logs=tmp_path)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def told(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


@pytest.mark.parametrize("how", ["close", "exception"])
def test_leaving_early_kills_the_workers_and_what_they_forked(tmp_path: Path, how: str) -> None:
    items = [("fork_and_leave_it", tmp_path), ("tell_and_hang", tmp_path), ("tell_and_hang", tmp_path)]

    def consume() -> None:
        results = run_all(deadly.perform, items, jobs=2, limits=Limits(1000, None), logs=tmp_path)
        next(results)
        assert wait_for(lambda: len(told(tmp_path)) == 3, 20)
        if how == "exception":
            raise LookupError
        results.close()  # type: ignore[attr-defined] # a generator

    start = 0.0
    try:
        consume()
    except LookupError as error:
        start = time.monotonic()
        error.__traceback__ = None  # as after a `for` loop that nobody catches around: the iterator is let go
    assert wait_for(lambda: not any(map(alive, told(tmp_path))), 2)
    assert how == "close" or time.monotonic() - start < 3


@pytest.mark.parametrize("action", ["interrupt", "kill", "thread"])
def test_no_process_outlives_its_parent(tmp_path: Path, action: str) -> None:
    count = 1 if action == "thread" else 3
    command = [sys.executable, str(HERE / "deadly.py"), action, str(tmp_path)]
    said = tmp_path / "said.txt"
    with said.open("w") as file:
        parent = subprocess.Popen(command, stderr=file, start_new_session=True, env={**os.environ, "PYTHONPATH": str(HERE.parents[2])})
    try:
        assert wait_for(lambda: len(told(tmp_path)) == count, 30)
        assert all(map(alive, told(tmp_path)))
        if action == "interrupt":
            os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        else:
            parent.kill()
        parent.wait(3)
        assert wait_for(lambda: not any(map(alive, told(tmp_path))), 2)
        if action == "interrupt":
            assert said.read_text().count("KeyboardInterrupt") == 1  # the parent's own, none of a worker
    finally:
        for pid in [parent.pid, *told(tmp_path)]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_worker_that_retires_is_replaced_before_its_next_item(tmp_path: Path):
    items = [("retire_after", number) for number in range(8)]  # more in a row than workers may die by bad luck
    results = [
        outcome.value for _, outcome in run_all(deadly.perform, items, jobs=1, limits=LIMITS, logs=tmp_path) if isinstance(outcome, Done)
    ]
    assert sorted(number for number, _ in results) == list(range(8))  # type: ignore[misc] # what retire_after returns
    assert len({pid for _, pid in results}) == 8  # type: ignore[misc]


UNGUARDED = """
from pathlib import Path
from gradcheck.process import Limits, run_all

def double(number):
    return 2 * number

for item, got in run_all({function}, [1, 2, 3], jobs=2, limits=Limits(30, None), logs=Path("logs")):
    print(got.value)
"""


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    return subprocess.run([sys.executable, "script.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_script_without_a_guard_whose_own_function_is_to_run_is_told_so_at_once(tmp_path: Path):
    ran = script(tmp_path, UNGUARDED.format(function="double"))
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert 'below `if __name__ == "__main__":`' in ran.stderr.splitlines()[-1]
    assert ran.stderr.count("Traceback") == 1  # and no worker says anything


def test_a_script_without_a_guard_needs_none_where_no_function_of_its_own_is_to_run(tmp_path: Path):
    ran = script(tmp_path, UNGUARDED.format(function="abs"))
    assert (ran.returncode, sorted(ran.stdout.split())) == (0, ["1", "2", "3"]), ran.stderr


def test_an_item_that_ends_with_the_same_status_is_no_unguarded_script(tmp_path: Path):
    results = dict(run_all(deadly.perform, [("end", 78), 1], jobs=1, limits=LIMITS, logs=tmp_path))
    assert died(results["end", 78]).detail == "exit status 78"
    assert isinstance(results[1], Done)


def test_a_daemon_may_have_workers(tmp_path: Path):
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    subprocess.run([sys.executable, str(HERE / "deadly.py"), "daemon", str(tmp_path)], env=env, timeout=60, check=True)
    assert (tmp_path / "7").exists()


def test_a_call_that_is_ended_from_another_thread_raises_and_leaves_no_process(tmp_path: Path):
    worker = Standing(Limits(1000, None), tmp_path / "logs")
    threading.Timer(2, worker.kill).start()
    with pytest.raises(RuntimeError, match="ended under their items"):
        worker.call(deadly.perform, ("tell_and_hang", tmp_path))
    worker.close()
    assert wait_for(lambda: not any(map(alive, told(tmp_path))), 2)


def test_a_team_stays_from_call_to_call_and_fewer_jobs_are_fewer_at_a_time(tmp_path: Path):
    team = Team()

    def pids(jobs: int, items: int, limits: Limits = LIMITS) -> set[object]:
        results = list(team.run_all(deadly.perform, [("who", 0.2)] * items, jobs=jobs, limits=limits, logs=tmp_path))
        assert len(results) == items
        spans = sorted(outcome.value for _, outcome in results if isinstance(outcome, Done))
        assert len(spans) == items
        if jobs == 1:
            assert all(end <= begin for (_, end, _), (begin, _, _) in itertools.pairwise(spans))
        return {pid for *_, pid in spans}

    try:
        first = pids(2, 8)
        assert len(first) == 2
        assert pids(1, 4) <= first
        assert pids(2, 8) == first
        results = team.run_all(deadly.perform, [1, ("tell_and_hang", tmp_path), 2], jobs=2, limits=LIMITS, logs=tmp_path)
        next(results)
        assert wait_for(lambda: bool(told(tmp_path)), 20)
        results.close()  # type: ignore[attr-defined] # a generator
        assert not any(map(alive, [*told(tmp_path), *first]))  # type: ignore[list-item] # ids of processes
        assert not pids(2, 4) & first
        assert list(team.run_all(deadly.perform, [], jobs=2, limits=LIMITS, logs=tmp_path)) == []
        other = pids(2, 4, Limits(50, None))
    finally:
        team.close()
    assert not any(map(alive, other))  # type: ignore[arg-type]
    assert not list(tmp_path.glob("workers-*"))


def test_a_standing_worker_answers_one_call_after_the_other_and_outlives_a_deadly_one(tmp_path: Path):
    worker = Standing(LIMITS, tmp_path / "logs")
    try:
        first, died, second = (worker.call(deadly.perform, item) for item in (1, "segfault", 2))
    finally:
        worker.close()
    assert isinstance(first, Done)
    assert isinstance(died, Died)
    assert died.detail == ENDINGS["segfault"]
    assert isinstance(second, Done)
    assert (first.value, second.value) == (1, 2)
    assert list((tmp_path / "logs").iterdir()) == []
