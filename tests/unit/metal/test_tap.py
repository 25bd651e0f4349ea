"""Within a tap every launch is seen, and behind it everything is as before."""

from __future__ import annotations

import mlx.core as mx
import pytest

from gradcheck.metal import metal_kernel, tap

ORIGINAL = mx.fast.metal_kernel


def launch(kernel) -> None:
    kernel(inputs=[mx.ones(9)], output_shapes=[(9,)], output_dtypes=[mx.float32], grid=(9, 1, 1), threadgroup=(9, 1, 1))


def make(name: str = "k"):
    return mx.fast.metal_kernel(name=name, input_names=["a"], output_names=["out"], source="out[thread_position_in_grid.x] = a[0];")


def test_mlx_s_function_is_replaced_within_and_restored_after():
    with tap(mode="plain") as captured:
        assert mx.fast.metal_kernel is metal_kernel
        launch(make())
    assert mx.fast.metal_kernel is ORIGINAL
    (seen,) = captured.launches
    assert (seen.text.name, seen.place, seen.mode, seen.grid, seen.threadgroup) == ("k", "metal-cpu", "plain", (9, 1, 1), (9, 1, 1))
    assert captured.sources["k"].startswith("[[kernel]] void custom_kernel_k_float32_float32(\n  const device float* a [[buffer(0)]],")


def test_it_is_restored_after_an_error():
    with pytest.raises(KeyError), tap():
        raise KeyError
    assert mx.fast.metal_kernel is ORIGINAL


def test_a_kernel_of_the_block_stays_ours_and_is_no_longer_seen():
    with tap(mode="plain") as captured:
        kernel = make()
    launch(kernel)
    assert captured.launches == []


def test_a_kernel_of_ours_is_seen_whenever_it_was_made():
    kernel = metal_kernel("early", ["a"], ["out"], "out[thread_position_in_grid.x] = a[0];")
    with tap(mode="plain") as captured:
        launch(kernel)
    assert list(captured.sources) == ["early"]


def test_taps_nest():
    with tap(mode="plain") as outer:
        with tap() as inner:
            launch(make("both"))
        launch(make("one"))
    assert (list(outer.sources), list(inner.sources)) == (["both", "one"], ["both"])


def test_programs_that_ask_for_a_gpu_are_told_there_is_one():
    before = mx.metal.is_available()
    with tap(pretend_gpu=True):
        assert mx.metal.is_available()
        assert mx.default_device() == mx.gpu
    assert mx.metal.is_available() == before


def test_settings_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match=r"no mode 'careful'.*checked, plain"), tap(mode="careful"):
        pass
    with pytest.raises(ValueError, match="no schedule 'fair'"), tap(schedule="fair"):
        pass
    assert mx.fast.metal_kernel is ORIGINAL
