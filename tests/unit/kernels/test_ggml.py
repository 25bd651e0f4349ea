"""ggml's own forward. Skipped only where the wheel `libggml-python` is not installed."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck.engine.call import NoBackward, call
from gradcheck.kernels.ssm_scan import ggml

from .scan import BRANCHES, NAMES, distance, draw, reference

pytest.importorskip("libggml", reason="the extra `ggml` is not installed: pip install 'gradcheck[ggml]'")

AGREEMENT = 5e-6  # relative to the largest element: what is promised of ggml's forward

SHAPES = [
    {},
    {"batch": 1, "T": 1, "H": 2, "P": 1, "N": 1, "G": 1},
    {"batch": 3, "T": 65, "H": 6, "P": 33, "N": 37, "G": 3},
    {"batch": 2, "T": 5, "H": 3, "P": 5, "N": 65, "G": 3},
]


def compare(inputs, cotangents):
    got = call(
        ggml.ssm_scan, inputs, cotangents, dtype="f32", output_shapes=[w.shape for w in cotangents], differentiable=NAMES, forward_only=True
    )
    assert (got.gradients, got.notes) == ((), ())
    return [distance(out.value, want) for out, want in zip(got.outputs, reference(**inputs), strict=True)]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_it_agrees_with_the_equations(branch, sizes):
    assert max(compare(*draw(branch, **sizes))) <= AGREEMENT


def test_groups_and_sequences_are_told_apart():
    """The comparison above would see a wrong map of heads to groups, or states of another sequence."""
    inputs, cotangents = draw("mamba2", batch=2, H=4, G=2)
    right = reference(**inputs)
    for name, axis in (("B", 2), ("C", 2), ("s", 0)):
        wrong = reference(**{**inputs, name: np.flip(inputs[name], axis)})
        assert distance(wrong[0], right[0]) > 1000 * AGREEMENT
    assert max(compare(inputs, cotangents)) <= AGREEMENT


def test_a_transposed_input_arrives_as_its_elements_say():
    inputs, _ = draw("mamba1", P=2, N=2)
    arrays = {name: value.astype(np.float32) for name, value in inputs.items()}
    flipped = np.ascontiguousarray(arrays["s"].swapaxes(2, 3)).swapaxes(2, 3)
    assert not flipped.flags.c_contiguous
    for got, want in zip(ggml.ssm_scan.forward(**{**arrays, "s": flipped}), ggml.ssm_scan.forward(**arrays), strict=True):
        assert np.array_equal(got, want)


def test_it_has_no_backward_and_says_so():
    inputs, cotangents = draw("mamba2")
    with pytest.raises(NoBackward, match="--forward-only"):
        call(ggml.ssm_scan, inputs, cotangents, dtype="f32", output_shapes=[w.shape for w in cotangents], differentiable=NAMES)


def test_a_ggml_without_the_function_is_named():
    with pytest.raises(RuntimeError, match=r"has no function ggml_ssm_scam: pip install -U 'libggml-python"):
        ggml._function([], ggml._folder(), "ggml_ssm_scam", None, [])
