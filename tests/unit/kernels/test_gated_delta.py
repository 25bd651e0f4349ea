"""The gated delta rule in MLX: by chunks, by checkpoints and by MLX itself as step by step, at the corners where they could part."""

from __future__ import annotations

from io import StringIO

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck.kernels.gated_delta import autodiff, checkpointed, chunkwise, mx_fast

U = 2.0**-24
"""Unit roundoff of float32."""

ROUNDINGS = 256
"""Of a value by either path, at these sizes: sums of 33 channels, products and sums of up to two chunks of 64 steps, twice."""


MODULES = {"autodiff": autodiff, "checkpointed": checkpointed, "chunkwise": chunkwise, "mx-fast": mx_fast}
EVERY = pytest.mark.parametrize("kernel", [module.gated_delta for module in MODULES.values()], ids=list(MODULES))


def inputs(seed: int, T: int, *, vector: bool, Hk: int = 2, r: int = 3, Dk: int = 33, Dv: int = 5, B: int = 2) -> list[mx.array]:
    rng = np.random.default_rng(seed)
    Hv = r * Hk
    k = rng.normal(size=(B, T, Hk, Dk))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = rng.uniform(0.5, 1, (B, T, Hv, Dk) if vector else (B, T, Hv))
    g[rng.random(g.shape) < 0.1] = 0
    drawn = [
        rng.normal(size=(B, T, Hk, Dk)),
        k,
        rng.normal(size=(B, T, Hv, Dv)),
        g,
        rng.uniform(0, 1, (B, T, Hv)),
        rng.normal(size=(B, Hv, Dv, Dk)),
    ]
    return [mx.array(a.astype(np.float32)) for a in drawn]


def results(kernel, arrays: list[mx.array], mask: mx.array | None = None, **options: int) -> list[np.ndarray]:
    """Outputs and gradients under a random objective."""
    rng = np.random.default_rng(7)
    outputs = kernel(*arrays, mask, **options)
    weights = [mx.array(rng.uniform(0.5, 1.5, out.shape).astype(np.float32)) for out in outputs]
    found, gradients = mx.vjp(lambda *moved: list(kernel(*moved, mask, **options)), arrays, weights)
    return [np.array(a) for a in (*found, *gradients)]


def worst(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest element of its array, in roundings of float32; infinite where one is not finite."""
    off = [np.abs(p - q).max() / np.abs(q).max() / U for p, q in zip(a, b, strict=True)]
    return float(max(x if np.isfinite(x) else np.inf for x in off))


def mask_of(seed: int, T: int, B: int = 2) -> mx.array:
    mask = np.random.default_rng(seed).random((B, T)) < 0.6
    mask[0] = True
    return mx.array(mask)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("T", [1, 7, 8, 9, 64, 131, 137])
def test_a_chunk_at_a_time_is_step_by_step(T, vector, masked):
    arrays, mask = inputs(T, T, vector=vector), mask_of(T, T) if masked else None
    want = results(autodiff.gated_delta, arrays, mask)
    for chunk in (4, 8, 20, 64):
        assert worst(results(chunkwise.gated_delta, arrays, mask, chunk=chunk), want) <= ROUNDINGS


@pytest.mark.parametrize("vector", [False, True])
def test_many_groups_of_chunks_are_step_by_step(monkeypatch, vector):
    """MLX's split makes other operations, with other gradients, of more than 10 pieces."""
    arrays = inputs(9, 101, vector=vector)
    want = results(autodiff.gated_delta, arrays)
    monkeypatch.setattr(chunkwise, "GROUP", 8)
    assert worst(results(chunkwise.gated_delta, arrays), want) <= ROUNDINGS


@pytest.mark.parametrize("groups", [2, 11])
def test_a_group_adds_as_many_operations_to_a_long_gradient_as_to_a_short_one(groups):
    """An array as large as the whole for each group, 0 but for that group, makes a time that grows with the square of T."""

    def filled(groups: int) -> int:
        arrays = inputs(9, groups * chunkwise.GROUP, vector=False, Hk=1, r=1, Dk=3, Dv=2, B=1)
        graph = StringIO()
        mx.export_to_dot(graph, *mx.vjp(lambda *moved: chunkwise.gated_delta(*moved)[:1], arrays, [mx.ones_like(arrays[2])])[1])
        return graph.getvalue().count('"SliceUpdate"')

    assert filled(groups) == groups * filled(1) > 0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("T", [1, 9, 40])
def test_checkpoints_change_no_bit_whatever_the_chunk(T, vector, masked):
    arrays, mask = inputs(T, T, vector=vector), mask_of(T, T) if masked else None
    want = results(autodiff.gated_delta, arrays, mask)
    for options in ({}, {"chunk": 1}, {"chunk": 7}, {"chunk": 1000}):
        found = results(checkpointed.gated_delta, arrays, mask, **options)
        assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))


@pytest.mark.parametrize("vector", [False, True])
def test_a_masked_y_that_is_let_through_has_gradients_too(vector):
    arrays, mask = inputs(8, 20, vector=vector), mask_of(8, 20)
    zeroed, through = (results(kernel, arrays, mask) for kernel in (checkpointed.gated_delta, checkpointed.gated_delta_y_unmasked))
    kept = np.array(mask)
    assert np.array_equal(zeroed[0][kept], through[0][kept])
    assert np.array_equal(zeroed[1], through[1])
    assert all(through[place][~kept].any() for place in (0, 2, 3, 4, 5, 6))


@pytest.mark.parametrize(
    ("kernel", "share"), [(chunkwise.gated_delta, 3), (checkpointed.gated_delta, 1.5)], ids=["chunkwise", "checkpointed"]
)
def test_less_is_kept_than_every_state(kernel, share):
    """A step by step graph keeps several states per step: 12 MiB here by themselves."""
    arrays = inputs(1, 192, vector=False, Hk=2, r=1, Dk=32, Dv=32)
    peaks = []
    for one in (autodiff.gated_delta, kernel):
        mx.reset_peak_memory()
        mx.eval(mx.vjp(lambda *moved, one=one: list(one(*moved)), arrays, [mx.ones((2, 192, 2, 32)), mx.ones((2, 2, 32, 32))]))
        peaks.append(mx.get_peak_memory() - mx.get_active_memory())
    assert peaks[1] * share <= peaks[0]


@EVERY
@pytest.mark.parametrize("vector", [False, True])
def test_a_mask_that_keeps_every_step_changes_no_bit(kernel, vector):
    arrays = inputs(3, 70, vector=vector)
    plain, masked = results(kernel, arrays), results(kernel, arrays, mx.ones((2, 70), mx.bool_))
    assert all(np.array_equal(a, b) for a, b in zip(plain, masked, strict=True))


@EVERY
@pytest.mark.parametrize("vector", [False, True])
def test_masked_steps_carry_the_state_and_have_gradients_of_exactly_zero(kernel, vector):
    arrays = inputs(4, 20, vector=vector)
    mask = np.ones((2, 20), bool)
    mask[:, 10:] = False
    masked = results(kernel, arrays, mx.array(mask))
    _, last = kernel(*(a[:, :10] for a in arrays[:5]), arrays[5])
    assert worst([masked[1]], [np.array(last)]) <= ROUNDINGS
    assert not masked[0][:, 10:].any()
    assert all(not gradient[:, 10:].any() for gradient in masked[2:7])


@EVERY
@pytest.mark.parametrize("vector", [False, True])
def test_gates_of_zero_and_saturated_ones_are_finite(kernel, vector):
    arrays = inputs(5, 33, vector=vector)
    for gate in (0.0, 1e-38, 1.0):
        found = results(kernel, [*arrays[:3], mx.full(arrays[3].shape, gate), *arrays[4:]])
        assert all(np.isfinite(a).all() for a in found)


@pytest.mark.parametrize("size", [4, 8, 20, 64])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=5, deadline=None)
def test_the_inverse_is_one(size, seed):
    rng = np.random.default_rng(seed)
    L = np.tril(rng.uniform(-0.3, 0.3, (3, size, size)), -1)
    found = chunkwise.unit_inverse(mx.array(L.astype(np.float32)))
    assert worst([np.array(found)], [np.linalg.inv(np.eye(size) + L)]) <= ROUNDINGS


def test_an_inverse_of_one_repeated_key_keeps_its_digits():
    """(I + L)^-1 of ones below the diagonal has entries of 1 and -1 only, while powers of L reach 1e18."""
    found = np.array(chunkwise.unit_inverse(mx.tril(mx.ones((64, 64)), -1)))
    assert np.array_equal(found, np.eye(64) - np.eye(64, k=-1))


def test_decays_are_products_and_their_gradient_never_divides():
    g = np.array([0.5, 0.0, 0.25, 2.0], np.float32)
    (found,), (slope,) = mx.vjp(lambda g: [chunkwise.decays(g)], [mx.array(g)], [mx.ones((5, 5))])
    want = np.array([[np.prod(g[s:t]) if s <= t else 0 for s in range(5)] for t in range(5)])
    assert np.array_equal(np.array(found), want)
    moved = [sum(np.prod(np.delete(g[s:t], i - s)) for s in range(i + 1) for t in range(i + 1, 5)) for i in range(4)]
    assert np.array_equal(np.array(slope), np.array(moved))


@pytest.mark.parametrize("chunk", [0, -4, 2, 17])
def test_a_chunk_that_is_no_multiple_of_4_is_refused(chunk):
    with pytest.raises(ValueError, match=f"chunk is {chunk}, need a positive multiple of 4"):
        chunkwise.gated_delta(*inputs(1, 4, vector=False), chunk=chunk)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_of_no_step_is_refused(chunk):
    with pytest.raises(ValueError, match=f"chunk is {chunk}, need at least 1 step"):
        checkpointed.gated_delta(*inputs(1, 4, vector=False), chunk=chunk)
