"""Fibers do what the threads of a GPU do: collectives give Metal's values, and lanes that part meet again where Metal's do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import machine as m  # type: ignore[import-not-found] # noqa: E402 - found by the line above

pytestmark = pytest.mark.skipif(m.COMPILER is None and m.ZIG is None, reason="neither clang++ on PATH nor zig")

LANE = np.arange(32)
EVERY_WAY = [
    pytest.param(checked, schedule, id=f"{'checked' if checked else 'plain'}-{schedule}")
    for checked in (False, True)
    for schedule in m.SCHEDULES
]
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def machine() -> m.Machine:
    return m.Machine(HERE / "runtime_kernels.cpp")


def run(machine: m.Machine, kernel: str, x: Array, size: int | None = None, **options: Any) -> Array:
    """The output of a kernel in which nothing must be found."""
    out = np.full(x.size if size is None else size, np.nan, np.float32)
    done = machine.launch(kernel, [m.guarded(x), guarded := m.guarded(out)], **options)
    assert not done.reports
    assert done.code == done.result.status == 0
    return guarded.copy()


def numbers(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


# In each line: what a lane gets for the collectives in which it takes part, one by one.
DIVERGENT = {
    # Lanes 0…15 add up 16 ones, the others 16 twos; then all 32 are together.
    "both_branches": np.where(LANE < 16, 16, 32) + 3200,
    # Iteration i has the 31 - i lanes above i in it: lane L gets 31 + 30 + … of L terms.
    "as_often_as_lane": [sum(31 - i for i in range(lane)) + 32000 for lane in LANE],
    # Of four iterations each lane is in two, with 15 others each time.
    "every_other_iteration": np.full(32, 2 * 16 + 32000),
    # lane % 3 is 0, 1, 2 for 11, 11, 10 lanes: inner iteration 0 has 21 lanes, 1 has 10; twice.
    "nested": np.select([LANE % 3 == 0, LANE % 3 == 1], [0, 2 * 21], 2 * (21 + 10)) + 32000,
    # Each of three iterations lacks one lane.
    "with_continue": np.where(LANE < 3, 2 * 31, 3 * 31) + 32000,
    # Iteration i is left by lane i, before it adds: 31, 30, 29, 28 lanes add.
    "with_break": np.select([LANE == 0, LANE == 1, LANE == 2, LANE == 3], [0, 31, 31 + 30, 31 + 30 + 29], 31 + 30 + 29 + 28) + 32000,
    "some_return": np.where(LANE < 20, 20, -1),
    # Odd lanes: the sum of lane ^ 2 over the odd ones, 256. Even lanes: the largest even lane, 30, twice.
    "mixed_types": np.where(LANE % 2, 256, 60),
    # The neighbour across the threadgroup of 128: its first 8 lanes of each simdgroup wrote 8, the others 0.
    "barrier_after_branch": np.where(31 - LANE < 8, 8, 0),
}


@pytest.mark.parametrize("kernel", DIVERGENT)
@pytest.mark.parametrize(("checked", "schedule"), EVERY_WAY)
def test_lanes_that_part_meet_again_as_on_a_gpu(machine: m.Machine, kernel: str, *, checked: bool, schedule: int) -> None:
    for seed in range(5 if schedule == m.RANDOM else 1):
        got = run(machine, kernel, np.zeros(256, np.float32), checked=checked, schedule=schedule, seed=seed)
        np.testing.assert_array_equal(got.reshape(8, 32), np.broadcast_to(DIVERGENT[kernel], (8, 32)))


def butterfly(x: Array, distances: tuple[int, ...]) -> Array:
    lane = np.arange(32)
    for distance in distances:
        x = (x + x[..., lane ^ distance]).astype(x.dtype)
    return x


@pytest.mark.parametrize(("order", "distances"), [(0, (1, 2, 4, 8, 16)), (1, (16, 8, 4, 2, 1)), (2, None)])
@pytest.mark.parametrize("checked", [False, True])
def test_the_order_of_a_sum_is_a_switch_and_by_default_the_ascending_butterfly(
    machine: m.Machine, order: int, distances: tuple[int, ...] | None, *, checked: bool
) -> None:
    x = numbers(256)
    rows = x.reshape(8, 32)
    machine.runtime.gcm_set_simd_order(order)
    try:
        got = run(machine, "sum", x, checked=checked).reshape(8, 32)
    finally:
        machine.runtime.gcm_set_simd_order(0)
    one_by_one = np.repeat(np.add.accumulate(rows, axis=1, dtype=np.float32)[:, -1:], 32, axis=1)
    np.testing.assert_array_equal(got, one_by_one if distances is None else butterfly(rows, distances))
    if order == 0:
        assert (got != butterfly(rows, (16, 8, 4, 2, 1))).any()  # so that the orders can be told apart at all


def test_half_sums_round_at_each_step(machine: m.Machine) -> None:
    x = numbers(256) * 100
    want = butterfly(x.astype(np.float16).reshape(8, 32), (1, 2, 4, 8, 16))
    np.testing.assert_array_equal(run(machine, "half_sum", x).reshape(8, 32), want.astype(np.float32))


@pytest.mark.parametrize("lanes", [32, 20])
@pytest.mark.parametrize(("checked", "schedule"), EVERY_WAY)
def test_every_collective_has_metals_value(machine: m.Machine, lanes: int, *, checked: bool, schedule: int) -> None:
    """With 20 lanes the simdgroup is not full; what would ask a lane that is not there is compared on full ones only."""
    x = np.round(numbers(lanes, 1) * 4) / 4  # sums of these are exact in any order
    out = np.full(lanes * 40, np.nan, np.float32)
    done = machine.launch(
        "every_collective",
        [m.guarded(x), got := m.guarded(out)],
        grid=(lanes, 1, 1),
        threadgroup=(lanes, 1, 1),
        checked=checked,
        schedule=schedule,
    )
    assert done.kinds == ({m.Kind.SIMD_DIVERGENCE} if lanes < 32 else set())
    lane = np.arange(lanes)
    quad, factors = lane // 4 * 4, x / 8 + 1
    before = np.concatenate([[0], np.cumsum(x)[:-1]])
    product, products = np.float32(1), []
    for factor in factors:
        products.append(product)
        product = product * factor

    def filled(source: Array, sign: int) -> Array:
        within = (source >= 0) & (source < lanes)
        return np.where(within, x[source % lanes], sign * x[source % lanes])

    def eights(delta: int) -> Array:
        to = lane % 8 + delta
        source = lane // 8 * 8 + to % 8
        return np.where((to >= 0) & (to < 8), x[source % lanes], -x[source % lanes])

    full = lanes == 32
    want = {
        0: x.sum(), 1: x.max(), 2: x.min(), 3: None, 4: np.bitwise_and.reduce(lane | 8), 5: np.bitwise_or.reduce(lane & 5), 6: np.bitwise_xor.reduce(lane * 3),
        7: np.cumsum(x), 8: before, 9: np.array(products), 10: x[lane // 2], 11: x[3], 12: x[0], 13: x[lane ^ 5] if full else None,
        14: np.where(lane + 3 < 32, x[(lane + 3) % lanes], x) if full else None, 15: np.where(lane >= 3, x[lane - 3], x),
        16: x[(lane + 3) % 32] if full else None, 17: x[(lane - 3) % 32] if full else None, 18: filled(lane + 3, -1) if full else None,
        19: filled(lane - 3, -1) if full else None, 20: eights(1) if full else None, 21: eights(-1) if full else None,
        22: sum(1 << i for i in lane if i % 3 == 0) % 65536, 23: 1, 24: 0, 25: lane == 0,
        26: x.reshape(-1, 4).sum(axis=1)[lane // 4], 27: x.reshape(-1, 4).max(axis=1)[lane // 4], 28: x[quad + 2], 29: x[lane ^ 3],
        30: np.where(lane % 4 < 3, x[np.minimum(lane + 1, lanes - 1)], x), 31: np.where(lane % 4, x[lane - 1], x), 32: np.cumsum(x.reshape(-1, 4), axis=1).reshape(-1),
        33: 0b1010, 34: lane < 4, 35: lane % 4 == 0, 36: x[quad + (lane - 1) % 4], 37: full, 38: 2 * x.sum(), 39: lanes - 1 - 40,
    }  # fmt: skip
    for k, value in want.items():
        if value is not None:
            np.testing.assert_allclose(got.reshape(lanes, 40)[:, k], np.broadcast_to(np.float32(value), lanes), rtol=1e-6, err_msg=str(k))
    tree = factors
    while full and tree.size > 1:
        tree = tree[::2] * tree[1::2]
    if full:
        np.testing.assert_array_equal(got.reshape(32, 40)[:, 3], tree[0])


def test_what_lies_on_a_stack_survives_the_waits(machine: m.Machine) -> None:
    x = numbers(256)
    results = [run(machine, "long_lived", x, schedule=schedule, checked=checked) for schedule in m.SCHEDULES for checked in (False, True)]
    state = np.stack([x, *(np.full(256, value, np.float32) for value in (1, 2, 3))]).astype(np.float64)
    for _ in range(50):
        s = 0.01 * state.sum(axis=0).reshape(8, 32)
        both = s.sum(axis=1, keepdims=True) + s[:, LANE ^ 1]
        state = 0.9 * state + 0.01 * both.reshape(-1) * np.arange(1, 5)[:, None]
    for got in results:
        np.testing.assert_allclose(got, state.sum(axis=0), rtol=1e-4)
        np.testing.assert_array_equal(got, results[0])


def test_two_os_threads_give_the_bits_of_one(machine: m.Machine) -> None:
    x = numbers(32 * 1024)
    options = {"grid": (x.size, 1, 1), "threadgroup": (64, 1, 1)}
    one = run(machine, "long_lived", x, **options)
    for threads in (2, 3, 2):
        np.testing.assert_array_equal(run(machine, "long_lived", x, threads=threads, **options), one)
    np.testing.assert_array_equal(
        run(machine, "exchange_right", x, grid=(x.size, 1, 1), threads=2).reshape(-1, 128)[:, ::-1].reshape(-1), x
    )


@pytest.mark.parametrize("schedule", m.SCHEDULES)
def test_every_thread_runs_once_and_knows_where_it_stands(machine: m.Machine, schedule: int) -> None:
    """A grid of 7 × 5 × 3 in threadgroups of 4 × 2 × 2: ragged in every direction."""
    out = np.full(7 * 5 * 3 * 8, 0xFFFFFFFF, np.uint32)
    done = machine.launch(
        "positions", [m.guarded(np.zeros(1, np.float32)), got := m.guarded(out)], grid=(7, 5, 3), threadgroup=(4, 2, 2), schedule=schedule
    )
    assert not done.reports
    z, y, x = np.indices((3, 5, 7))
    within, group = (x % 4, y % 2, z % 2), (x // 4, y // 2, z // 2)
    size = (np.minimum(4, 7 - 4 * group[0]), np.minimum(2, 5 - 2 * group[1]), np.minimum(2, 3 - 2 * group[2]))
    index = within[0] + size[0] * (within[1] + size[1] * within[2])

    def digits(v: tuple[Array, ...]) -> Array:
        return v[0] + 10 * v[1] + 100 * v[2]

    volume = size[0] * size[1] * size[2]
    want = [digits(within), digits(group), digits(size), np.full_like(x, 2 + 30 + 200), index, index % 32, index // 32, (volume + 31) // 32]
    np.testing.assert_array_equal(got.reshape(3, 5, 7, 8), np.stack(want, axis=-1))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_never_waits_runs_as_a_plain_loop(machine: m.Machine, threads: int) -> None:
    x = numbers(100_001)
    got = run(machine, "doubled", x, grid=(x.size, 1, 1), threadgroup=(256, 1, 1), loop="doubled_loop", threads=threads)
    np.testing.assert_array_equal(got, 2 * x)


def test_a_random_schedule_can_be_replayed(machine: m.Machine) -> None:
    """`add_across_groups` loses no addition on one OS thread, but adds in the order of the schedule, which shows in the last bits."""
    x = numbers(1024)

    def total(seed: int) -> float:
        out = np.zeros(1, np.float32)
        machine.launch("add_across_groups", [x, out], grid=(1024, 1, 1), schedule=m.RANDOM, seed=seed, initialised=True)
        return float(out[0])

    assert [total(seed) for seed in range(8)] == [total(seed) for seed in range(8)]
    assert len({total(seed) for seed in range(8)}) > 1


def test_launches_that_make_no_sense_are_refused(machine: m.Machine) -> None:
    x = np.zeros(4, np.float32)
    for grid, threadgroup, why in (((2048, 1, 1), (1025, 1, 1), b"1024 threads"), ((0, 1, 1), (1, 1, 1), b"empty")):
        done = machine.launch("sum", [x, x], grid=grid, threadgroup=threadgroup)
        assert (done.code, done.result.status) == (2, 1)
        assert why in done.reports[0].detail


def test_the_runtime_tells_its_version(machine: m.Machine) -> None:
    assert f"#define GCM_ABI {m.c.c_int.in_dll(machine.runtime, 'gcm_abi').value} " in (m.METAL / "include/gcm/abi.h").read_text()
