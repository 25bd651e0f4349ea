"""A death is believed once it has come twice, the second time alone; a worker that has loaded many kernels steps down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck import Case, Evidence, Kernel, WorkItem
from gradcheck._errors import SuiteError
from gradcheck.calibrate.judge import judge
from gradcheck.engine import prepare, workers
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.workers import DOUBTED, evidences, passing, perform
from gradcheck.process import Died, Done, Limits

LIMITS = Limits(1, None)
HANG, CRASH = Died("timeout", "no answer within 1 s", "", 1.0), Died("crashed", "SIGSEGV (signal 11)\nmore", "its log", 0.1)


def job(case: int, kernel: str = "k", mutant: str = "") -> Job:
    return Job(WorkItem("op", kernel, f"op/T{case}/f32/uniform/0", mutant), Source((), ""), Kernel(kernel, f"{kernel}:{kernel}"))


def done(one: Job, status: str = "measured", detail: str = "") -> Done:
    return Done(Evidence(one.item, status, detail=detail), 0.0)  # type: ignore[arg-type] # one of them


class Machine:
    """Workers that do with an item what they are told to, the first time and the second; it notes who ran beside whom."""

    def __init__(self, first: Mapping[Job, Done | Died], second: Mapping[Job, Done | Died]) -> None:
        self.ends = [dict(first), dict(second)]
        self.calls: list[list[Job]] = []

    def __call__(self, function: object, items: list[Job], *, jobs: int, limits: Limits, logs: Path) -> Iterator[tuple[Job, Done | Died]]:
        assert function is perform
        assert (limits, logs) == (LIMITS, Path("logs"))
        self.calls.append(list(items))
        assert jobs == (2 if len(self.calls) == 1 else 1)
        yield from ((item, self.ends[len(self.calls) > 1].get(item) or done(item)) for item in items)


def run(machine: Machine, jobs: list[Job]) -> dict[WorkItem, Evidence]:
    found = list(evidences(machine, jobs, workers=2, limits=LIMITS, logs=Path("logs")))
    assert sorted(one.item.id for one in found) == sorted(one.item.id for one in jobs)
    return {one.item: one for one in found}


@pytest.mark.parametrize("died", [HANG, CRASH, Died("memory", "held 9 MiB more", "", 0.1)])
def test_what_dies_once_and_not_when_it_is_alone_is_measured_and_told_of(died):
    bad, good = job(1), job(2)
    machine = Machine({bad: died}, {})
    found = run(machine, [bad, good])
    assert machine.calls == [[bad, good], [bad]]
    assert found[bad.item].status == "measured"
    assert found[good.item] == done(good).value
    (sentence,) = passing(found.values())
    assert sentence.startswith("k did not end by itself in 1 items until run again alone")
    assert died.detail.splitlines()[0] in sentence
    assert "more\n" not in sentence


@pytest.mark.parametrize("died", [HANG, CRASH])
def test_what_dies_twice_is_believed_and_says_no_more_than_that(died):
    bad = job(1)
    found = run(Machine({bad: died}, {bad: died}), [bad])
    assert (found[bad.item].status, found[bad.item].detail) == (died.kind, died.detail)
    assert passing(found.values()) == []


def test_the_second_time_is_what_counts_where_it_ends_otherwise():
    bad = job(1)
    assert run(Machine({bad: HANG}, {bad: CRASH}), [bad])[bad.item].status == "crashed"
    raised = run(Machine({bad: HANG}, {bad: done(bad, "raised", "ValueError: no")}), [bad])[bad.item]
    assert raised.status == "raised"
    assert raised.detail.startswith("ValueError: no; timeout (no answer within 1 s) at first")
    assert judge(raised, {}).outcome.name == "FAILED"


def test_a_kernel_that_always_hangs_costs_its_time_limit_once_more_and_not_at_every_case():
    jobs = [*(job(case) for case in range(5)), *(job(case, mutant="m") for case in range(5)), job(9, kernel="other")]
    machine = Machine(dict.fromkeys(jobs, HANG), dict.fromkeys(jobs, HANG))
    found = run(machine, jobs)
    assert machine.calls[1:] == [[jobs[0]], [jobs[5]], [jobs[10]]]  # one of the kernel, one of its mutant, one of the other kernel
    assert {one.status for one in found.values()} == {"timeout"}


def test_one_that_recovered_lends_no_belief_to_the_next():
    jobs = [job(case) for case in range(3)]
    machine = Machine(dict.fromkeys(jobs, HANG), {jobs[2]: HANG})
    found = run(machine, jobs)
    assert machine.calls[1:] == [[one] for one in jobs]
    assert [found[one.item].status for one in jobs] == ["measured", "measured", "timeout"]
    assert len(passing(found.values())) == 1


def test_the_checkers_own_time_limit_is_doubted_as_the_workers_is():
    slow = job(1)
    assert "timeout" in DOUBTED
    machine = Machine({slow: done(slow, "timeout", "out of time")}, {})
    assert run(machine, [slow])[slow.item].status == "measured"


@pytest.mark.parametrize("again", [None, HANG])
def test_a_reference_that_hangs_once_is_asked_again_alone_before_the_suite_is_blamed(monkeypatch, again):
    monkeypatch.setattr(prepare, "lookup", lambda *_: None)
    op, cases, calls = SimpleNamespace(name="op"), [Case.parse(f"op/T{n}/f32/uniform/0") for n in (1, 2)], []

    def work(function, asks, *, jobs, limits, logs):
        calls.append(([ask.case for ask in asks], jobs))
        late = HANG if len(calls) == 1 else again or Done({"f32": 2}, 0.0)
        yield from ((ask, late if ask.case == str(cases[0]) else Done({"f32": 1}, 0.0)) for ask in asks)

    def ask():
        return prepare.prepare_all(op, cases, Source((), ""), jobs=2, limits=LIMITS, logs=Path("logs"), work=work)

    if again is None:
        assert ask() == {cases[0]: {"f32": 2}, cases[1]: {"f32": 1}}
    else:
        with pytest.raises(SuiteError, match=r"failed at case op/T1/f32/uniform/0: no answer within 1 s; give it more by --timeout"):
            ask()
    assert calls == [([str(case) for case in cases], 2), ([str(cases[0])], 1)]


@pytest.mark.parametrize("loaded, retired", [(workers.KERNELS - 1, 0), (workers.KERNELS, 1)])
def test_a_worker_that_has_loaded_many_kernels_steps_down(monkeypatch, loaded, retired):
    calls = []
    monkeypatch.setattr(workers, "execute", lambda one: Evidence(one.item, "measured"))
    monkeypatch.setattr(workers, "loaded", lambda: loaded)
    monkeypatch.setattr(workers, "retire", lambda: calls.append(1))
    assert perform(job(1)).status == "measured"
    assert len(calls) == retired
