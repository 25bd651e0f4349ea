"""mlx-lm's Metal kernels run checked, as they are installed, and agree with float64 references as far as their roundings allow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from gradcheck.metal.tapping import Captured
from tests.mlx_lm import fused, recurrences
from tests.mlx_lm.bounds import Compared, exact

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what mlx-lm imports warns of itself

DTYPES = (mx.float32, mx.float16, mx.bfloat16)
CASES: dict[str, Callable[[mx.Dtype], list[Compared]]] = {
    "gated delta, scalar": partial(recurrences.gated_delta, "scalar"),
    "gated delta, vector": partial(recurrences.gated_delta, "vector", vector=True),
    "gated delta, masked": partial(recurrences.gated_delta, "masked", masked=True),
    "gated delta, vector masked": partial(recurrences.gated_delta, "vector masked", vector=True, masked=True),
    "gated delta, xtree": partial(recurrences.gated_delta, "xtree"),
    "gated delta, packed": partial(recurrences.gated_delta, "packed"),
    "ssm": recurrences.ssm,
    "wkv7": recurrences.wkv7,
    "qk_norm": fused.qk_norm,
    "qk_norm_rope": fused.qk_norm_rope,
    "rms_norm_sigmoid_gate": fused.rms_norm_sigmoid_gate,
    "norm_add_norm": fused.norm_add_norm,
    "post_expert_norm_combine": fused.post_expert_norm_combine,
    "expert_routing": fused.expert_routing,
    "bitlinear": fused.bitlinear,
    "attention residual": fused.attention_residual,
}
MASKED = {"gated delta, masked", "gated delta, vector masked"}  # 32 lanes write one zero


def checked(case: str, make: Callable[[], list[Compared]], captured: Captured, rows: list[str], dtype: mx.Dtype) -> None:
    del captured.launches[:]
    found = make()
    for one in found:
        mx.eval(one.got)
        rows.append(
            f"{one.name:<32} {str(dtype).rpartition('.')[2]:<9} error {one.error:8.1e} of the largest, {one.ratio:6.3f} of its bound"
        )
    assert captured.launches
    assert {launched.mode for launched in captured.launches} == {"checked"}
    assert [str(finding) for launched in captured.launches for finding in launched.wrong] == []
    assert {finding.kind for finding in captured.findings} == ({"race, same value"} if case in MASKED else set())
    assert {one.name: one.ratio for one in found if not one.ratio <= 1} == {}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).rpartition(".")[2])
@pytest.mark.parametrize("case", CASES)
def test_a_kernel_agrees_with_float64_and_nothing_is_found(case: str, dtype: mx.Dtype, captured: Captured, rows: list[str]):
    checked(case, lambda: CASES[case](dtype), captured, rows, dtype)


def test_sinkhorn_agrees_with_float64_and_nothing_is_found(captured: Captured, rows: list[str]):
    checked("sinkhorn", lambda: fused.sinkhorn(mx.float32), captured, rows, mx.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).rpartition(".")[2])
def test_packed_xtree_and_simd_sum_give_the_same_bits(dtype: mx.Dtype, captured: Captured):
    results = [recurrences.gated_delta(name, dtype) for name in ("packed", "xtree", "unpacked")]
    for outputs in zip(*results, strict=True):
        first, *others = (np.array(one.got.view(mx.uint16 if one.got.itemsize == 2 else mx.uint32)) for one in outputs)
        assert all(np.array_equal(first, other) for other in others), [one.name for one in outputs]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).rpartition(".")[2])
def test_the_bounds_reject_a_result_that_is_off_by_one_step_or_a_percent(dtype: mx.Dtype, captured: Captured):
    for one in recurrences.gated_delta("scalar", dtype)[:1]:
        assert not Compared("a step late", mx.roll(one.got, 1, axis=1), one.want, one.bound).ratio <= 1
        one_percent_off = mx.array((exact(one.got) * 1.01).astype(np.float32))
        assert not Compared("a percent", one_percent_off, one.want, one.bound).ratio <= 1
