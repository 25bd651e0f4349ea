"""Noise, tolerance and defect, and how far they lie apart."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck._verdict import CANARY, METRICS, NULL
from gradcheck.calibrate.bands import ROOM, bands, planted, separation, spliced, tolerances_of, unseparated
from gradcheck.calibrate.noise import FACTOR, LEAST, noise_table, tolerances

sys.path.insert(0, str(Path(__file__).parent))

from recorded import band, evidence, measurement, table  # type: ignore[import-not-found]

sizes = st.floats(0.25, 1e9)


def made(noise: float, defect: float | None, clean: float = 0.5):
    mutated = [] if defect is None else [evidence(measurement(size=defect), mutant="m")]
    return bands("op", "k", "f32", table(noise=noise), [evidence(measurement(size=clean))], mutated)


@given(sizes, sizes)
def test_the_tolerance_is_the_smaller_of_k_noise_and_the_middle(noise, defect):
    for one in made(noise, defect):
        assert one.noise == noise
        if defect > ROOM * FACTOR * noise:
            assert (one.defect, one.weakest) == (defect, "m")
            assert one.tolerance == pytest.approx(min(FACTOR * noise, math.sqrt(noise * defect)))
            assert noise < one.tolerance < defect
        else:  # what is not well beyond noise measures nothing
            assert (one.defect, one.weakest, one.tolerance) == (None, "", FACTOR * noise)


def test_there_is_a_band_for_each_quantity_and_metric():
    found = bands("op", "k", "f32", table("y", "d x"), [evidence(measurement("y"), measurement("d x"))], [])
    assert [(one.quantity, one.metric) for one in found] == [(quantity, metric) for quantity in ("y", "d x") for metric in METRICS]
    assert {(one.op, one.kernel, one.dtype, one.measured) for one in found} == {("op", "k", "f32", 1.0)}
    assert tolerances_of(found) == tolerances(table("y", "d x"))


@pytest.mark.parametrize("defect", [None, math.inf, math.nan])
def test_a_defect_without_a_number_moves_no_tolerance(defect):
    mutated = [evidence(measurement(size=defect), mutant="m")]
    for one in bands("op", "k", "f32", table(noise=2.0), [evidence(measurement())], mutated):
        assert one.tolerance == FACTOR * 2.0
        assert one.defect is None


def test_a_clean_kernel_that_is_not_finite_has_no_measured_error_and_moves_no_tolerance():
    wild, tame = made(1.0, 100.0, clean=math.inf), made(1.0, 100.0)
    assert all(one.measured is None for one in wild)
    assert [one.tolerance for one in wild] == [one.tolerance for one in tame]


def test_a_defect_is_the_minimum_over_mutants_of_the_maximum_over_cases():
    group = [
        evidence(measurement(size=size), mutant=name, seed=seed)
        for name, found in {"weak": (5.0, 50.0), "strong": (1.0, 900.0), CANARY: (10.0,), NULL: (0.1,)}.items()
        for seed, size in enumerate(found)
    ]
    found = bands("op", "k", "f32", table(), [evidence(measurement())], group)
    assert {(one.defect, one.weakest) for one in found} == {(50.0, "weak")}


def test_each_branch_counts_as_a_mutant_of_its_own():
    group = [
        evidence(measurement(size=size), mutant="m", case=f"op/B2,{branch}/f32/typical/0")
        for branch, size in (("one", 90.0), ("two", 20.0))
    ]
    assert planted(group, table())["d x", "z"] == (20.0, "m")


def test_a_mutant_counts_for_the_gradients_that_it_moves():
    group = [evidence(measurement("d x", 0.5), measurement("d A", 70.0), mutant="m")]
    found = planted(group, table("d x", "d A"))
    assert {quantity for quantity, _ in found} == {"d A"}


def test_a_stranger_has_defects_spliced_into_its_gradients():
    cases = [
        evidence(measurement(spliced={"zero": 900.0, "scale": 9.0, "last step": 300.0}), seed=0),
        evidence(measurement(spliced={"zero": 100.0, "scale": 60.0, "last step": None}), seed=1),
    ]
    assert spliced(cases) == {("d x", "l2"): (60.0, "scale"), ("d x", "slice"): (300.0, "last step")}
    by_metric = {one.metric: one for one in bands("op", "op-level", "f32", table(), cases, [])}
    assert (by_metric["l2"].defect, by_metric["l2"].weakest) == (60.0, "scale (spliced in)")
    assert (by_metric["z"].defect, by_metric["z"].weakest) == (None, "")


@pytest.mark.parametrize("size", [None, math.inf, 0.5])
def test_where_no_mutant_leaves_a_number_beyond_noise_the_spliced_defect_is_shown_and_moves_no_tolerance(size):
    clean = [evidence(measurement("d x", spliced={"scale": 60.0}), measurement("d A", spliced={"scale": 9.0}))]
    mutated = [evidence(measurement("d x", size), measurement("d A", 70.0), mutant="m")]
    found = {one.quantity: one for one in bands("op", "k", "f16", table("d x", "d A"), clean, mutated) if one.metric == "l2"}
    assert (found["d x"].defect, found["d x"].weakest, found["d x"].tolerance) == (60.0, "scale (spliced in)", FACTOR * found["d x"].noise)
    assert (found["d A"].defect, found["d A"].weakest) == (70.0, "m")


@given(sizes, sizes)
def test_a_separation_is_in_decades(noise, defect):
    assert separation(band(noise=noise, defect=defect)) == pytest.approx(math.log10(defect) - math.log10(noise))
    assert separation(band(defect=None)) is None


def test_one_metric_with_room_is_enough_and_none_with_room_is_reported_by_its_best():
    narrow = [band(metric="z", defect=4.0 * ROOM - 0.1), band(metric="l2", defect=5.0)]
    assert unseparated(narrow) == {("k", "f32", "d x"): narrow[0]}
    assert unseparated([*narrow, band(metric="max", defect=4.0 * ROOM)]) == {}
    assert unseparated([band(defect=None)]) == {}


def test_gradients_dtypes_and_kernels_are_separated_each_by_itself():
    good, bad = band(defect=1e6), band("d A", defect=4.1)
    other = band(kernel="other", defect=4.1)
    half = band(dtype="f16", defect=4.1)
    assert set(unseparated([good, bad, other, half])) == {("k", "f32", "d A"), ("other", "f32", "d x"), ("k", "f16", "d x")}


def test_a_tolerance_that_is_no_number_separates_nothing():
    assert unseparated([band(defect=1e9, tolerance=math.nan)])


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1))
def test_the_noise_is_the_largest_seen_and_never_below_a_quarter_of_a_rounding(ratios):
    found = noise_table([{"d x": {"z": ratio}} for ratio in ratios])["d x"]
    assert found["z"] == max([LEAST, *(ratio for ratio in ratios if ratio is not None)])
    assert all(found[metric] == LEAST for metric in METRICS if metric != "z")
    assert tolerances({"d x": found})["d x"]["z"] == FACTOR * found["z"]
