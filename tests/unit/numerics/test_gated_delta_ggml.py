"""The truth of ggml's gated delta rule: every oracle says the same, and it is that of mlx-lm's with heads moved, a logarithm and a scale."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gradcheck.numerics.blackbox import blackbox
from gradcheck.numerics.certify import certificate
from gradcheck.numerics.costate import costate
from gradcheck.numerics.replay import replay

sys.path.insert(0, str(Path(__file__).parent))

import recurrences  # type: ignore[import-not-found] # beside this file, where the line above lets it be found

OP, LINEAR = recurrences.OPS["gated_delta_ggml"], recurrences.OPS["gated_delta"]
BRANCHES = tuple(OP.variants)
SIZES = {"B": 2, "T": 3, "R": 2, "Hk": 3, "Dk": 2, "Dv": 3}


def problem(branch: str, regime: str, seed: int = 0):
    rng = np.random.default_rng([seed, BRANCHES.index(branch)])
    drawn = OP.regimes[regime].draw(rng, OP.shapes(SIZES, branch))
    return recurrences.sample(OP.recurrence(branch), rng, SIZES, drawn)


def quantities(answers):
    return [*answers.outputs, *answers.gradients.values()]


def in_runs(a, at: int):
    """[.., R, Hk, ..] as [.., Hk · R, ..]."""
    a = np.moveaxis(a, at, at + 1)
    return a.reshape(*a.shape[:at], -1, *a.shape[at + 2 :])


def as_mlx_lm_has_it(call, *, order=in_runs):
    """The same call of the op `gated_delta`: inputs in its order, decays for their logarithms, queries scaled."""
    given = call.inputs
    inputs = {
        "q": given["q"] / np.sqrt(SIZES["Dv"]),
        "k": given["k"],
        "v": order(given["v"], 2),
        "g": order(np.exp(given["g"]), 2),
        "beta": order(given["beta"], 2),
        "state": order(given["state"], 1),
    }
    branch = "vector" if given["g"].ndim > given["beta"].ndim else "scalar"
    return costate(LINEAR.recurrence(branch), inputs, order(call.w_y, 2), order(call.w_s, 1))


def apart(call, other) -> list[str]:
    """Quantities in which the other op's answers, carried over to this one, are further off than both bounds."""
    found = call.solve(costate)
    theirs = other.gradients
    carried = {"q": theirs["q"].value / np.sqrt(SIZES["Dv"]), "k": theirs["k"].value}
    carried["g"] = theirs["g"].value * in_runs(np.exp(call.inputs["g"]), 2)
    carried |= {name: theirs[name].value for name in ("v", "beta", "state")}
    bad = []
    for name, answer in found.gradients.items():
        ours, scale = (a if name in "qk" else in_runs(a, 1 if name == "state" else 2) for a in (answer.value, answer.majorant))
        if not (np.abs(ours - carried[name]) <= 1e-13 * scale.max()).all():
            bad.append(f"d {name}")
    for name, at, ours, their in zip(OP.outputs, (2, 1), found.outputs, other.outputs, strict=True):
        if not (np.abs(in_runs(ours.value, at) - their.value) <= 1e-13 * ours.majorant.max()).all():
            bad.append(name)
    return bad


@pytest.mark.parametrize("regime", OP.regimes)
@pytest.mark.parametrize("branch", BRANCHES)
def test_every_oracle_covers_fifty_digits(branch, regime):
    call = problem(branch, regime)
    exact = quantities(call.solve(certificate))
    for oracle in (blackbox, replay, costate):
        for one, other in zip(exact, quantities(call.solve(oracle)), strict=True):
            assert (np.abs(one.value - other.value) <= one.error + other.error).all(), oracle.__name__


@pytest.mark.parametrize("regime", OP.regimes)
@pytest.mark.parametrize("branch", BRANCHES)
def test_it_is_mlx_lms_rule_with_heads_moved_a_logarithm_and_a_scale(branch, regime):
    call = problem(branch, regime)
    assert apart(call, as_mlx_lm_has_it(call)) == []


def test_heads_in_the_other_order_are_another_rule():
    call = problem("scalar", "typical")
    not_moved = as_mlx_lm_has_it(call, order=lambda a, at: a.reshape(*a.shape[:at], -1, *a.shape[at + 2 :]))
    assert set(apart(call, not_moved)) == {"y", "state_T", *(f"d {name}" for name in OP.inputs)}


@pytest.mark.parametrize("regime", OP.regimes)
def test_regimes_draw_logarithms_of_the_gates_of_the_family(regime):
    rng = np.random.default_rng(1)
    g = OP.regimes[regime].draw(rng, OP.shapes({**SIZES, "T": 60}, "vector"))["g"]
    assert np.isfinite(g).all()
    gates = np.exp(g)
    assert gates.max() <= 1.05
    assert (regime == "gate-zero") == bool((gates == 0).any())
    assert (regime == "growth") == bool((gates > 1).any())
