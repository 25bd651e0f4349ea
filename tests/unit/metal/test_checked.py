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


def run(source: str, header: str = "", *, size: int = 64, **settings: object) -> mx.array:
    kernel = metal_kernel("k", ["a"], ["out"], source, header)
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


@pytest.mark.parametrize(
    "wrong, right, column",
    [
        ("float4 v = *(const device float4*)(a + 1);\nout[e] = v.x;", ("a + 1", "a + 4"), 12),
        ("float4 v; v = *(const device float4*)(a + 1);\nout[e] = v.x;", ("a + 1", "a + 4"), 13),
        ("out[e] = dot(*(const device float4*)(a + 1), float4(1));", ("a + 1", "a + 4"), 10),
        ("if (e < 15) ((device float4*)(out + 1))[e] = float4(1); if (e < 1 || e > 60) out[e] = 2;", ("1 || e > 60", "4"), 44),
    ],
)
def test_a_vector_that_is_copied_from_or_to_where_it_may_not_lie_is_told(wrong: str, right: tuple[str, str], column: int):
    with pytest.raises(KernelFault) as caught:
        run(f"uint e = thread_position_in_grid.x;\n{wrong}")
    (found,) = [one for one in caught.value.findings if one.kind == "misaligned access"]
    assert (found.places[0].line, found.places[0].column) == (2, column)
    assert "16 bytes at '" in found.message
    aligned = wrong.replace(*right).replace("out + 1", "out + 4")
    assert run(f"uint e = thread_position_in_grid.x;\n{aligned}", schedule="reverse").size == 64


def test_a_union_with_a_vector_is_copied_as_in_metal():
    header = "union U { float4 v; float f[4]; };\n"
    source = "uint e = thread_position_in_grid.x; U u; u.v = float4(a[e], 2, 3, 4); U w = u; out[e] = w.f[0] + w.f[3];"
    assert run(source, header).tolist() == [e + 4 for e in range(64)]


@pytest.mark.parametrize("mode", ["checked", "plain"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_that_call_one_function_from_both_sides_of_a_branch_do_not_meet_in_it(mode: str, schedule: str):
    # Of each 32 lanes 10 add ones and 22 add twos, apart; then all add 1 together, in a function that calls another one: 10 + 3200, 44 + 3200.
    header = "float total(float x) { return simd_sum(x); }\nfloat outer(float x) { return total(x); }\n"
    source = """uint e = thread_position_in_grid.x;
    float x;
    if (e % 32 < 10) x = outer(1); else x = outer(2);
    out[e] = x + 100 * outer(1);
    """
    assert run(source, header, mode=mode, schedule=schedule).tolist() == ([3210] * 10 + [3244] * 22) * 2


@pytest.mark.parametrize("mode", ["checked", "plain"])
def test_more_than_32_kb_of_threadgroup_memory_are_refused_with_the_line(mode: str):
    source = "threadgroup float s[4096];\nthreadgroup float t[4096{}];\ns[0] = t[0] = 1; out[thread_position_in_grid.x] = 1;"
    (found,) = faults(source.format(" + 1"), mode=mode)
    assert (found.kind, str(found.places[0]), found.buffer) == ("too much threadgroup memory", "k.metal:2:1", "t")
    assert "32772 bytes of threadgroup memory with this variable; the limit is 32768" in found.message
    assert run(source.format(""), mode="plain").tolist() == [1] * 64


@pytest.mark.parametrize(
    "source, lines",
    [
        ("while (a[0] == 0) {\n  threadgroup_barrier(mem_flags::mem_device);\n}", {1, 2}),  # in the read, or at the barrier
        ("float x = 0;\nwhile (x < 1) x =\nsimd_max(x);", {3}),
        ("float x = 0;\nwhile (x < 1)\n  x = ((volatile device float*)a)[0];\nout[0] = x;", {3}),
    ],
)
@pytest.mark.parametrize("schedule", ["in-order", "random"])
def test_a_kernel_that_goes_on_for_ever_is_given_up_with_its_line(source: str, lines: set[int], schedule: str):
    (found,) = faults(source, schedule=schedule, seconds=1.0)
    assert found.kind == "out of time"
    assert found.places[0].line in lines
    assert "still running after 1 s" in found.message


def test_a_hang_is_an_outcome_and_the_next_kernel_runs():
    with pytest.raises(KernelDied, match=r"'k' died on the CPU: timeout, no answer within 5 s"):
        run("volatile int go = 1; while (go) { } out[0] = 1;", seconds=3.0)
    assert run(REVERSE, seconds=60.0)[0].item() == 63


def test_in_plain_mode_a_wild_access_is_an_error_and_the_process_lives():
    with pytest.raises(KernelFault, match="Segmentation fault"):
        run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x + 100000];", mode="plain")
