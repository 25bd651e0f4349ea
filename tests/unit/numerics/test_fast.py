"""The oracle `fast`: an op's compiled function is believed where it agrees with costate, and refused where it does not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck.engine.problem import draw
from gradcheck.engine.truth import cases_of
from gradcheck.numerics import fast as fast_module
from gradcheck.numerics.costate import costate
from gradcheck.numerics.differences import COARSE_STEP
from gradcheck.numerics.fast import Refused, fast

sys.path.insert(0, str(Path(__file__).parent))

import lane_files  # type: ignore[import-not-found]
import recurrences  # type: ignore[import-not-found]

PARTS = ("value", "error", "majorant")
LANES = lane_files.lanes()


def large(branch: str = "mamba1", regime: str = "typical", seed: int = 400):
    """A call that is larger in every axis than the part on which a function is tried."""
    return recurrences.scan(branch, regime, seed, B=3, T=9, H=6, G=2, P=4, N=5)


def ask(call, function):
    return fast(call.recurrence, function, ("y", "s_T"), call.inputs, call.w_y, call.w_s)


def changed(name: str, part: str, change):
    """The right answers, but for one part of one of them."""

    def function(inputs, w_y, w_s):
        found = dict(LANES(inputs, w_y, w_s))
        parts = dict(zip(PARTS, found[name], strict=True))
        parts[part] = change(parts[part])
        return found | {name: tuple(parts.values())}

    return function


@pytest.mark.parametrize("branch", recurrences.BRANCHES)
@pytest.mark.parametrize("regime", recurrences.SCAN.regimes)
def test_the_lanes_of_the_scan_agree_beyond_the_part_that_they_are_tried_on(branch, regime):
    call = large(branch, regime)
    got, want = ask(call, LANES), call.solve(costate)
    for a, b in zip((*got.outputs, *got.gradients.values()), (*want.outputs, *want.gradients.values()), strict=True):
        assert (np.abs(a.value - b.value) <= a.error + b.error).all()
        assert np.allclose(a.majorant, b.majorant, rtol=fast_module.DIGITS, atol=0)
    assert list(got.gradients) == list(want.gradients)


@pytest.mark.parametrize("op, branch", recurrences.GATED)
@pytest.mark.parametrize("sizes", [{"T": 7, "Dk": 4}, {"B": 1, "T": 1, "Hk": 1, "Hv": 1, "Dk": 2, "Dv": 1}])
def test_the_rows_of_the_gated_delta_rule_agree_in_every_regime(op, branch, sizes):
    rows = lane_files.lanes(op=op)
    for regime in recurrences.OPS[op].regimes:
        call = recurrences.gated(op, branch, regime, 400, **sizes)
        got, want = fast(call.recurrence, rows, tuple(recurrences.OPS[op].outputs), call.inputs, call.w_y, call.w_s), call.solve(costate)
        for a, b in zip((*got.outputs, *got.gradients.values()), (*want.outputs, *want.gradients.values()), strict=True):
            assert (np.abs(a.value - b.value) <= a.error + b.error).all(), regime
            assert (np.abs(a.majorant - b.majorant) <= fast_module.DIGITS * b.majorant + b.error / COARSE_STEP).all(), regime
        assert list(got.gradients) == list(want.gradients)


def last(value):
    return np.concatenate([value.ravel()[:-1], value.ravel()[-1:] + 1e-9]).reshape(value.shape)


WRONG = {
    "a gradient off by 1e-9 of itself": ("x", "value", lambda a: a * (1 + 1e-9)),
    "one element off by 1e-9": ("B", "value", last),
    "a NaN": ("dt", "value", lambda a: np.where(a == a.max(), np.nan, a)),
    "an output off": ("y", "value", lambda a: a + 1e-9),
    "a final state off": ("s_T", "value", lambda a: a * (1 + 1e-9)),
    "a sum for a static input left out": ("A", "value", lambda a: a / 2),
    "no bound at all": ("C", "error", lambda a: 0 * a),
    "a bound that covers anything": ("s", "error", lambda a: a + 1e3),
    "a bound that is not finite": ("s", "error", lambda a: a + np.inf),
    "a majorant twice too large": ("dt", "majorant", lambda a: 2 * a),
    "a majorant of nothing": ("x", "majorant", lambda a: 0 * a),
    "another shape": ("x", "value", lambda a: a[..., None]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_function_that_is_wrong_in_one_thing_is_refused_and_the_thing_named(what):
    name, part, change = WRONG[what]
    with pytest.raises(Refused, match=rf"\b{name}\b"):
        ask(large(), changed(name, part, change))


MUTATED = {
    "a decay forgotten": {"return decay * s + (q * x) * B": "return s + (q * x) * B"},
    "heads dealt out to groups in turn": {"g = head // (heads // groups)": "g = head % groups"},
    "y left out of the tail": {"tail[n] + told * w, tails": "tail[n], tails"},
    "a tail of zeros": {"P[:], PM[:] = w_s[b, head], np.abs(w_s[b, head])": "P[:], PM[:] = 0 * w_s[b, head], np.abs(w_s[b, head])"},
    "a complex step that is not divided by": {"SHRUNK = 1 / TINY": "SHRUNK = 2 / TINY"},
    "the last row only": {"for b in range(rows):": "for b in range(rows - 1, rows):"},
    "another softplus": {"softplus(dt + 1j * TINY)": "softplus(dt + 1j * TINY, 0.5)"},
    "a complex step so large that it truncates": {"TINY = 2.0**-60": "TINY = 2.0**-11"},
    "a bound of half a rounding": {"8 * 2.0**-53": "0.5 * 2.0**-53"},
}


@pytest.mark.parametrize("what", MUTATED)
def test_a_mutant_of_the_lanes_is_refused(what):
    """Most show in any case; a wrong bound on the truncation where there is some to be bounded."""
    calls = [large("mamba2", regime) for regime in ("typical", "softplus-branches")]
    function = lane_files.lanes(MUTATED[what])
    reasons = []
    for call in calls:
        try:
            ask(call, function)
        except Refused as error:
            reasons.append(str(error))
    assert reasons
    assert all("disagrees with costate" in reason for reason in reasons)


MUTATED_ROWS = {
    "value heads dealt out to key heads in turn": {"group = head // shared": "group = head % q.shape[2]"},
    "a gate forgotten in what is held": {"held = add(held, now[j] * G[j] * K[j])": "held = add(held, now[j] * K[j])"},
    "what flows through what is held": {"k0[i] += delta * u[i] - strength * now[i] * Gi * through": "k0[i] += delta * u[i]"},
    "the key's own place": {"k0[i] += delta * u[i] - strength": "k0[i] += -strength"},
    "a tail that the key does not reflect": {"tail[i] = Gi * (u[i] - si * through)": "tail[i] = Gi * u[i]"},
    "a mask that y does not know": {"if not kept[b, t]:\n                    S[t + 1]": "if False:\n                    S[t + 1]"},
    "the last row of the state only": {"g0[i] += now[i]": "g0[i] = now[i]"},
    "a scale without what the others move": {"abs(mi) * rest[i]": "0 * rest[i]"},
    "a sum that counts its own part": {"out[i] = total\n        total += parts[i]": "total += parts[i]\n        out[i] = total"},
    "a size that is not counted": {"k2[i] += every": "k2[i] += 0 * every"},
    "a gradient in beta without the state": {"d_beta[0, b, t, head] += (value - held)": "d_beta[0, b, t, head] += value"},
    "a bound of half a rounding": {"8 * 2.0**-53": "0.5 * 2.0**-53"},
}
MUTATED_UPDATE = {
    "a bias forgotten": {"z, rate = a + dt_bias,": "z, rate = a,"},
    "a bound that is none": {"else exp(bound * sigmoid(rate * z))": "else exp(-sigmoid(rate * z))"},
    "a beta below one": {"most = 2.0 if": "most = 1.0 if"},
    "the rate of the first channel only": {"of_rate[0].sum(-1), rows.together": "of_rate[0][..., 0], rows.together"},
    "a shared input of the first sequence only": {"self.settled(value.sum(0)": "self.settled(value[0]"},
}


@pytest.mark.parametrize("what", MUTATED_ROWS | MUTATED_UPDATE)
def test_a_mutant_of_the_rows_is_refused(what):
    """In one of the branches at least, and by what it answers."""
    op = "gated_delta" if what in MUTATED_ROWS else "gated_delta_update"
    rows = lane_files.lanes((MUTATED_ROWS | MUTATED_UPDATE)[what], op)
    reasons = []
    for branch in recurrences.OPS[op].variants:
        call = recurrences.gated(op, branch, "typical", 401, T=3)
        try:
            fast(call.recurrence, rows, tuple(recurrences.OPS[op].outputs), call.inputs, call.w_y, call.w_s)
        except Refused as error:
            reasons.append(str(error))
    assert reasons
    assert all("disagrees with costate" in reason for reason in reasons)


def test_a_function_that_raises_or_leaves_something_out_is_refused():
    def broken(inputs, w_y, w_s):
        raise ZeroDivisionError("in a lane")

    def forgetful(inputs, w_y, w_s):
        return {name: parts for name, parts in LANES(inputs, w_y, w_s).items() if name != "A"}

    def careless(inputs, w_y, w_s):
        inputs["x"] *= 2
        return LANES(inputs, w_y, w_s)

    with pytest.raises(Refused, match="does not run: ValueError: output array is read-only"):
        ask(large(), careless)
    with pytest.raises(Refused, match="does not run: ZeroDivisionError: in a lane"):
        ask(large(), broken)
    with pytest.raises(Refused, match="does not run: KeyError: 'A'"):
        ask(large(), forgetful)


def test_the_part_is_a_problem_of_the_same_recurrence_with_whole_groups():
    call = recurrences.scan("mamba2", "typical", 1, B=4, T=20, H=12, G=3, P=7, N=9)
    inputs, w_y, w_s = fast_module._part(call.recurrence, call.inputs, call.w_y, call.w_s)
    assert inputs["x"].shape == (2, fast_module.STEPS, 6, 3)
    assert inputs["B"].shape == (2, fast_module.STEPS, 3, 3)
    assert np.array_equal(inputs["x"][-1, :, -1, -1], call.inputs["x"][-1, : fast_module.STEPS, -1, -1])
    assert np.array_equal(inputs["dt"][0, :, 1], call.inputs["dt"][0, : fast_module.STEPS, 3])  # the last of the first group's four
    assert (w_y.shape, w_s.shape) == ((2, fast_module.STEPS, 6, 3), (2, 6, 3, 3))


@pytest.mark.parametrize("name", recurrences.TOYS)
def test_a_function_of_any_recurrence_can_be_tried(name):
    call = recurrences.toy(name, 5)

    def own(inputs, w_y, w_s):
        found = costate(call.recurrence, inputs, w_y, w_s)
        every = dict(zip(("y", "s_T"), found.outputs, strict=True)) | dict(found.gradients)
        return {key: (answer.value, answer.error, answer.majorant) for key, answer in every.items()}

    def flipped(inputs, w_y, w_s):
        found = own(inputs, w_y, w_s)
        first = next(iter(call.recurrence.differentiable))
        return found | {first: (-found[first][0], *found[first][1:])}

    assert list(ask(call, own).gradients) == list(call.recurrence.differentiable)
    with pytest.raises(Refused, match="disagrees"):
        ask(call, flipped)


@pytest.mark.slow
@pytest.mark.parametrize("name", lane_files.FILES)
def test_compiled_lanes_are_admitted_over_the_whole_grid_and_true_to_costate(name):
    pytest.importorskip("numba")
    op = recurrences.OPS[name]
    for case in cases_of(op, ("f32", "bf16"), seed=77):
        problem = draw(op, case)
        call = recurrences.Sample(op.recurrence(case.variant), problem.inputs, *problem.cotangents)
        got, want = fast(call.recurrence, op.fast, tuple(op.outputs), call.inputs, call.w_y, call.w_s), call.solve(costate)
        for a, b in zip((*got.outputs, *got.gradients.values()), (*want.outputs, *want.gradients.values()), strict=True):
            assert (np.abs(a.value - b.value) <= a.error + b.error).all(), case


def test_a_wrong_recurrence_is_not_admitted_either():
    call = large("mamba2")
    other = replace(call.recurrence, linear=call.recurrence.linear | {"dt"})  # costate then moves dt by a million
    with pytest.raises(Refused):
        ask(replace(call, recurrence=other), LANES)
