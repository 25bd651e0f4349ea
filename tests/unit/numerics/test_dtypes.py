"""Rounding to the dtypes of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck.numerics.dtypes import DTYPES, round_to

NAMES = ("f32", "f16", "bf16")
numbers = st.one_of(
    st.floats(-1e300, 1e300), st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(-1e5, 1e5), st.floats(-1e-4, 1e-4)
)


def all_bf16() -> np.ndarray:
    """Every finite bfloat16 from 0 up, in order: the upper halves of float32 numbers."""
    return (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", NAMES)
@given(x=numbers)
def test_rounding_is_idempotent_odd_and_monotonic(dtype, x):
    once = round_to(np.array([x]), dtype)
    assert round_to(once, dtype) == once
    assert round_to(np.array([-x]), dtype) == -once
    assert round_to(np.array([x + abs(x) * 2.0**-30]), dtype) >= once


@pytest.mark.parametrize("dtype", NAMES)
@given(x=numbers)
def test_rounding_is_off_by_u_at_most_or_half_the_smallest_number(dtype, x):
    (got,), limits = round_to(np.array([x]), dtype), DTYPES[dtype]
    if np.isfinite(got):
        assert abs(got - x) <= max(limits.u * abs(x), limits.smallest / 2)
    else:
        assert not (abs(x) < np.ldexp(2 - 2 * limits.u, 15 if dtype == "f16" else 127))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@given(x=numbers)
def test_numpy_agrees(dtype, x):
    with np.errstate(over="ignore"):
        want = np.float64(np.array(x).astype(DTYPES[dtype].long))
    assert round_to(np.array(x), dtype) == want


@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_is_the_nearest_and_the_even_one_of_two(x):
    grid = all_bf16()
    beyond = np.append(grid, 2.0**128)  # what would come next is inf
    distance = np.abs(beyond - abs(x))
    nearest = np.flatnonzero(distance == distance.min())
    index = int(nearest[nearest % 2 == 0][0]) if len(nearest) == 2 else int(nearest[0])
    want = np.inf if index == len(grid) else beyond[index]
    assert round_to(np.array([x]), "bf16") == np.copysign(want, x)


def test_a_hair_above_a_tie_is_not_rounded_twice():
    hair = 2.0**-40  # lost in float32, where the tie would go to the even 1
    assert round_to(np.array([1 + 2.0**-8 - hair, 1 + 2.0**-8, 1 + 2.0**-8 + hair]), "bf16").tolist() == [1, 1, 1 + 2.0**-7]


def test_every_tie_between_two_bfloat16_goes_to_the_even_one():
    grid = all_bf16()
    got = round_to((grid[:-1] + grid[1:]) / 2, "bf16")
    assert (got == np.where(np.arange(len(got)) % 2 == 0, grid[:-1], grid[1:])).all()


@pytest.mark.parametrize("dtype", NAMES)
def test_mlx_agrees(dtype):
    mx = pytest.importorskip("mlx.core")
    rng = np.random.default_rng(0)
    values = (rng.normal(size=20_000) * 10.0 ** rng.uniform(-30, 30, 20_000)).astype(np.float32)
    with mx.stream(mx.cpu):
        theirs = np.array(mx.array(values).astype(getattr(mx, DTYPES[dtype].long)).astype(mx.float32))
    normal = np.abs(values) >= 2.0**-14 if dtype == "f16" else np.abs(values) >= 2.0**-126  # mlx may flush what is smaller
    assert np.array_equal(round_to(values, dtype)[normal], theirs[normal].astype(np.float64))


@pytest.mark.parametrize("dtype", NAMES)
def test_the_ends_of_the_range(dtype):
    limits = DTYPES[dtype]
    largest = (2 - 2 * limits.u) * 2.0 ** (15 if dtype == "f16" else 127)
    values = np.array([np.inf, -np.inf, largest, 2 * largest, -2 * largest, limits.smallest, limits.smallest / 2, limits.smallest * 0.75])
    want = [np.inf, -np.inf, largest, np.inf, -np.inf, limits.smallest, 0.0, limits.smallest]
    assert round_to(values, dtype).tolist() == want
    assert np.isnan(round_to(np.array([np.nan, -np.nan]), dtype)).all()
    assert np.signbit(round_to(np.array([-0.0]), dtype)).all()


@pytest.mark.parametrize("dtype", NAMES)
def test_u_is_half_the_spacing_above_1_and_the_shape_stays(dtype):
    u = DTYPES[dtype].u
    assert round_to(np.array([1 + u, 1 + 1.01 * u]), dtype).tolist() == [1.0, 1 + 2 * u]
    for shape in ((), (0,), (2, 3)):
        got = round_to(np.full(shape, 1 / 3), dtype)
        assert got.shape == shape
        assert got.dtype == np.float64
