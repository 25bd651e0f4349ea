"""From what a kernel returned to measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from gradcheck import Quantity, Truth
from gradcheck._verdict import METRICS
from gradcheck.engine.call import Got
from gradcheck.engine.measure import INFORMATIVE, SCALE_DEFECT, head_axis, measure, quantity_axes
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.suite import load

SCAN = load().ops["ssm_scan"]
SIZES = {"B": 2, "T": 5, "H": 4, "G": 2, "P": 3, "N": 3}
NAMES = ("y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C")


def truth(**changes: Quantity) -> Truth:
    """Random values, an error of 1e-12, majorants of twice the values."""
    rng = np.random.default_rng(0)

    def quantity(shape: tuple[int, ...]) -> Quantity:
        value = rng.normal(size=shape)
        return Quantity(value, np.full(shape, 1e-12), 2 * np.abs(value) + 1e-3)

    outputs = {name: quantity(shape) for name, shape in SCAN.output_shapes(SIZES).items()}
    gradients = {name: quantity(shape) for name, shape in SCAN.shapes(SIZES, "mamba2").items()}
    return Truth("costate", outputs, gradients | changes)


TRUTH = truth()


def measured(got: Mapping[str, Got] | None = None, of: Truth = TRUTH, dtype: str = "f32"):
    """By quantity; what is not given is returned exactly."""
    returned = {name: Got(quantity.value.copy()) for name, quantity in of.quantities().items()} | dict(got or {})
    values = list(returned.values())
    return {m.quantity: m for m in measure(SCAN, "mamba2", dtype, of, values[:2], values[2:])}


def spoil(name: str, change) -> Got:
    value = TRUTH.quantities()[name].value.copy()
    return Got(change(value))


def test_there_is_a_measurement_for_each_quantity_in_order_never_a_sum():
    found = measured()
    assert tuple(found) == NAMES
    for name, one in found.items():
        assert one.ratios == dict.fromkeys(METRICS, 0.0)
        assert one.checked == TRUTH.quantities()[name].value.size
        assert (one.problem, one.zero, one.informative) == ("", "", True)
        assert one.axes == quantity_axes(SCAN, "mamba2")[name]


def test_without_gradients_only_outputs_are_measured():
    outputs = [Got(quantity.value) for quantity in TRUTH.outputs.values()]
    assert [m.quantity for m in measure(SCAN, "mamba2", "f32", TRUTH, outputs, [])] == ["y", "s_T"]


def test_a_wrong_gradient_moves_its_own_measurement_and_no_other():
    found = measured({"d x": spoil("d x", np.negative)})
    assert all(ratio > 1000 for name, ratio in found["d x"].ratios.items() if name != "maa")
    assert all(one.ratios == dict.fromkeys(METRICS, 0.0) for name, one in found.items() if name != "d x")


@pytest.mark.parametrize("got", [Got(None, "is missing"), Got(None, "has dtype float16, want float32"), Got(None)])
def test_what_could_not_be_read_is_a_problem_and_nothing_was_checked(got):
    one = measured({"d B": got})["d B"]
    assert one.problem == (got.problem or "is missing")
    assert one.checked == 0
    assert not one.ratios


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_elements_that_are_not_finite_are_counted_and_pointed_at(bad):
    def change(value):
        value[1, 3, 2] = value[0, 4, 0] = bad
        return value

    one = measured({"d dt": spoil("d dt", change)})["d dt"]
    assert one.problem == "2 of 40 elements are not finite"
    assert one.ratios == dict.fromkeys(METRICS)
    assert (one.worst, one.got) == ((0, 4, 0), None)
    assert one.worst_step in {3, 4}
    assert [ratio is None for ratio in one.profile] == [False, False, False, True, True]
    assert one.spliced == {}


def test_the_worst_element_and_step_are_told_with_what_stands_there():
    def change(value):
        value[1, 2, 3, 0] += 5.0
        return value

    one = measured({"d x": spoil("d x", change)})["d x"]
    want = float(TRUTH.gradients["x"].value[1, 2, 3, 0])
    assert (one.worst, one.want, one.got, one.worst_step) == ((1, 2, 3, 0), want, want + 5.0, 2)
    assert np.flatnonzero(one.profile).tolist() == [2]
    assert one.where == "b=1, t=2, h=3, p=0"


ZERO = Quantity(np.zeros((2, 5, 4)), np.zeros((2, 5, 4)), np.zeros((2, 5, 4)))


def test_a_zero_must_be_kept_exactly():
    kept = measured(of=truth(dt=ZERO))["d dt"]
    assert (kept.zero, kept.problem, kept.ratios, kept.checked, kept.worst) == ("zero-kept", "", {}, 40, ())


@pytest.mark.parametrize("value, told", [(1e-300, 1e-300), (np.nan, None), (np.inf, None)])
def test_the_smallest_break_of_a_zero_is_seen(value, told):
    broken = np.zeros((2, 5, 4))
    broken[1, 3, 2] = value
    one = measured({"d dt": Got(broken)}, of=truth(dt=ZERO))["d dt"]
    assert (one.zero, one.worst, one.worst_step, one.got, one.want) == ("zero-broken", (1, 3, 2), 3, told, 0.0)


def test_minus_zero_is_zero():
    assert measured({"d dt": Got(-np.zeros((2, 5, 4)))}, of=truth(dt=ZERO))["d dt"].zero == "zero-kept"


@pytest.mark.parametrize("factor, informative", [(0.5, True), (2.0, False)])
def test_a_truth_below_its_own_error_says_nothing(factor, informative):
    value = TRUTH.gradients["A"].value
    error = np.full_like(value, factor * np.abs(value).max() / INFORMATIVE)
    assert measured(of=truth(A=replace(TRUTH.gradients["A"], error=error)))["d A"].informative is informative


def test_a_truth_that_is_not_finite_says_nothing():
    value = np.full((4,), np.inf)
    one = measured(of=truth(A=Quantity(value, value, value)))["d A"]
    assert (one.informative, one.ratios) == (False, {})


def test_a_defect_is_diluted_to_the_last_step_and_to_the_first_head():
    def change(value):
        value[:, -1] += 1e-3
        return value

    one = measured({"d x": spoil("d x", change)})["d x"]
    assert one.diluted["last step"] == pytest.approx(one.ratios["slice"], rel=1e-3)
    first = measured({"d x": spoil("d x", lambda value: value + np.array([0, 1e-3, 1e-3, 1e-3])[:, None])})["d x"]
    assert first.ratios["slice"] > 0
    assert first.diluted["one head"] == 0


def test_what_lacks_the_axis_has_no_diluted_form():
    found = measured()
    assert {name: set(one.diluted) for name, one in found.items()} == {
        name: ({"one head"} if name in {"s_T", "d s", "d A"} else {"last step", "one head"}) for name in NAMES
    }
    assert [head_axis(axes) for axes in (("B", "T", "H"), ("G",), ("B", "T"))] == ["H", "G", None]


def test_spliced_defects_are_as_large_as_the_defects_themselves():
    """Each is planted for real, and measures what was foretold."""
    exact = measured()["d B"]
    other = TRUTH.gradients["C"].value

    def last(value):
        value[:, -1] = 0
        return value

    def row(value):
        value[-1] = 0
        return value

    planted = {
        "zero": ("l2", np.zeros_like),
        "scale": ("l2", lambda value: value * (1 + SCALE_DEFECT)),
        "swap": ("l2", lambda value: other),
        "last step": ("slice", last),
        "one row": ("slice", row),
    }
    assert set(exact.spliced) == set(planted)
    for form, (metric, change) in planted.items():
        one = measured({"d B": spoil("d B", change)})["d B"]
        if metric == "l2":
            assert one.ratios["l2"] == pytest.approx(exact.spliced[form], rel=1e-6)
        else:
            assert one.ratios["slice"] >= exact.spliced[form] * (1 - 1e-6)


def test_a_scale_error_that_half_precision_cannot_hold_is_not_spliced():
    assert {dtype: "scale" in measured(dtype=dtype)["d B"].spliced for dtype in DTYPES} == {"f32": True, "f16": False, "bf16": False}


def test_outputs_are_not_spliced_and_only_twins_are_swapped():
    found = measured()
    assert found["y"].spliced == found["s_T"].spliced == {}
    assert {name for name, one in found.items() if "swap" in one.spliced} == {"d B", "d C"}
    assert set(found["d A"].spliced) == {"zero", "scale"}


def test_a_coarser_dtype_makes_the_same_error_smaller_in_its_units():
    got = {"d x": spoil("d x", lambda value: value * 1.01)}
    fine, coarse = measured(got)["d x"], measured(got, dtype="bf16")["d x"]
    assert fine.ratios["l2"] / coarse.ratios["l2"] == pytest.approx(DTYPES["bf16"].u / DTYPES["f32"].u, rel=1e-3)
    assert fine.errors["l2"] == coarse.errors["l2"]
