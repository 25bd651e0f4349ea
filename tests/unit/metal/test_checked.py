"""In checked mode what a kernel may not do is told with its place, and what it does to its process is an outcome."""

from __future__ import annotations

import mlx.core as mx
import pytest

from gradcheck import metal
from gradcheck.metal import KernelDied, KernelFault, configured, metal_kernel, tap
from gradcheck.metal.settings import SCHEDULES

REVERSE = """threadgroup float s[64];
uint l = thread_position_in_threadgroup.x;
s[l] = a[l];
threadgroup_barrier(mem_flags::mem_threadgroup);
out[l] = s[63 - l];
"""


def run(source: str, *, size: int = 64, **settings: object) -> mx.array:
    kernel = metal_kernel("k", ["a"], ["out"], source)
    with configured(**settings):
        (out,) = kernel(
            inputs=[mx.arange(size).astype(mx.float32)],
            output_shapes=[(size,)],
            output_dtypes=[mx.float32],
            grid=(size, 1, 1),
            threadgroup=(size, 1, 1),
        )
    return out


def faults(source: str, **settings: object) -> list[metal.Finding]:
    with pytest.raises(KernelFault) as caught:
        run(source, **settings)
    return list(caught.value.findings)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_right_kernel_gives_no_report_under_any_schedule(schedule: str):
    assert run(REVERSE, schedule=schedule, seed=3).tolist() == list(range(63, -1, -1))


def test_a_deleted_barrier_is_a_race_with_both_places():
    found = [one for one in faults(REVERSE.replace("threadgroup_barrier", "// ")) if one.kind in {"race", "uninitialised read"}]
    races = [one for one in found if one.kind == "race"]
    assert races
    assert {(spot.file, spot.line, spot.column) for one in races for spot in one.places} == {("k.metal", 3, 6), ("k.metal", 5, 10)}
    assert races[0].buffer == "s"


def test_an_access_out_of_bounds_has_its_place_and_how_far_it_is():
    (found, *_) = faults("uint e = thread_position_in_grid.x;\nout[e] = a[e + 1];")
    assert (found.kind, found.buffer, found.offset) == ("out of bounds", "a", 0)
    assert str(found.places[0]) == "k.metal:2:10"
    assert found.places[0].text == "out[e] = a[e + 1];"
    assert "k.metal:2:10: out of bounds: read of 4 bytes, 0 bytes past the end of 'a', by thread 63" in str(found)
    assert "\n    out[e] = a[e + 1];\n             ^" in str(found)


def test_a_place_behind_rewritten_text_has_the_column_of_the_original():
    source = (
        "threadgroup float s[64]; s[thread_position_in_threadgroup.x] = 1; for (int i = 0; i < 1; i++) { out[0] = simd_sum(1.0f) + a[64]; }"
    )
    found = next(one for one in faults(source) if one.kind == "out of bounds")
    assert found.places[0].column == source.index("a[64]") + 1


def test_an_output_that_is_not_written_is_told():
    (found,) = faults("if (thread_position_in_grid.x != 5) out[thread_position_in_grid.x] = 1;")
    assert (found.kind, found.buffer, found.offset) == ("unwritten output", "out", 20)


def test_a_barrier_that_some_threads_do_not_reach_is_told_with_its_line():
    found = faults("uint e = thread_position_in_grid.x;\nout[e] = 1;\nif (e > 3) return;\nthreadgroup_barrier(mem_flags::mem_none);")
    assert [(one.kind, one.places[0].line) for one in found] == [("barrier divergence", 4)]


def test_the_same_value_by_many_threads_is_told_and_is_no_fault():
    with tap() as captured:
        out = run("out[0] = 1; out[thread_position_in_grid.x] = 1;")
    assert out.tolist() == [1] * 64
    assert {one.kind for one in captured.findings} == {"race, same value"}
    assert captured.launches[0].wrong == ()


def test_findings_can_be_kept_for_the_tap():
    with tap(keep_going=True) as captured:
        run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x + 1];")
    assert [one.kind for one in captured.findings] == ["out of bounds"]


def test_the_launch_is_told_before_the_fault_is_raised():
    with tap() as captured, pytest.raises(KernelFault):
        run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x + 1];")
    assert len(captured.launches) == 1


def test_a_hang_is_an_outcome_and_the_next_kernel_runs():
    with pytest.raises(KernelDied, match=r"'k' died on the CPU: timeout, no answer within 3 s"):
        run("volatile int go = 1; while (go) { } out[0] = 1;", seconds=3.0)
    assert run(REVERSE, seconds=60.0)[0].item() == 63


def test_in_plain_mode_a_wild_access_is_an_error_and_the_process_lives():
    with pytest.raises(KernelFault, match="Segmentation fault"):
        run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x + 100000];", mode="plain")
