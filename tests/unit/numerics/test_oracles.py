"""costate and blackbox: true within their own bounds, agreed with each other, and able to see a mistake."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck.math import exp, softplus
from gradcheck.numerics.blackbox import blackbox
from gradcheck.numerics.costate import costate
from gradcheck.numerics.differences import SPACING

sys.path.insert(0, str(Path(__file__).parent))

import recurrences  # type: ignore[import-not-found]

SEEDS = range(20)
TIGHT = 1e-6
LARGEST_DT = 100.5
LOOSE = {
    "softplus-branches": (LARGEST_DT * SPACING / 2) ** 4
}  # A is multiplied by such a dt, and the bound is that of a four-point difference
LEAST = float(np.finfo(np.float64).tiny)  # below this long double has numbers that float64 has not
CELLS = [(branch, regime) for branch in recurrences.BRANCHES for regime in recurrences.SCAN.regimes]
extended = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="the truth is in long double, which is float64 here")


def answers_of(call, oracle) -> dict:
    found = call.solve(oracle)
    y, state = found.outputs
    return {"y": y, "s_T": state, **{f"d {name}": answer for name, answer in found.gradients.items()}}


def disagreements(call) -> list[str]:
    """Quantities in which the two oracles differ by more than both their errors."""
    ours, theirs = answers_of(call, costate), answers_of(call, blackbox)
    assert list(ours) == list(theirs)
    return [name for name in ours if not (np.abs(ours[name].value - theirs[name].value) <= ours[name].error + theirs[name].error).all()]


@pytest.mark.parametrize("branch, regime", CELLS)
def test_the_oracles_agree_on_the_scan_within_their_errors(branch, regime):
    assert disagreements(recurrences.scan(branch, regime, seed=100, B=2, T=4, P=1, N=2)) == []


@pytest.mark.parametrize("name", recurrences.TOYS)
@pytest.mark.parametrize("seed", range(3))
def test_the_oracles_agree_on_other_recurrences_within_their_errors(name, seed):
    call = recurrences.toy(name, seed)
    assert disagreements(call) == []
    for oracle in (costate, blackbox):
        for answer in answers_of(call, oracle).values():
            assert answer.error.max() < TIGHT * np.abs(answer.value).max()


@extended
@pytest.mark.parametrize("branch, regime", CELLS)
def test_the_error_covers_every_element_on_fresh_seeds_and_is_small(branch, regime, record_property):
    ratios, tightness = [], 0.0
    for seed in SEEDS:
        call = recurrences.scan(branch, regime, seed)
        truth = recurrences.scan_backward(call)
        for name, answer in call.solve(costate).gradients.items():
            off = np.abs(truth[name] - answer.value)
            assert (off <= answer.error + LEAST).all(), (seed, name)
            if np.abs(answer.value).max() > LEAST:
                tightness = max(tightness, answer.error.max() / np.abs(answer.value).max())
                ratios.append(float(np.median(off / (answer.error + LEAST))))
    record_property("median of error made / error allowed", float(np.median(ratios)))
    record_property("largest error allowed / largest element", float(tightness))
    assert tightness < LOOSE.get(regime, TIGHT)
    assert np.median(ratios) > 1e-4  # a bound 10,000 times too large would cover anything


@extended
@pytest.mark.parametrize("branch", recurrences.BRANCHES)
def test_the_outputs_are_covered_too(branch):
    for seed in SEEDS:
        call = recurrences.scan(branch, "typical", seed)
        given = {name: np.asarray(value, np.longdouble) for name, value in call.inputs.items()}
        s, y = given["s"], []
        for t in range(given["dt"].shape[1]):
            now = {name: given[name][:, t] for name in ("x", "dt", "B", "C")}
            s, (term,) = recurrences.SCAN.step(s, A=given["A"][None], **now)
            y.append(term.sum(-1))
        for want, got in zip((np.stack(y, 1), s), call.solve(costate).outputs, strict=True):
            assert want.dtype == np.longdouble
            assert (np.abs(want - got.value) <= got.error).all()
            assert got.error.max() < TIGHT * np.abs(got.value).max()


def wrong_gate(s, x, dt, A, B, C):
    """The scan without dt in its gate."""
    q = softplus(dt)[..., None]
    repeat = x.shape[-2] // B.shape[-2]
    B, C = (np.repeat(array, repeat, axis=-2)[..., None, :] for array in (B, C))
    s = exp(A[..., None] if A.ndim == dt.ndim else A)[..., None, :] * s + (q * x)[..., None] * B
    return s, (s * C,)


def wrong_groups(s, x, dt, A, B, C):
    """The scan with the groups tiled."""
    repeat = x.shape[-2] // B.shape[-2]
    B, C = (np.concatenate([array] * repeat, axis=-2) for array in (B, C))
    return recurrences.SCAN.step(s, x, dt, A, B, C)


@pytest.mark.parametrize("step", [wrong_gate, wrong_groups])
@pytest.mark.parametrize("branch", recurrences.BRANCHES)
def test_another_step_is_seen_in_everything(branch, step):
    call = recurrences.scan(branch, "typical", seed=7, T=3, P=1, N=2)
    other = replace(call, recurrence=replace(call.recurrence, step=step))
    right, wrong = answers_of(call, costate), answers_of(other, blackbox)
    apart = {name for name in right if not (np.abs(right[name].value - wrong[name].value) <= right[name].error + wrong[name].error).all()}
    assert apart == set(right)


def test_a_delta_rule_that_forgets_its_coupling_is_seen_by_the_blackbox():
    call = recurrences.toy("delta, scalar gate", seed=3)
    forgetful = replace(call, recurrence=recurrences.delta(coupled=frozenset()))
    assert "d S" in disagreements(forgetful)


def test_a_nonlinear_input_that_is_declared_linear_is_seen_by_the_blackbox():
    call = recurrences.scan("mamba2", "typical", seed=3, T=3, P=1, N=2)
    wrong = replace(call.recurrence, linear=call.recurrence.linear | {"dt"})
    right = call.solve(blackbox).gradients["dt"]
    with np.errstate(all="ignore"):
        got = replace(call, recurrence=wrong).solve(costate).gradients["dt"]
    assert not (np.abs(got.value - right.value) <= got.error + right.error).all()


@pytest.mark.parametrize("oracle", [costate, blackbox])
def test_a_majorant_is_at_least_the_value(oracle):
    calls = [recurrences.scan(*cell, seed=5, T=3, P=1, N=2) for cell in CELLS] + [recurrences.toy(name, 5) for name in recurrences.TOYS]
    for call in calls:
        for answer in answers_of(call, oracle).values():
            assert (answer.majorant >= np.abs(answer.value) - answer.error).all()
            assert (answer.error >= 0).all()


@pytest.mark.parametrize("branch", recurrences.BRANCHES)
def test_a_majorant_is_zero_only_where_the_value_is_zero_whatever_the_weights(branch):
    found = False
    for regime in recurrences.SCAN.regimes:
        call = recurrences.scan(branch, regime, seed=6)
        for w_y, w_s in ((call.w_y, call.w_s), (0 * call.w_y, call.w_s), (call.w_y, 0 * call.w_s)):
            silent = replace(call, w_y=w_y, w_s=w_s)
            zero = {name: answer.majorant == 0 for name, answer in silent.solve(costate).gradients.items()}
            louder = replace(call, w_y=w_y * np.linspace(1, 3, w_y.size).reshape(w_y.shape), w_s=-2 * w_s)
            for name, value in recurrences.scan_backward(louder).items():
                assert (np.abs(value[zero[name]]) < LEAST).all(), (regime, name)
                found = found or bool(zero[name].any())
            if not w_y.any():
                assert zero["C"].all()  # the state does not depend on C
    assert found


@pytest.mark.parametrize("oracle", [costate, blackbox])
def test_what_no_weight_reaches_is_exactly_zero(oracle):
    call = recurrences.toy("static and masked", seed=2)
    never = replace(call, inputs={**call.inputs, "mask": np.zeros_like(call.inputs["mask"])})
    found = answers_of(never, oracle)
    for name in ("y", "d x", "d a", "d bias"):
        assert not found[name].value.any()
        assert not found[name].majorant.any()
    assert np.abs(found["d h"].value - never.w_s).max() <= found["d h"].error.max()
    assert "d mask" not in found


def test_a_static_input_gathers_all_steps_and_sequences():
    call = recurrences.toy("static and masked", seed=4)
    spread = replace(call.recurrence, inputs={**call.recurrence.inputs, "bias": ("B", "T", "D")})
    bias = np.broadcast_to(call.inputs["bias"], call.inputs["x"].shape)
    each = replace(call, recurrence=spread, inputs={**call.inputs, "bias": bias}).solve(costate).gradients["bias"]
    all_at_once = call.solve(costate).gradients["bias"]
    assert np.abs(each.value.sum((0, 1)) - all_at_once.value).max() <= (each.error.sum((0, 1)) + all_at_once.error).max()


@pytest.mark.parametrize("oracle", [costate, blackbox])
def test_shapes_that_do_not_fit_are_an_error_that_names_the_input(oracle):
    call = recurrences.scan("mamba2", "typical", seed=0)
    with pytest.raises(ValueError, match="'B' has shape"):
        replace(call, inputs={**call.inputs, "B": call.inputs["B"][:, :-1]}).solve(oracle)
    with pytest.raises(ValueError, match="'dt' is missing"):
        replace(call, inputs={name: value for name, value in call.inputs.items() if name != "dt"}).solve(oracle)


def test_memory_grows_with_time_and_not_with_its_square():
    def peak(steps: int) -> int:
        call = recurrences.scan("mamba2", "typical", seed=0, B=1, T=steps, H=4, P=16, N=16)
        tracemalloc.start()
        try:
            call.solve(costate)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # whatever is loaded once
    short, long = peak(128), peak(512)
    assert long < 5 * short  # 4 is linear, 16 is quadratic
    state = 4 * 16 * 16 * 8
    assert long < 32 * 512 * state
