"""`gradcheck.testing.assert_grads`: a kernel of an op, at inputs of one's own or at a case."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from gradcheck import UsageError
from gradcheck.kernels.ssm_scan.mlx import ssm_scan
from gradcheck.suite import find_op, load
from gradcheck.testing import assert_grads, assert_killed

CASE = "ssm_scan/B1,T4,H2,G1,P1,N2,mamba2/f32/long-memory/0"
SHAPES = {"s": (2, 4, 3, 5), "x": (2, 9, 4, 3), "dt": (2, 9, 4), "A": (4,), "B": (2, 9, 2, 5), "C": (2, 9, 2, 5)}


def inputs(**other) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = {name: rng.standard_normal(other.get(name, shape)).astype(np.float32) for name, shape in SHAPES.items()}
    return {**drawn, "A": -np.abs(drawn["A"])}


def without_dA(s, x, dt, A, B, C):  # noqa: N802 - as the op names it
    return ssm_scan(s, x, dt, mx.stop_gradient(A), B, C)


def test_a_right_kernel_passes_at_given_arrays_by_name_and_by_position():
    assert_grads(ssm_scan, inputs(), op="ssm_scan")
    assert_grads(ssm_scan, [mx.array(value) for value in inputs().values()], op="ssm_scan")


def test_the_branch_is_told_by_the_shapes():
    assert_grads(ssm_scan, inputs(A=(4, 5)), op="ssm_scan")


def test_a_right_kernel_passes_at_a_case():
    assert_grads(ssm_scan, CASE)


def test_a_wrong_kernel_fails_with_gradient_element_and_tolerance():
    with pytest.raises(AssertionError) as told:
        assert_grads(without_dA, inputs(), op="ssm_scan")
    text = str(told.value)
    assert "✗ d A" in text
    assert "✓ d x" in text
    assert "h=" in text
    assert "noise" in text
    with pytest.raises(AssertionError, match="✗ d A"):
        assert_grads(without_dA, CASE)


def test_given_cotangents_are_used():
    zeros = [np.zeros((2, 9, 4, 3), np.float32), np.ones((2, 4, 3, 5), np.float32)]
    assert_grads(ssm_scan, inputs(), op="ssm_scan", cotangents=zeros)
    with pytest.raises(AssertionError, match="✗ d A"):
        assert_grads(without_dA, inputs(), op="ssm_scan", cotangents=zeros)
    with pytest.raises(UsageError, match="the cotangents have shapes"):
        assert_grads(ssm_scan, inputs(), op="ssm_scan", cotangents=zeros[::-1])


@pytest.mark.parametrize(
    "function, given, op, why",
    [
        (ssm_scan, inputs(), "ssm_scn", "did you mean 'ssm_scan'"),
        (ssm_scan, inputs(), "", "op is missing"),
        (ssm_scan, CASE, "mamba2", "is of ssm_scan"),
        (ssm_scan, {**inputs(), "q": inputs()["A"]}, "ssm_scan", "no input of ssm_scan 'q'"),
        (ssm_scan, inputs(A=(5,)), "ssm_scan", "the axis H has 4 elsewhere"),
        (ssm_scan, list(inputs().values())[:5], "ssm_scan", "these 5 inputs are not those of ssm_scan"),
        ("mlx", inputs(), "ssm_scan", "needs a case"),
        (find_op(load(), "ssm_scan"), inputs(), "ssm_scan", "an oracle cannot check itself"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(function, given, op: str, why: str):
    with pytest.raises(UsageError, match=why):
        assert_grads(function, given, op=op)


def test_a_known_defect_is_seen_at_a_case_and_one_that_is_not_there_is_no_kill():
    assert_killed("drop_softplus_slope", "mlx", CASE)
    with pytest.raises(AssertionError, match="SURVIVED  null in mlx"):
        assert_killed("null", "mlx", CASE)
    with pytest.raises(UsageError, match="name the defect"):
        assert_killed("", "mlx", CASE)
    with pytest.raises(UsageError, match="drop_softplus_slope"):
        assert_killed("drop_softplus_slop", "mlx", CASE)


def test_outputs_alone_are_compared_where_that_is_asked():
    assert_grads(without_dA, CASE, forward_only=True)
    with pytest.raises(AssertionError, match="✗ y"):
        assert_grads(lambda *inputs: [1.001 * out for out in ssm_scan(*inputs)], CASE, forward_only=True)
