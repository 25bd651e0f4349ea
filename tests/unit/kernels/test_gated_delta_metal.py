"""The gated delta rule in Metal: as step by step, at every tail, and the same bits however it is cut into chunks or scheduled."""

from __future__ import annotations

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import gradcheck
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.gated_delta import autodiff, metal
from gradcheck.metal import KernelFault, NoCompilerError, configured, place
from gradcheck.metal.settings import SCHEDULES
from gradcheck.metal.toolchain import find

from .test_gated_delta import ROUNDINGS, U, inputs, mask_of, results, worst

PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "gated_delta"
NAMES = ("y", "state_T", "q", "k", "v", "g", "beta", "state")
EPS = {mx.float16: 2.0**-10, mx.bfloat16: 2.0**-7}
LARGEST = 2e-6
"""What a float32 gradient may be off, as a share of its largest element: 33 roundings."""

BLOCKS = {"Dk": 33, "Dv": 34, "Hk": 1}
"""Two columns of lanes of which one is ragged, and two threadgroups of rows of which one is."""

VECTOR = pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])


def _nothing_runs_metal():
    if place() == "metal":
        return ""
    try:
        find()
    except NoCompilerError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_nothing_runs_metal()), reason=_nothing_runs_metal() or "metal runs here")


@pytest.fixture
def plain():
    """Fast: for what is about numbers alone."""
    with configured(mode="plain"):
        yield


def differing(got: list[np.ndarray], want: list[np.ndarray]) -> list[str]:
    """Names of the outputs and gradients that are not the same bits."""
    pairs = zip(NAMES, got, want, strict=True)
    return [name for name, a, b in pairs if not np.array_equal(a.view(np.uint32), b.view(np.uint32))]


@VECTOR
@MASKED
def test_outputs_and_gradients_are_those_of_step_by_step_and_the_checker_finds_nothing(vector, masked):
    arrays, mask = inputs(1, 5, vector=vector, r=2, **BLOCKS), mask_of(2, 5) if masked else None
    assert worst(results(metal.gated_delta, arrays, mask), results(autodiff.gated_delta, arrays, mask)) <= ROUNDINGS


@pytest.mark.usefixtures("plain")
@VECTOR
@MASKED
@pytest.mark.parametrize(
    "sizes", [{"Hk": 2, "r": 1}, {"Hk": 2, "r": 3}, BLOCKS, {"Dk": 32, "Dv": 4}, {"Dk": 3, "Dv": 1}, {"Dk": 70, "Dv": 70}]
)
def test_any_number_of_heads_key_channels_and_rows(sizes, vector, masked):
    arrays, mask = inputs(3, 9, vector=vector, **sizes), mask_of(4, 9) if masked else None
    assert worst(results(metal.gated_delta, arrays, mask), results(autodiff.gated_delta, arrays, mask)) <= ROUNDINGS


@pytest.mark.usefixtures("plain")
@VECTOR
@MASKED
@pytest.mark.parametrize("T", [1, 15, 16, 17, 35])
def test_any_number_of_steps_by_chunks_of_any_length(T, vector, masked):
    arrays, mask = inputs(T, T, vector=vector), mask_of(T, T) if masked else None
    whole = results(metal.gated_delta, arrays, mask, chunk=T)
    assert worst(whole, results(autodiff.gated_delta, arrays, mask)) <= ROUNDINGS
    for chunk in (1, 16, 1000, None):
        assert differing(results(metal.gated_delta, arrays, mask, chunk=chunk), whole) == []


def test_bitwise_equality_can_fail():
    arrays = inputs(1, 5, vector=False)
    assert differing(results(metal.gated_delta, arrays), results(autodiff.gated_delta, arrays))


@pytest.mark.usefixtures("plain")
@VECTOR
def test_a_mask_that_keeps_every_step_changes_no_bit(vector):
    arrays = inputs(3, 17, vector=vector)
    assert differing(results(metal.gated_delta, arrays), results(metal.gated_delta, arrays, mx.ones((2, 17), mx.bool_))) == []


@pytest.mark.usefixtures("plain")
@VECTOR
def test_masked_steps_carry_the_state_and_have_gradients_of_exactly_zero(vector):
    arrays = inputs(4, 20, vector=vector)
    mask = np.ones((2, 20), bool)
    mask[:, 10:] = False
    masked = results(metal.gated_delta, arrays, mx.array(mask))
    y, last = metal.gated_delta(*(a[:, :10] for a in arrays[:5]), arrays[5])
    assert np.array_equal(masked[1], np.array(last))
    assert np.array_equal(masked[0][:, :10], np.array(y))
    assert not masked[0][:, 10:].any()
    assert all(not gradient[:, 10:].any() for gradient in masked[2:7])
    assert all(gradient[:, :10].any() for gradient in masked[2:7])


@pytest.mark.usefixtures("plain")
@VECTOR
def test_a_sequence_that_is_masked_throughout_hands_its_state_and_the_cotangent_through(vector):
    arrays = inputs(4, 6, vector=vector)
    weights = [mx.ones((2, 6, 6, 5)), mx.random.normal(arrays[5].shape, key=mx.random.key(1))]
    mask = mx.zeros((2, 6), mx.bool_)
    (_, last), gradients = mx.vjp(lambda *moved: list(metal.gated_delta(*moved, mask)), arrays, weights)
    assert mx.array_equal(last, arrays[5])
    assert mx.array_equal(gradients[5], weights[1])


@pytest.mark.usefixtures("plain")
def test_what_stands_at_a_masked_step_is_not_looked_at():
    arrays = inputs(4, 6, vector=True)
    mask = mx.array([[True, True, False, True, True, False]] * 2)
    want = results(metal.gated_delta, arrays, mask)
    spoilt = [mx.where(mask.reshape(2, 6, *[1] * (a.ndim - 2)), a, mx.nan) for a in arrays[:5]]
    assert differing(results(metal.gated_delta, [*spoilt, arrays[5]], mask), want) == []


@pytest.mark.usefixtures("plain")
@VECTOR
def test_gates_of_zero_and_of_one_are_finite(vector):
    arrays = inputs(5, 33, vector=vector)
    for gate in (0.0, 1e-38, 1.0):
        found = results(metal.gated_delta, [*arrays[:3], mx.full(arrays[3].shape, gate), *arrays[4:]])
        assert all(np.isfinite(a).all() for a in found)


@pytest.mark.usefixtures("plain")
def test_a_state_that_is_not_given_is_zeros():
    arrays = inputs(6, 4, vector=False)
    y, last = metal.gated_delta(*arrays[:5])
    want_y, want_last = metal.gated_delta(*arrays[:5], mx.zeros(arrays[5].shape))
    assert mx.array_equal(y, want_y)
    assert mx.array_equal(last, want_last)
    gradient = mx.grad(lambda v: metal.gated_delta(*arrays[:2], v, *arrays[3:5])[0].sum())(arrays[2])
    assert gradient.any()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("which", [0, 1], ids=["y", "state"])
def test_a_loss_on_one_output_alone_is_enough(which):
    arrays = inputs(7, 5, vector=True)

    def gradients(kernel):
        return [np.array(a) for a in mx.grad(lambda *moved: (kernel(*moved)[which] ** 2).sum(), argnums=range(6))(*arrays)]

    got, want = gradients(metal.gated_delta), gradients(autodiff.gated_delta)
    if which == 1:
        assert not got[0].any()  # no query reaches the state
        got, want = got[1:], want[1:]
    assert worst(got, want) <= ROUNDINGS


@pytest.mark.usefixtures("plain")
@VECTOR
@MASKED
@pytest.mark.parametrize("dtype", EPS, ids=["f16", "bf16"])
def test_half_precision_inputs_cost_one_rounding_since_the_sums_are_in_float32(dtype, vector, masked):
    narrow = [a.astype(dtype) for a in inputs(8, 6, vector=vector, r=2, **BLOCKS)]
    mask = mask_of(2, 6) if masked else None
    wide = [a.astype(mx.float32) for a in narrow]
    weights = [mx.ones((2, 6, 2, 34)), mx.ones((2, 2, 34, 33))]

    def run(arrays, dtype):
        outputs, gradients = mx.vjp(lambda *moved: list(metal.gated_delta(*moved, mask)), arrays, [w.astype(dtype) for w in weights])
        assert {a.dtype for a in (*outputs, *gradients)} == {dtype}
        return [np.array(a.astype(mx.float32)) for a in (*outputs, *gradients)]

    for got, want in zip(run(narrow, dtype), run(wide, mx.float32), strict=True):
        assert (np.abs(got - want) <= EPS[dtype] * np.abs(want) + np.finfo(np.float16).smallest_subnormal).all()


@pytest.mark.usefixtures("plain")
def test_each_gradient_has_the_dtype_of_its_own_input():
    dtypes = [mx.bfloat16, mx.float16, mx.bfloat16, mx.float32, mx.bfloat16, mx.float32]
    arrays = [a.astype(dtype) for a, dtype in zip(inputs(9, 3, vector=False), dtypes, strict=True)]
    y, last = metal.gated_delta(*arrays)
    assert (y.dtype, last.dtype) == (mx.bfloat16, mx.float32)
    gradients = mx.grad(lambda *moved: metal.gated_delta(*moved)[0].astype(mx.float32).sum(), argnums=range(6))(*arrays)
    assert [a.dtype for a in gradients] == dtypes


@pytest.mark.usefixtures("plain")
def test_memory_between_forward_and_backward_is_one_state_a_chunk():
    arrays = inputs(1, 7, vector=False)
    for chunk, chunks in ((1, 7), (3, 3), (7, 1)):
        assert metal._recurrence(chunk)(*arrays)[2].shape == (chunks, *arrays[5].shape)


@pytest.mark.skipif(place() == "metal", reason="a GPU has its own schedule")
@VECTOR
def test_every_schedule_gives_the_same_bits(vector):
    arrays, mask = inputs(2, 4, vector=vector, r=2, **BLOCKS), mask_of(3, 4)
    found = []
    for schedule in (*SCHEDULES, "in-order"):
        with configured(schedule=schedule, seed=5):
            found.append(results(metal.gated_delta, arrays, mask))
    assert [differing(other, found[0]) for other in found[1:]] == [[]] * len(SCHEDULES)


@pytest.mark.usefixtures("plain")
@VECTOR
@pytest.mark.parametrize("seed", range(20))
def test_no_gradient_is_off_by_more_than_two_millionths_of_its_largest_element(seed, vector):
    arrays = inputs(seed, 64, vector=vector, Dk=64, Dv=34, r=2, Hk=1)
    rng = np.random.default_rng(7)
    weights = [rng.uniform(0.5, 1.5, shape) for shape in ((2, 64, 2, 34), (2, 2, 34, 64))]
    want = reference([np.array(a, np.float64) for a in arrays], [w.astype(np.float32).astype(np.float64) for w in weights])
    got = results(metal.gated_delta, arrays)[2:]
    assert worst(got, want) * U <= LARGEST


def reference(arrays: list[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
    """Gradients in float64, by a reverse recurrence over stored states: of q, k, v, g, beta and state."""
    q, k, v, g, beta, S = arrays
    dy, adjoint = weights
    r = v.shape[2] // k.shape[2]
    qs, ks = np.repeat(q, r, 2), np.repeat(k, r, 2)
    gs = g[..., None, None] if g.ndim == beta.ndim else g[..., None, :]
    before = []
    for t in range(q.shape[1]):
        before.append(S)
        error = v[:, t] - np.einsum("bhvk,bhk->bhv", gs[:, t] * S, ks[:, t])
        S = gs[:, t] * S + np.einsum("bhv,bhk->bhvk", beta[:, t, :, None] * error, ks[:, t])
    dq, dk, dv, dg, dbeta = (np.zeros(shape) for shape in (qs.shape, ks.shape, v.shape, g.shape, beta.shape))
    for t in reversed(range(q.shape[1])):
        decayed = gs[:, t] * before[t]
        error = v[:, t] - np.einsum("bhvk,bhk->bhv", decayed, ks[:, t])
        written = beta[:, t, :, None] * error
        dq[:, t] = np.einsum("bhvk,bhv->bhk", decayed + np.einsum("bhv,bhk->bhvk", written, ks[:, t]), dy[:, t])
        adjoint = adjoint + np.einsum("bhv,bhk->bhvk", dy[:, t], qs[:, t])
        pull = np.einsum("bhvk,bhk->bhv", adjoint, ks[:, t])
        dv[:, t], dbeta[:, t] = beta[:, t, :, None] * pull, (pull * error).sum(-1)
        dk[:, t] = np.einsum("bhvk,bhv->bhk", adjoint, written) - np.einsum("bhvk,bhv->bhk", decayed, dv[:, t])
        adjoint = adjoint - np.einsum("bhv,bhk->bhvk", dv[:, t], ks[:, t])
        through = adjoint * before[t]
        dg[:, t] = through.sum((-1, -2)) if g.ndim == beta.ndim else through.sum(-2)
        adjoint = adjoint * gs[:, t]
    heads = (*k.shape[:3], r, k.shape[3])
    return [dq.reshape(heads).sum(3), dk.reshape(heads).sum(3), dv, dg, dbeta, adjoint]


@pytest.mark.skipif(place() == "metal", reason="nobody watches a GPU")
def test_deleting_the_barrier_is_found(tmp_path):
    copy = copy_with_edit(PACKAGE, None, "barrier", tmp_path)
    text = (copy / "backward.metal").read_text()
    assert len(re.findall("threadgroup_barrier", text)) == 1
    (copy / "backward.metal").write_text(text.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", ""))
    with pytest.raises(KernelFault) as raised:
        results(load_package(copy, "metal", "gated_delta"), inputs(1, 3, vector=False, r=2, **BLOCKS))
    assert "race" in {finding.kind for finding in raised.value.findings}


@pytest.mark.parametrize("Dk", [3, 33, 192, 300, 1344])
@VECTOR
def test_threadgroups_keep_to_the_limits_of_an_apple_gpu(Dk, vector):
    _, threadgroup, template = metal._rows(
        [mx.zeros((1, 1, 1, Dk))] * 2 + [mx.zeros((1, 1, 1, 600)), mx.zeros((1, 1, 1, Dk)[: 3 + vector])]
    ).launch
    constants = dict(template)
    assert threadgroup[0] * threadgroup[1] <= 256
    assert threadgroup[1] <= constants["SIMDGROUPS"]
    assert constants["ROWS"] == 1 or constants["ROWS"] * constants["COLUMNS"] <= 48
    assert "threadgroup float terms[2][SLOTS][SIMDGROUPS][COLUMNS * LANES];" in (PACKAGE / "backward.metal").read_text()
    assert 4 * 2 * constants["SLOTS"] * constants["SIMDGROUPS"] * constants["COLUMNS"] * metal.LANES <= 32 * 1024
    assert f"LANES = {metal.LANES};" in (PACKAGE / "common.metal").read_text()


@pytest.mark.parametrize(
    "changed, error",
    [
        ({"chunk": 0}, "chunk is 0, need at least 1 step"),
        ({"q": mx.zeros((2, 3, 33))}, r"q has shape \(2, 3, 33\), need 4 axes"),
        ({"k": mx.zeros((2, 3, 2, 5))}, r"k has shape \(2, 3, 2, 5\), need \(2, 3, 2, 33\) to go with q"),
        ({"g": mx.zeros((2, 3, 6, 5))}, r"g has shape \(2, 3, 6, 5\), need \(2, 3, 6\) or \(2, 3, 6, 33\)"),
        ({"v": mx.zeros((2, 3, 5, 5))}, "the 2 key heads of q .* must divide the 5 value heads"),
        ({"state": mx.zeros((2, 6, 33, 5))}, r"state has shape \(2, 6, 33, 5\), need \(2, 6, 5, 33\)"),
        ({"mask": mx.ones((2, 4), mx.bool_)}, r"mask has shape \(2, 4\), need \(2, 3\)"),
        ({"mask": mx.ones((2, 3))}, "mask has dtype mlx.core.float32, need bool"),
        ({"beta": mx.zeros((2, 3, 6), mx.int32)}, "beta has dtype mlx.core.int32, need a floating one"),
        ({"q": mx.zeros((2, 0, 2, 33))}, "nothing to do"),
    ],
)
def test_what_does_not_fit_is_named(changed, error):
    arrays = dict(zip(("q", "k", "v", "g", "beta", "state"), inputs(1, 3, vector=False), strict=True))
    with pytest.raises(ValueError, match=error):
        metal.gated_delta(**{**arrays, **changed})


@VECTOR
def test_key_channels_that_threadgroup_memory_cannot_hold_are_refused_with_the_number_that_it_can(vector):
    most = 1344 if vector else 2048
    arrays = inputs(1, 1, vector=vector, Hk=1, r=1, Dv=1, B=1, Dk=most + 1)
    with pytest.raises(ValueError, match=f"Dk is {most + 1}, .* at most {most} key channels"):
        metal.gated_delta(*arrays)
