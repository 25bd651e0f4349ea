"""Each defect that the checker knows, in the smallest kernel that has it, is found under every schedule; without the defect nothing is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import machine as m  # type: ignore[import-not-found] # noqa: E402 - found by the line above
from machine import Kind  # type: ignore[import-not-found] # noqa: E402

pytestmark = pytest.mark.skipif(m.COMPILER is None and m.ZIG is None, reason="neither clang++ on PATH nor zig")

SOURCE = HERE / "runtime_kernels.cpp"
X = (np.arange(256) % 7 + 1).astype(np.float32)
PRESET = {
    "add_across_groups",
    "add_across_groups_right",
    "add_half_atomic",
    "reads_output_right",
    "spins",
    "spins_right",
}  # their output begins with zeros
HALF_USED = {
    "neighbouring_halves",
    "neighbouring_bytes",
    "overlapping_bytes",
    "all_write_same",
    "all_write_same_right",
    "all_write_own",
    "writes_what_is_there",
}


@pytest.fixture(scope="module")
def machine() -> m.Machine:
    return m.Machine(SOURCE)


def check(machine: m.Machine, kernel: str, **options: Any) -> m.Run:
    preset = kernel in PRESET
    out = np.zeros(256, np.float32) if preset else np.full(256, np.nan, np.float32)
    dtype = {"neighbouring_halves": np.float16, "neighbouring_bytes": np.uint8, "overlapping_bytes": np.uint8}.get(kernel, np.float32)
    options = {"checked": True, "initialised": preset or kernel in HALF_USED, **options}
    return machine.launch(kernel, [m.guarded(X), m.guarded(out.astype(dtype, casting="unsafe") if dtype == np.float16 else out)], **options)


FINDINGS = {
    "exchange_without_barrier": {Kind.RACE},
    "exchange_wrong_flags": {Kind.WEAK_BARRIER},
    "exchange_simdgroup_barrier": {Kind.RACE},
    "exchange_no_flags": {Kind.WEAK_BARRIER},
    "swap_without_barrier": {Kind.RACE},
    "swap_no_flags": {Kind.WEAK_BARRIER},
    "reuse_without_barrier": {Kind.RACE},
    "add_across_groups": {Kind.RACE},
    "add_half_atomic": {Kind.RACE},
    "read_across_groups": {Kind.RACE},
    "device_exchange_wrong_flags": {Kind.WEAK_BARRIER},
    "all_write_same": {Kind.RACE_SAME_VALUE},
    "all_write_own": {Kind.RACE},
    "overlapping_bytes": {Kind.RACE},
    "read_behind": {Kind.OUT_OF_BOUNDS},
    "read_before": {Kind.OUT_OF_BOUNDS},
    "write_behind": {Kind.OUT_OF_BOUNDS},
    "write_far": {Kind.OUT_OF_BOUNDS},
    "read_behind_shared": {Kind.OUT_OF_BOUNDS},
    "stray_pointer": {Kind.OUT_OF_BOUNDS},
    "uninitialised": {Kind.UNINITIALISED_READ},
    "reads_output": {Kind.UNINITIALISED_READ},
    "writes_input": {Kind.WRITE_TO_INPUT},
    "leaves_gaps": {Kind.UNWRITTEN_OUTPUT},
    "misaligned_vector": {Kind.MISALIGNED},
    "misaligned_pair": {Kind.MISALIGNED},
    "barrier_after_return": {Kind.BARRIER_DIVERGENCE},
    "two_barriers": {Kind.BARRIER_DIVERGENCE},
    "barrier_out_of_step": {Kind.BARRIER_DIVERGENCE},
    "asks_absent_lane": {Kind.SIMD_DIVERGENCE},
    "shifts_too_far": {Kind.UNDEFINED},
    "divides_by_zero": {Kind.UNDEFINED},
    "index_outside": {Kind.UNDEFINED},
    "spins": {Kind.DEADLOCK},
    "much_threadgroup_memory": {Kind.THREADGROUP_MEMORY},
    "never_ends_waiting": {Kind.TIMEOUT},
    "never_ends_reading": {Kind.TIMEOUT},
    "recurses_deeply": {Kind.STACK_OVERFLOW},
}
# What such a defect brings with it, under some schedules at least.
ALSO = {
    "exchange_without_barrier": {Kind.UNINITIALISED_READ},
    "exchange_simdgroup_barrier": {Kind.UNINITIALISED_READ},
    "swap_without_barrier": {Kind.UNINITIALISED_READ},
    "read_across_groups": {Kind.UNINITIALISED_READ},
    "read_behind_shared": {Kind.UNDEFINED},
    "shifts_too_far": {Kind.UNWRITTEN_OUTPUT},  # what is undefined need not be stored
    "divides_by_zero": {Kind.UNWRITTEN_OUTPUT},
    "add_across_groups": {Kind.RACE_SAME_VALUE},
    "add_half_atomic": {Kind.RACE_SAME_VALUE},
}
BUDGET = 50_000_000  # ns
FATAL = {Kind.OUT_OF_BOUNDS, Kind.DEADLOCK, Kind.THREADGROUP_MEMORY, Kind.TIMEOUT, Kind.STACK_OVERFLOW}
RIGHT = [
    "exchange_right", "swap_right", "reuse_right", "add_across_groups_right", "read_across_groups_right", "all_write_same_right", "neighbouring_halves",
    "neighbouring_bytes", "in_bounds_right", "uninitialised_right", "aligned_right", "barrier_right", "loops_alike", "asks_absent_lane_right", "spins_right",
    "much_threadgroup_memory_right", "recurses_right",
]  # fmt: skip


@pytest.mark.parametrize("schedule", m.SCHEDULES)
@pytest.mark.parametrize("kernel", FINDINGS)
def test_a_defect_is_found_under_every_schedule(machine: m.Machine, kernel: str, schedule: int) -> None:
    done = check(machine, kernel, schedule=schedule, budget=BUDGET if kernel.startswith("never") else 0)
    assert FINDINGS[kernel] <= done.kinds <= FINDINGS[kernel] | ALSO.get(kernel, set()), done.reports
    assert done.result.status == bool(FINDINGS[kernel] & FATAL)
    for report in done.reports:
        assert report.count >= 1
        assert report.pc or report.line or report.kind == Kind.UNWRITTEN_OUTPUT


@pytest.mark.parametrize("schedule", m.SCHEDULES)
@pytest.mark.parametrize("kernel", RIGHT)
def test_without_the_defect_nothing_is_found(machine: m.Machine, kernel: str, schedule: int) -> None:
    for seed in range(3):
        done = check(machine, kernel, schedule=schedule, seed=seed)
        assert not done.reports
        assert done.code == 0


def test_a_hundred_clean_runs_find_nothing(machine: m.Machine) -> None:
    found = [
        check(machine, kernel, schedule=seed % 4, seed=seed).reports
        for seed in range(34)
        for kernel in ("exchange_right", "reuse_right", "spins_right")
    ]
    assert len(found) >= 100
    assert not any(found)


@pytest.mark.parametrize(
    "kernel",
    ["read_behind", "write_behind", "stray_pointer", "recurses_deeply", "never_ends_waiting", "much_threadgroup_memory", "write_far"],
)
def test_plain_mode_reports_what_would_kill_it(machine: m.Machine, kernel: str) -> None:
    want = {"stray_pointer": Kind.FAULT, "write_far": Kind.FAULT}.get(kernel) or next(iter(FINDINGS[kernel]))
    done = check(machine, kernel, checked=False, budget=BUDGET)
    assert (done.kinds, done.code) == ({want}, 1)
    assert check(machine, "exchange_right", checked=False).code == 0  # and the process can go on


@pytest.mark.parametrize("kernel", ["barrier_after_return", "two_barriers", "asks_absent_lane"])
def test_plain_mode_reports_divergence_too(machine: m.Machine, kernel: str) -> None:
    assert check(machine, kernel, checked=False).kinds == FINDINGS[kernel]


def test_other_os_threads_stop_when_one_faults(machine: m.Machine) -> None:
    x = np.zeros(1 << 16, np.float32)
    done = machine.launch("read_behind", [m.guarded(x), m.guarded(x)], grid=(x.size, 1, 1), threads=2)
    assert done.kinds == {Kind.OUT_OF_BOUNDS}


def test_a_race_names_both_places_and_both_threads(machine: m.Machine) -> None:
    report = check(machine, "exchange_wrong_flags").reports[0]
    low, high = machine.range
    assert low < report.pc < high
    assert low < report.pc2 < high
    assert report.pc != report.pc2
    assert (report.name, report.thread + report.thread2, report.write, report.write2) == (b"shared", 127, 0, 1)
    assert SOURCE.read_text().splitlines()[report.line - 1].strip() == "if (how == 2) threadgroup_barrier(mem_flags::mem_device);"
    assert b"mem_threadgroup" in report.detail


def test_a_race_between_threadgroups_names_both(machine: m.Machine) -> None:
    report = next(report for report in check(machine, "read_across_groups").only(Kind.RACE))
    assert {(report.group, report.thread), (report.group2, report.thread2)} == {(0, 0), (1, 127)}
    assert report.name == b"output"


def test_distance_and_size_of_a_stray_access_are_told(machine: m.Machine) -> None:
    for kernel, name, offset, write, thread in (
        ("read_behind", b"input", 0, 0, 127),
        ("read_before", b"input", -4, 0, 0),
        ("write_behind", b"output", 0, 1, 127),
    ):
        (report,) = check(machine, kernel).reports
        assert (report.name, report.offset, report.size, report.write, report.thread) == (name, offset, 4, write, thread)


def test_unwritten_elements_are_counted(machine: m.Machine) -> None:
    (report,) = check(machine, "leaves_gaps").reports
    assert (report.name, report.offset) == (b"output", 0)
    assert report.detail.startswith(b"128 of 256 elements")


def test_an_initialised_output_may_be_read_and_left(machine: m.Machine) -> None:
    assert not check(machine, "reads_output", initialised=True).reports
    assert not check(machine, "leaves_gaps", initialised=True).reports


def test_a_write_that_changes_nothing_is_benign_only_while_it_changes_nothing(machine: m.Machine) -> None:
    assert check(machine, "writes_what_is_there").kinds == {Kind.RACE_SAME_VALUE}
    assert check(machine, "all_write_same").only(Kind.RACE_SAME_VALUE)[0].count == 2 * 127


def test_divergence_at_a_barrier_says_who_is_missing(machine: m.Machine) -> None:
    (gone,) = check(machine, "barrier_after_return").reports
    (elsewhere,) = check(machine, "two_barriers").reports
    (late,) = check(machine, "barrier_out_of_step").reports
    assert b"96 of 128 threads wait here; thread 96 has returned" in gone.detail
    assert b"waits at the barrier of line" in elsewhere.detail
    assert b"another iteration" in late.detail


def test_no_finding_is_lost_beyond_the_sixty_fourth(machine: m.Machine) -> None:
    done = check(machine, "many_findings", initialised=True, grid=(64, 1, 1), threadgroup=(64, 1, 1))
    assert len(done.reports) == 64
    assert all(report.count == 63 for report in done.reports)
    assert f"and {16 * 63} more findings".encode() in done.reports[-1].detail


def test_a_launch_after_a_stopped_one_is_clean(machine: m.Machine) -> None:
    for kernel in ("read_behind", "spins", "recurses_deeply", "much_threadgroup_memory"):
        assert check(machine, kernel).code == 1
        assert not check(machine, "exchange_right").reports
