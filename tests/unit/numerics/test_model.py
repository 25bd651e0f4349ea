"""The model of a correct kernel: off by what rounding explains, and by no more."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck.numerics.costate import costate, model
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.numerics.metrics import METRICS, compare, rounding_unit
from gradcheck.numerics.sweep import ROUNDINGS

sys.path.insert(0, str(Path(__file__).parent))

import recurrences  # type: ignore[import-not-found]

STEPS = 9
CELLS = [(branch, regime) for branch in recurrences.BRANCHES for regime in recurrences.SCAN.regimes]
COARSER = DTYPES["bf16"].u / DTYPES["f32"].u


def ratios(call, carry: str = "") -> dict[tuple[str, str], float]:
    """(quantity, metric) to the model's error in float32 rounding units, where anything is to be rounded."""
    call = replace(
        call,
        inputs={name: value if value.dtype == bool else round_to(value, "f32") for name, value in call.inputs.items()},
        w_y=round_to(call.w_y, "f32"),
        w_s=round_to(call.w_s, "f32"),
    )
    truth, (y, state, gradients) = call.solve(costate), model(call.recurrence, call.inputs, call.w_y, call.w_s, carry)
    got = {"y": y, "s_T": state} | gradients
    want = dict(zip(("y", "s_T"), truth.outputs, strict=True)) | dict(truth.gradients)
    assert list(got) == list(want)
    out = {}
    for name, answer in want.items():
        assert got[name].dtype == np.float32 or carry
        if answer.majorant.any():
            axes = tuple("abcdefgh"[: answer.value.ndim])
            found = compare(got[name].astype(np.float64), answer.value, answer.error, rounding_unit(answer.majorant, DTYPES["f32"]), axes)
            out |= {(name, metric): found.ratios[metric] for metric in METRICS}
    return out


@pytest.mark.parametrize("branch, regime", CELLS)
def test_rounding_explains_the_model_in_every_regime(branch, regime):
    for seed in range(3):
        for (name, metric), ratio in ratios(recurrences.scan(branch, regime, seed, T=STEPS)).items():
            if metric == "maa":
                assert np.isfinite(ratio)
            else:
                assert 0 <= ratio <= ROUNDINGS * (STEPS + 1), (name, metric)


@pytest.mark.parametrize("name", recurrences.TOYS)
def test_rounding_explains_the_model_of_other_recurrences(name):
    _, sizes = recurrences.TOYS[name]
    found = ratios(recurrences.toy(name, 1))
    assert all(ratio <= ROUNDINGS * (sizes["T"] + 1) for (_, metric), ratio in found.items() if metric != "maa")


@pytest.mark.parametrize("branch", recurrences.BRANCHES)
def test_the_model_is_not_exact(branch):
    found = ratios(recurrences.scan(branch, "typical", 0, T=STEPS))
    assert all(ratio > 0 for ratio in found.values())


@pytest.mark.parametrize("branch, regime", CELLS)
def test_a_coarser_carry_is_noisier_by_about_its_unit_and_no_more(branch, regime):
    call = recurrences.scan(branch, regime, 0, T=STEPS)
    fine, coarse = ratios(call), ratios(call, "bf16")
    assert coarse["s_T", "l2"] > fine["s_T", "l2"] * COARSER / 64
    assert all(coarse[name, "z"] <= ROUNDINGS * (STEPS + 1) * COARSER for name, metric in coarse if metric == "z")


def test_the_model_needs_no_bounds_and_leaves_the_inputs_alone():
    call = recurrences.scan("mamba2", "typical", 0)
    before = {name: value.copy() for name, value in call.inputs.items()}
    model(call.recurrence, call.inputs, call.w_y, call.w_s, "f16")
    call.solve(costate)
    assert all(np.array_equal(before[name], call.inputs[name]) for name in before)
