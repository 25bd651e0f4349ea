from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradcheck
from gradcheck import Edit
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.ssm_scan.autodiff import ssm_scan
from gradcheck.kernels.ssm_scan.mlx import ssm_scan as by_hand

from .scan import BRANCHES, EPS, ROUNDINGS, central_differences, distance, draw, run

PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "ssm_scan"


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("T", [1, 5])
def test_what_mlx_derives_are_the_central_differences_of_the_equations(branch, T):
    inputs, cotangents = draw(branch, T=T)
    _, gradients = run(ssm_scan, inputs, cotangents)
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


@pytest.mark.parametrize("branch", BRANCHES)
def test_its_outputs_are_those_of_the_kernel_with_a_backward(branch):
    inputs, cotangents = draw(branch, T=9, N=17)
    outputs, same = (run(kernel, inputs, cotangents)[0] for kernel in (ssm_scan, by_hand))
    assert all(np.array_equal(a, b) for a, b in zip(outputs, same, strict=True))


@pytest.mark.checkout
def test_a_mistake_in_the_backward_by_hand_does_not_reach_it(tmp_path):
    inputs, cotangents = draw("mamba1")
    edit = Edit("mlx.py", "dstep = input_path + dA_path", "dstep = input_path")
    copy = copy_with_edit(PACKAGE, edit, "drop_dA_path", tmp_path)
    for module, reached in (("mlx", True), ("autodiff", False)):
        _, right = run(load_package(PACKAGE, module, "ssm_scan"), inputs, cotangents)
        _, found = run(load_package(copy, module, "ssm_scan"), inputs, cotangents)
        assert np.array_equal(right["dt"], found["dt"]) is not reached
