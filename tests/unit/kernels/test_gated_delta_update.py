"""The gated delta rule with the parameters of its gate: a drop-in of mlx-lm's function, and right where its gate and beta saturate."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import gradcheck
from gradcheck.kernels.gated_delta import gate, update
from gradcheck.kernels.gated_delta.update import gated_delta_update_vjp
from gradcheck.metal import NoCompilerError, place
from gradcheck.metal.toolchain import find

NAMES = ("q", "k", "v", "a", "b", "A_log", "dt_bias", "state")

U = 2.0**-24
"""Unit roundoff of float32."""

ROUNDINGS = 256
"""Of a value at these sizes, in units of the largest element: sums over steps and channels, and a logarithm of a gate of up to -15."""

DIFFERENCES = 2.0**-20
"""What a central difference in float64 with a step of 2^-16 may be off, in units of the largest element of its gradient."""

BRANCHES = {
    "scalar": {},
    "vector": {"vector": True},
    "bounded": {"lower_bound": -5.0},
    "vector-bounded": {"vector": True, "lower_bound": -5.0},
    "doubled": {"allow_neg_eigval": True},
}
PATHS = ("autodiff", "checkpointed", "chunkwise")

CURVES = 1e-4
"""What two loss curves may be apart, relative to them: Adam turns a rounding of a gradient near 0 into one of its own step."""


def nothing_runs_metal():
    """Why not, or nothing."""
    if place() == "metal":
        return ""
    try:
        find()
    except NoCompilerError as error:
        return str(error)
    return ""


def draw(seed=0, *, vector=False, T=5, B=2, Hk=2, r=3, Dk=5, Dv=3, **options):
    """Inputs by name, in float64 numbers that float32 holds exactly; the other options are those of the function."""
    rng = np.random.default_rng(seed)
    Hv = Hk * r
    k = rng.normal(size=(B, T, Hk, Dk))
    inputs = {
        "q": rng.normal(size=(B, T, Hk, Dk)),
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": rng.normal(size=(B, T, Hv, Dv)),
        "a": rng.normal(size=(B, T, Hv, Dk) if vector else (B, T, Hv)),
        "b": rng.normal(size=(B, T, Hv)),
        "A_log": rng.uniform(-1, 0.5, (Hv, 1) if vector else Hv),
        "dt_bias": rng.normal(size=(Hv, Dk) if vector else Hv),
        "state": rng.normal(size=(B, Hv, Dv, Dk)),
    }
    return {name: value.astype(np.float32).astype(np.float64) for name, value in inputs.items()}, options


def weights(inputs):
    rng = np.random.default_rng(7)
    return [rng.uniform(0.5, 1.5, inputs[name].shape).astype(np.float32).astype(np.float64) for name in ("v", "state")]


def reference(inputs, mask=None, *, lower_bound=None, allow_neg_eigval=False):
    """y and the final state in float64, step by step, from the equations of the docstring."""
    q, k, v, a, b, A_log, dt_bias, S = inputs.values()
    z, rate = a + dt_bias, np.exp(A_log)
    g = np.exp(-rate * np.logaddexp(z, 0)) if lower_bound is None else np.exp(lower_bound / (1 + np.exp(-rate * z)))
    g = g[..., None, None] if a.ndim == 3 else g[..., None, :]
    beta = (1 + allow_neg_eigval) / (1 + np.exp(-b))
    q, k = (np.repeat(x, v.shape[2] // k.shape[2], axis=2) for x in (q, k))
    y = np.zeros_like(v)
    for t in range(v.shape[1]):
        decayed = S * g[:, t]
        error = v[:, t] - np.einsum("bhvk,bhk->bhv", decayed, k[:, t])
        new = decayed + np.einsum("bhv,bhk->bhvk", beta[:, t, :, None] * error, k[:, t])
        kept = np.ones(len(v), bool) if mask is None else mask[:, t]
        y[:, t] = np.where(kept[:, None, None], np.einsum("bhvk,bhk->bhv", new, q[:, t]), 0)
        S = np.where(kept[:, None, None, None], new, S)
    return y, S


def central(inputs, name, h=2.0**-16, **options):
    """The gradient of <w, outputs> in one input, element by element: the outputs are float64 and smooth, so h^2 is what is lost."""
    w = weights(inputs)
    found = np.zeros_like(inputs[name])
    for index in np.ndindex(found.shape):
        moved = [dict(inputs), dict(inputs)]
        for one, sign in zip(moved, (1, -1), strict=True):
            one[name] = inputs[name].copy()
            one[name][index] += sign * h
        high, low = (sum((u * out).sum() for u, out in zip(w, reference(one, **options), strict=True)) for one in moved)
        found[index] = (high - low) / (2 * h)
    return found


def results(function, inputs, dtype=mx.float32, **options):
    """Outputs, and gradients by name."""
    arrays = [mx.array(value.astype(np.float32)).astype(dtype) for value in inputs.values()]
    cotangents = [mx.array(w.astype(np.float32)) for w in weights(inputs)]
    outputs, gradients = mx.vjp(lambda *x: [out.astype(mx.float32) for out in function(*x, **options)], arrays, cotangents)
    as_numpy = [np.array(x.astype(mx.float32)) for x in (*outputs, *gradients)]
    return as_numpy[:2], dict(zip(NAMES, as_numpy[2:], strict=True))


def worst(got, want):
    """The largest difference, relative to the largest element; infinite where one is not finite."""
    off = np.abs(got - want).max() / max(np.abs(want).max(), U)
    return off if np.isfinite(off) else np.inf


def mask_of(T, B=2):
    mask = np.random.default_rng(T).random((B, T)) < 0.6
    mask[0] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("branch", BRANCHES)
def test_outputs_and_all_eight_gradients_are_those_of_the_equations(branch, masked):
    inputs, options = draw(T=3, Dk=3, Dv=2, **BRANCHES[branch])
    mask = mask_of(3) if masked else None
    want = reference(inputs, mask, **options)
    want_gradients = {name: central(inputs, name, mask=mask, **options) for name in NAMES}
    for path in PATHS:
        outputs, gradients = results(gated_delta_update_vjp, inputs, mask=None if mask is None else mx.array(mask), path=path, **options)
        assert max(map(worst, outputs, want)) <= ROUNDINGS * U
        for name in NAMES:
            assert worst(gradients[name], want_gradients[name]) <= ROUNDINGS * U + DIFFERENCES, name


@pytest.mark.parametrize("T", [1, 16, 17, 33, 64, 65])
@pytest.mark.parametrize("branch", BRANCHES)
def test_one_step_a_chunk_and_a_step_more_are_step_by_step(branch, T):
    inputs, options = draw(T, T=T, **BRANCHES[branch])
    want, want_gradients = results(gated_delta_update_vjp, inputs, path="autodiff", **options)
    got, gradients = results(gated_delta_update_vjp, inputs, path="chunkwise", **options)
    assert max(map(worst, got, want)) <= ROUNDINGS * U
    assert max(worst(gradients[name], want_gradients[name]) for name in NAMES) <= ROUNDINGS * U


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("branch", BRANCHES)
def test_a_mask_that_keeps_every_step_changes_no_bit(branch, path):
    inputs, options = draw(T=20, **BRANCHES[branch])
    plain, gradients = results(gated_delta_update_vjp, inputs, path=path, **options)
    masked, masked_gradients = results(gated_delta_update_vjp, inputs, path=path, mask=mx.ones((2, 20), mx.bool_), **options)
    assert all(np.array_equal(x, y) for x, y in zip(plain, masked, strict=True))
    assert all(np.array_equal(gradients[name], masked_gradients[name]) for name in NAMES)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("branch", BRANCHES)
def test_half_a_sequence_masked_carries_the_state_and_sends_nothing_back(branch, path):
    inputs, options = draw(T=20, **BRANCHES[branch])
    mask = np.ones((2, 20), bool)
    mask[:, 10:] = False
    outputs, gradients = results(gated_delta_update_vjp, inputs, path=path, mask=mx.array(mask), **options)
    first = {name: value[:, :10] if name in {"q", "k", "v", "a", "b"} else value for name, value in inputs.items()}
    assert worst(outputs[1], reference(first, **options)[1]) <= ROUNDINGS * U
    assert not outputs[0][:, 10:].any()
    assert all(not gradients[name][:, 10:].any() and gradients[name][:, :10].any() for name in ("q", "k", "v", "a", "b"))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("vector", [False, True])
def test_a_gate_that_underflows_is_finite_and_sends_exactly_nothing_back(vector, path):
    inputs, _ = draw(T=9, vector=vector)
    inputs["A_log"][:] = 5
    inputs["a"][:] = 15
    inputs["dt_bias"][:] = 0
    assert not np.array(gate.decay(*(mx.array(inputs[name].astype(np.float32)) for name in ("a", "A_log", "dt_bias")))).any()
    outputs, gradients = results(gated_delta_update_vjp, inputs, path=path)
    assert all(np.isfinite(x).all() for x in (*outputs, *gradients.values()))
    assert not any(gradients[name].any() for name in ("a", "A_log", "dt_bias", "state"))
    assert all(gradients[name].any() for name in ("q", "k", "v", "b"))


def slope(function, at, by=1.0):
    """The derivative of a function of one array, element by element."""
    _, (found,) = mx.vjp(lambda x: [function(x)], [mx.array(at, mx.float32)], [mx.full((len(at),), by)])
    return np.array(found, np.float64)


def test_beta_has_a_slope_where_one_less_beta_is_lost():
    b = np.array([-80.0, -20.0, -1.0, 0.0, 1.0, 17.0, 20.0, 80.0])
    want = np.exp(-np.abs(b)) / (1 + np.exp(-np.abs(b))) ** 2
    assert np.abs(slope(gate.strength, b) / want - 1).max() <= 8 * U
    assert np.abs(slope(lambda b: gate.strength(b, allow_neg_eigval=True), b) / (2 * want) - 1).max() <= 8 * U
    assert np.abs(slope(mx.sigmoid, b) / want - 1).max() == 1  # MLX's own slope there, for which this one is made


def test_a_bounded_gate_has_a_slope_where_its_sigmoid_saturates():
    a = np.array([-20.0, -5.0, 0.0, 5.0, 20.0])
    one = mx.zeros((1,))

    def at(a):
        return gate.decay(a[:, None], one, one, lower_bound=-5.0)[:, 0]

    s, s_less = 1 / (1 + np.exp(-a)), 1 / (1 + np.exp(a))
    want = np.exp(-5 * s) * -5 * s * s_less
    assert np.abs(slope(at, a) / want - 1).max() <= 32 * U


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("path", PATHS)
def test_y_has_the_dtype_of_q_the_state_its_own_and_each_gradient_that_of_its_input(path, dtype):
    inputs, _ = draw(T=6)
    arrays = [mx.array(value.astype(np.float32)).astype(dtype) for value in inputs.values()]
    y, last = gated_delta_update_vjp(*arrays, path=path)
    _, fresh = gated_delta_update_vjp(*arrays[:7], path=path)
    assert (y.dtype, last.dtype, fresh.dtype) == (dtype, dtype, mx.float32)
    gradients = mx.grad(lambda *x: gated_delta_update_vjp(*x, path=path)[0].sum(), argnums=list(range(8)))(*arrays)
    assert [x.dtype for x in gradients] == [dtype] * 8


def test_no_state_is_a_state_of_zeros():
    inputs, _ = draw(T=6)
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    given = gated_delta_update_vjp(*arrays[:7], mx.zeros(arrays[7].shape))
    assert all(mx.array_equal(x, y) for x, y in zip(gated_delta_update_vjp(*arrays[:7]), given, strict=True))


def test_the_paths_that_the_op_names_take_their_inputs_by_place():
    inputs, _ = draw(T=6, vector=True)
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    mask = mx.array(mask_of(6))
    want = gated_delta_update_vjp(*arrays, mask, lower_bound=-5.0, allow_neg_eigval=True, path="chunkwise", chunk=16)
    arrays[5] = arrays[5][:, 0]
    got = update.chunkwise(*arrays, mask, mx.array(-5.0), mx.array(True), chunk=16)
    assert all(mx.array_equal(x, y) for x, y in zip(got, want, strict=True))


def test_which_path_is_taken_depends_on_the_device_and_the_length(monkeypatch):
    assert (update.path_of(1), update.path_of(1000)) == ("autodiff", "chunkwise")
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
    assert update.path_of(1000) == "metal"


@pytest.mark.parametrize("T, path", [(1, "autodiff"), (70, "chunkwise")])
def test_the_path_that_is_said_is_the_path_that_is_taken(T, path, monkeypatch):
    inputs, _ = draw(T=T)
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    taken = []
    plain = update._kernel
    monkeypatch.setattr(update, "_kernel", lambda path: taken.append(path) or plain(path))
    gated_delta_update_vjp(*arrays)
    assert taken == [path] == [update.path_of(T)]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"A_log": (6, 5)}, r"A_log has shape \(6, 5\), need \(6,\)"),
        ({"a": (2, 5, 6, 5)}, r"A_log has shape \(6,\), need \(6, 1\) or \(6, 5\)"),
        ({"a": (2, 5, 2)}, r"a has shape \(2, 5, 2\), need \(2, 5, 6\) or \(2, 5, 6, 5\)"),
        ({"b": (2, 5, 6, 1)}, r"b has shape \(2, 5, 6, 1\), need \(2, 5, 6\)"),
        ({"k": (2, 5, 2, 4)}, r"k has shape \(2, 5, 2, 4\), need \(2, 5, 2, 5\)"),
        ({"v": (2, 5, 5, 3)}, "v has 5 heads, need a multiple of the 2 of q and k"),
        ({"v": (2, 4, 6, 3)}, r"v has shape \(2, 4, 6, 3\), need \(2, 5, 6, 3\)"),
        ({"v": (2, 5, 6)}, r"v has shape \(2, 5, 6\), need 4 axes"),
        ({"q": (2, 0, 2, 5)}, r"q has shape \(2, 0, 2, 5\), need 4 axes, none of them empty"),
        ({"state": (1, 6, 3, 5)}, r"state has shape \(1, 6, 3, 5\), need \(2, 6, 3, 5\)"),
        ({"mask": (2, 5, 1)}, r"mask has shape \(2, 5, 1\), need \(2, 5\)"),
        ({"mask": (1, 5)}, r"mask has shape \(1, 5\), need \(2, 5\)"),
        ({"lower_bound": 0.0}, "lower_bound is 0.0, need a number below 0"),
        ({"path": "metl"}, "path is 'metl', need one of autodiff, checkpointed, chunkwise, metal, or None"),
        ({"path": "autodiff", "chunk": 16}, "chunk is 16, but the path autodiff has none"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(changes, says):
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in draw()[0].items()}
    given = {name: mx.zeros(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    with pytest.raises(ValueError, match=f"gated_delta_update_vjp: {says}"):
        gated_delta_update_vjp(**{**arrays, **given})


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"q": np.zeros((2, 5, 2, 5))}, r"q is of type numpy.ndarray, need an MLX array \[B, T, Hk, Dk\]; mx.array\(q\) makes one"),
        ({"v": np.zeros((2, 5, 6, 3))}, "v is of type numpy.ndarray"),
        ({"a": np.zeros((2, 5, 6))}, "a is of type numpy.ndarray"),
        ({"A_log": np.zeros(6)}, r"A_log is of type numpy.ndarray, need an MLX array \[Hv\], or \[Hv, 1\] of a gate per key channel"),
        ({"mask": np.ones((2, 5), bool)}, r"mask is of type numpy.ndarray, need an MLX array \[B, T\], or None"),
        ({"v": None}, r"v is None, need an MLX array \[B, T, Hv, Dv\]"),
        ({"A_log": 0.5}, r"A_log is of type float, need an MLX array \[Hv\]"),
        ({"state": 0}, r"state is of type int, need an MLX array \[B, Hv, Dv, Dk\], or None"),
        ({"q": mx.zeros((2, 5, 2, 5), mx.int32)}, r"q has dtype int32, need one of floating-point numbers; give q.astype\(mx.float32\)"),
        ({"b": mx.zeros((2, 5, 6), mx.complex64)}, "b has dtype complex64"),
    ],
)
def test_what_is_no_array_of_floats_is_named_with_what_to_give(changes, says):
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in draw()[0].items()}
    with pytest.raises(TypeError, match=f"gated_delta_update_vjp: {says}"):
        gated_delta_update_vjp(**{**arrays, **changes})


def test_a_size_of_chunk_does_not_stop_at_a_sequence_that_is_too_short_for_one():
    """In a training loop the lengths differ and `chunk` does not."""
    arrays = [mx.array(value.astype(np.float32)) for value in draw(T=update.SHORT)[0].values()]
    given, alone = (gated_delta_update_vjp(*arrays, **options) for options in ({"chunk": 16}, {}))
    assert all(mx.array_equal(x, y) for x, y in zip(given, alone, strict=True))


@pytest.mark.parametrize(
    "path", [*PATHS, pytest.param("metal", marks=pytest.mark.skipif(bool(nothing_runs_metal()), reason=nothing_runs_metal()))]
)
def test_a_mask_of_ones_and_zeros_is_one_of_truths(path):
    arrays = [mx.array(value.astype(np.float32)) for value in draw(T=6)[0].values()]
    mask = mx.array(mask_of(6))
    truths, numbers = (gated_delta_update_vjp(*arrays, mask.astype(kind), path=path) for kind in (mx.bool_, mx.int32))
    assert all(mx.array_equal(x, y) for x, y in zip(truths, numbers, strict=True))


def test_mlx_lms_arguments_are_taken_by_name_and_place():
    taken = list(inspect.signature(gated_delta_update_vjp).parameters.items())
    assert [name for name, _ in taken[:12]] == [*NAMES, "mask", "use_kernel", "lower_bound", "allow_neg_eigval"]
    assert all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for _, parameter in taken[:9])
    assert all(parameter.kind is parameter.KEYWORD_ONLY for _, parameter in taken[9:])
    assert [parameter.default for _, parameter in taken[7:12]] == [None, None, True, None, False]


@pytest.fixture
def example():
    """The script that trains a layer, as a module."""
    path = Path(gradcheck.__file__).parents[1] / "examples" / "train_gated_delta.py"
    spec = importlib.util.spec_from_file_location("train_gated_delta", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.checkout
def test_the_example_learns_and_by_every_path_alike(example, monkeypatch):
    monkeypatch.setattr(example, "STEPS", 12)
    curve = np.array(example.train("autodiff"))
    assert curve[-1] < 0.75 * curve[0]
    assert np.abs(np.array(example.train("chunkwise")) / curve - 1).max() <= CURVES


@pytest.mark.checkout
@pytest.mark.skipif(bool(nothing_runs_metal()), reason=nothing_runs_metal() or "metal runs here")
def test_the_example_learns_by_metal_too(example, monkeypatch):
    monkeypatch.setattr(example, "STEPS", 3)
    curves = [example.train(path) for path in ("autodiff", "metal")]
    assert np.abs(np.divide(*curves) - 1).max() <= CURVES


@pytest.mark.skipif(bool(nothing_runs_metal()), reason=nothing_runs_metal() or "metal runs here")
@pytest.mark.parametrize("branch", BRANCHES)
def test_metal_gives_what_plain_ops_give(branch):
    inputs, options = draw(T=7, **BRANCHES[branch])
    mask = mx.array(mask_of(7))
    want, want_gradients = results(gated_delta_update_vjp, inputs, mask=mask, path="autodiff", **options)
    got, gradients = results(gated_delta_update_vjp, inputs, mask=mask, path="metal", **options)
    assert max(map(worst, got, want)) <= ROUNDINGS * U
    assert max(worst(gradients[name], want_gradients[name]) for name in NAMES) <= ROUNDINGS * U
