"""ggml's own forward of the scan and of the gated delta rule. Skipped only where the wheel `libggml-python` is not installed."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck.engine.call import NoBackward, call
from gradcheck.kernels import ggml as library
from gradcheck.kernels.gated_delta import ggml as delta
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


def test_a_ggml_without_the_function_is_named(monkeypatch):
    monkeypatch.setitem(library._SIGNATURES, "ggml_ssm_scam", library._SIGNATURES["ggml_ssm_scan"])
    with pytest.raises(RuntimeError, match=r"has no function ggml_ssm_scam: pip install -U 'libggml-python"):
        library._function("ggml_ssm_scam")


def delta_inputs(*, vector, batch=2, T=9, R=3, Hk=2, Dk=5, Dv=5, seed=0):
    rng = np.random.default_rng(seed)
    head = (batch, T, R, Hk)
    drawn = {
        "q": rng.normal(size=(batch, T, Hk, Dk)),
        "k": rng.normal(size=(batch, T, Hk, Dk)) / np.sqrt(Dk),
        "v": rng.normal(size=(*head, Dv)),
        "g": -(10 ** rng.uniform(-4, 1, (*head, Dk) if vector else head)),
        "beta": rng.uniform(0, 1, head),
        "state": rng.normal(size=(batch, R, Hk, Dv, Dk)),
    }
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def delta_rule(q, k, v, g, beta, state, *, key_head=lambda hv, Hk, r: hv % Hk):
    """ggml's equations head by head in float64, with the value heads in one row; r is the number of value heads per key head."""
    q, k, v, g, beta, state = (a.astype(np.float64) for a in (q, k, v, g, beta, state))
    batch, length, R, Hk, Dv = v.shape
    v, beta, S = v.reshape(batch, length, R * Hk, Dv), beta.reshape(batch, length, R * Hk), state.reshape(batch, R * Hk, Dv, -1).copy()
    decay = np.exp(g).reshape(batch, length, R * Hk, -1)
    y = np.zeros_like(v)
    for b, t, hv in np.ndindex(batch, length, R * Hk):
        h = key_head(hv, Hk, R)
        S[b, hv] *= decay[b, t, hv]
        S[b, hv] += np.outer(beta[b, t, hv] * (v[b, t, hv] - S[b, hv] @ k[b, t, h]), k[b, t, h])
        y[b, t, hv] = S[b, hv] @ q[b, t, h] / np.sqrt(Dv)
    return y.reshape(batch, length, R, Hk, Dv), S.reshape(state.shape)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"Dk": 3}, {"Dv": 1}, {"T": 1, "R": 1}, {"R": 2, "Hk": 3, "Dk": 33, "Dv": 16}], ids=str)
def test_the_gated_delta_rule_agrees_with_the_equations(sizes, vector):
    inputs = delta_inputs(vector=vector, **sizes)
    for got, want in zip(delta.gated_delta.forward(**inputs), delta_rule(**inputs), strict=True):
        assert distance(got, want) <= AGREEMENT


@pytest.mark.parametrize("sizes", [{}, {"R": 2, "Hk": 3}], ids=str)
def test_ggml_has_value_heads_in_tiles_and_not_in_runs(sizes):
    """What the op `gated_delta_ggml` says of ggml is ggml's doing: with mlx-lm's map of heads the agreement is gone."""
    inputs = delta_inputs(vector=False, **sizes)
    found = delta.gated_delta.forward(**inputs)
    for got, want in zip(found, delta_rule(**inputs, key_head=lambda hv, Hk, r: hv // r), strict=True):
        assert distance(got, want) > 1000 * AGREEMENT
