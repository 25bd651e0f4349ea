from __future__ import annotations

import numpy as np
import pytest

from gradcheck.kernels.ssm_scan.autodiff import ssm_scan
from gradcheck.kernels.ssm_scan.mlx import ssm_scan as by_hand

from .scan import BRANCHES, EPS, ROUNDINGS, central_differences, distance, draw, run


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("T", [1, 5])
def test_what_mlx_derives_are_the_central_differences_of_the_equations(branch, T):
    inputs, cotangents = draw(branch, T=T)
    _, gradients = run(ssm_scan, inputs, cotangents)
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


@pytest.mark.parametrize("branch", BRANCHES)
def test_its_outputs_are_those_of_the_kernel_with_a_backward_and_its_gradients_are_not_that_backward(branch):
    inputs, cotangents = draw(branch, T=9, N=17)
    (outputs, gradients), (same, others) = (run(kernel, inputs, cotangents) for kernel in (ssm_scan, by_hand))
    assert all(np.array_equal(a, b) for a, b in zip(outputs, same, strict=True))
    assert any(not np.array_equal(gradients[name], others[name]) for name in gradients)  # other roundings: another backward
