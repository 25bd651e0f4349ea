"""The five metrics: what leaves them alone, what they see, and what they never let pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.metrics import METRICS, compare, rounding_unit

AXES = ("B", "T", "H")
SIZE_FREE = ("z", "l2", "max", "slice")
shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4))
seeds = st.integers(0, 2**32 - 1)


def arrays(seed, shape, noise=1e-6):
    """(got, want, error, unit): wrong by some roundings."""
    rng = np.random.default_rng(seed)
    want = rng.normal(size=shape)
    unit = rounding_unit(np.abs(want) * rng.uniform(1, 3, shape), DTYPES["f32"])
    return want + noise * rng.normal(size=shape), want, np.abs(rng.normal(size=shape)) * 1e-9, unit


@given(seeds, shapes)
def test_the_truth_itself_has_no_error(seed, shape):
    _, want, error, unit = arrays(seed, shape)
    found = compare(want, want, error, unit, AXES)
    assert set(found.errors.values()) == set(found.ratios.values()) == {0.0}
    assert all(not ratio.any() for ratio in found.slices.values())


@given(seeds, shapes, st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_element_that_is_not_finite_makes_every_metric_none_and_is_pointed_at(seed, shape, value):
    got, want, error, unit = arrays(seed, shape)
    at = tuple(int(np.random.default_rng(seed).integers(size)) for size in shape)
    got[at] = value
    found = compare(got, want, error, unit, AXES)
    assert found.errors == found.ratios == dict.fromkeys(METRICS)
    assert found.worst == at
    assert {axis: np.flatnonzero(~np.isfinite(ratio)).tolist() for axis, ratio in found.slices.items()} == dict(
        zip(AXES, ([i] for i in at), strict=True)
    )


@given(seeds, shapes, st.integers(-40, 40))
def test_the_scale_of_a_problem_changes_no_ratio(seed, shape, power):
    parts = arrays(seed, shape)
    one, two = compare(*parts, AXES), compare(*(2.0**power * part for part in parts), AXES)
    assert one.ratios == two.ratios
    assert {name: one.errors[name] for name in ("l2", "max", "slice", "maa")} == {
        name: two.errors[name] for name in ("l2", "max", "slice", "maa")
    }


@given(seeds, shapes)
def test_the_order_of_the_elements_does_not_matter_but_to_slices(seed, shape):
    parts = arrays(seed, shape)
    order = np.random.default_rng(seed).permutation(parts[0].size)
    one = compare(*parts, AXES)
    two = compare(*(part.ravel()[order].reshape(shape) for part in parts), AXES)
    for table, other in ((one.errors, two.errors), (one.ratios, two.ratios)):
        assert [table[name] for name in ("z", "max")] == [other[name] for name in ("z", "max")]
        assert table["l2"] == pytest.approx(other["l2"], rel=1e-12)
        assert table["maa"] == pytest.approx(other["maa"], rel=1e-12)


@given(seeds, shapes)
def test_the_order_of_the_axes_does_not_matter(seed, shape):
    parts = arrays(seed, shape)
    one, two = compare(*parts, AXES), compare(*(part.transpose(2, 0, 1) for part in parts), ("H", "B", "T"))
    assert one.worst == tuple(two.worst[i] for i in (1, 2, 0))
    assert all(one.ratios[name] == pytest.approx(two.ratios[name], rel=1e-12) for name in METRICS)
    assert all(one.slices[axis] == pytest.approx(two.slices[axis], rel=1e-12) for axis in AXES)


@given(seeds, shapes, st.floats(0, 3))
def test_the_error_of_the_oracle_is_taken_off(seed, shape, factor):
    got, want, _, unit = arrays(seed, shape)
    off = np.abs(got - want)
    found = compare(got, want, factor * off, unit, AXES)
    left = max(1 - factor, 0) * (off / unit).max()
    assert found.ratios["z"] == pytest.approx(left, rel=1e-9, abs=1e-9)
    assert found.ratios["z"] == found.errors["z"]
    if factor >= 1:
        assert all(found.ratios[name] == 0 for name in SIZE_FREE)


def test_one_bad_element_in_ten_thousand_is_seen_by_all_that_look_for_the_worst():
    shape = (4, 50, 50)
    got, want, error, unit = arrays(0, shape, noise=0)
    clean = compare(got + unit, want, error, unit, AXES)
    got[2, 17, 3] += 1.0
    found = compare(got, want, error, unit, AXES)
    for name in ("z", "max", "slice"):
        assert found.ratios[name] > 1000 * clean.ratios[name]
    assert found.worst == (2, 17, 3)
    assert found.ratios["maa"] < found.ratios["z"] / 1000  # a mean dilutes it: this is why the others are there


@given(seeds, st.integers(0, 4))
def test_a_defect_of_one_step_shows_in_the_slice_of_that_step(seed, step):
    got, want, error, unit = arrays(seed, (2, 5, 3), noise=0)
    got[:, step] += 0.1 * (1 + np.abs(want[:, step]))
    found = compare(got, want, error, unit, AXES)
    assert np.flatnonzero(found.slices["T"]).tolist() == [step]
    assert found.ratios["slice"] >= found.slices["T"][step] > found.ratios["l2"]
    assert found.worst[1] == step


def test_nothing_over_nothing_is_no_error_and_something_over_nothing_has_no_number():
    zero = np.zeros((1, 2, 2))
    unit = rounding_unit(zero, DTYPES["f32"])
    assert set(compare(zero, zero, zero, unit, AXES).errors.values()) == {0.0}
    found = compare(zero + 1e-3, zero, zero, unit, AXES)
    assert found.errors["l2"] is found.errors["max"] is found.errors["slice"] is None
    assert found.errors["maa"] == 1
    assert all(found.ratios[name] > 1 for name in SIZE_FREE)


def test_the_metrics_are_what_the_table_says():
    got, want = np.array([[[1.0, 2.0], [3.0, 4.5]]]), np.array([[[1.0, 2.0], [4.0, 4.0]]])
    unit = np.array([[[0.1, 0.1], [0.2, 0.5]]])
    found = compare(got, want, np.zeros_like(want), unit, AXES)
    assert found.errors["z"] == pytest.approx(1 / 0.2)
    assert found.errors["l2"] == pytest.approx(np.sqrt(1.25 / 37))
    assert found.errors["max"] == pytest.approx(1 / 4)
    assert found.errors["slice"] == pytest.approx(np.sqrt(1.25 / 2) / np.sqrt(37 / 4))
    assert found.errors["maa"] == pytest.approx((1 / 7 + 0.5 / 8.5) / 4)
    assert found.ratios["l2"] == pytest.approx(np.sqrt(1.25 / 0.31))
    assert found.ratios["max"] == pytest.approx(1 / 0.5)
    assert found.ratios["slice"] == pytest.approx(np.sqrt((1 / 2) / (0.05 / 2)))
    assert found.ratios["maa"] == pytest.approx((1 / 7 + 0.5 / 8.5) / (0.1 / 2 + 0.1 / 4 + 0.2 / 8 + 0.5 / 8))
    assert found.worst == (0, 1, 0)
    assert found.slices["T"] == pytest.approx([0, np.sqrt(0.625 / 0.145)])


def test_an_array_without_axes_has_metrics_too():
    found = compare(np.array(1.5), np.array(1.0), np.array(0.25), np.array(0.125), ())
    assert found.ratios["z"] == found.ratios["slice"] == 2
    assert found.errors["l2"] == found.errors["max"] == 0.5
    assert found.worst == ()


@settings(max_examples=30)
@given(seeds, st.sampled_from(list(DTYPES)))
def test_a_rounding_unit_is_above_zero_and_about_u_times_the_majorant(seed, name):
    majorant = np.abs(np.random.default_rng(seed).normal(size=(3, 4)))
    majorant[0] = 0
    dtype = DTYPES[name]
    unit = rounding_unit(majorant, dtype)
    assert (unit > 0).all()
    assert (unit >= dtype.u * majorant).all()
    assert (unit[1:] <= 1.01 * dtype.u * majorant[1:] + 2 * dtype.smallest).all()
