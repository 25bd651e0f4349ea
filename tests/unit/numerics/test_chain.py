"""The chain of trust, link by link: certificate, blackbox, replay, costate, fast. Each pair agrees within the bounds that both give."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck.math import exp
from gradcheck.numerics.blackbox import blackbox
from gradcheck.numerics.certify import certificate
from gradcheck.numerics.costate import Answer, costate
from gradcheck.numerics.fast import fast
from gradcheck.numerics.replay import replay

sys.path.insert(0, str(Path(__file__).parent))

import lane_files  # type: ignore[import-not-found]
import recurrences  # type: ignore[import-not-found]

CELLS = [(branch, regime) for branch in recurrences.BRANCHES for regime in recurrences.SCAN.regimes]
SMALL = {"B": 2, "T": 4, "H": 2, "G": 1, "P": 1, "N": 2}
FRESH = range(300, 304)
LANES = lane_files.lanes()


def by_lanes(recurrence, *arguments):
    """The oracle `fast`, its lanes run as plain Python: what is tested is the arithmetic, which numba compiles as it stands."""
    return fast(recurrence, LANES, ("y", "s_T"), *arguments)


CHAIN = {"certificate": certificate, "blackbox": blackbox, "replay": replay, "costate": costate, "fast": by_lanes}
OF_ANY_STEP = {name: oracle for name, oracle in CHAIN.items() if name != "fast"}


def answers_of(call, oracle) -> dict[str, Answer]:
    found = call.solve(oracle)
    y, state = found.outputs
    return {"y": y, "s_T": state, **{f"d {name}": answer for name, answer in found.gradients.items()}}


def uncovered(one: dict[str, Answer], other: dict[str, Answer]) -> list[str]:
    """Quantities with an element in which two oracles differ by more than both their bounds."""
    assert list(one) == list(other)
    return [name for name in one if not (np.abs(one[name].value - other[name].value) <= one[name].error + other[name].error).all()]


@pytest.mark.parametrize("branch, regime", CELLS)
def test_every_link_agrees_in_every_regime(branch, regime):
    call = recurrences.scan(branch, regime, 200, **SMALL)
    found = {name: answers_of(call, oracle) for name, oracle in CHAIN.items()}
    assert {f"{a}-{b}": uncovered(found[a], found[b]) for a, b in pairwise(CHAIN)} == {f"{a}-{b}": [] for a, b in pairwise(CHAIN)}


@pytest.mark.parametrize("name", recurrences.TOYS)
def test_every_link_agrees_on_other_recurrences(name):
    call = recurrences.toy(name, 200)
    found = {name: answers_of(call, oracle) for name, oracle in OF_ANY_STEP.items()}
    for a, b in pairwise(OF_ANY_STEP):
        assert uncovered(found[a], found[b]) == [], (a, b)


@pytest.mark.parametrize("one, other", list(pairwise(CHAIN)))
def test_a_link_sees_one_element_that_is_off_by_more_than_the_bounds(one, other):
    call = recurrences.scan("mamba2", "typical", 201, **SMALL)
    ours, theirs = answers_of(call, CHAIN[one]), answers_of(call, CHAIN[other])
    for name, answer in theirs.items():
        value = answer.value.copy()
        value.flat[-1] += 2.5 * (answer.error.flat[-1] + ours[name].error.flat[-1]) + np.spacing(value.flat[-1])
        assert uncovered(ours, theirs | {name: replace(answer, value=value)}) == [name]
        value.flat[-1] = np.nan
        assert uncovered(ours, theirs | {name: replace(answer, value=value)}) == [name]


@pytest.mark.parametrize("oracle", list(OF_ANY_STEP.values())[1:])
def test_no_link_follows_another_step(oracle):
    def sticky(s, x, dt, A, B, C):
        after, (term,) = recurrences.SCAN.step(s, x, dt, A, B, C)
        return after + exp(-dt[..., None, None]) * s / 1024, (term,)

    call = recurrences.scan("mamba2", "typical", 202, **SMALL)
    other = replace(call, recurrence=replace(call.recurrence, step=sticky))
    right, wrong = answers_of(call, certificate), answers_of(other, oracle)
    assert {"y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C"} == set(uncovered(right, wrong))


def test_a_certificate_is_good_to_the_last_bit_in_either_library():
    call = recurrences.scan("mamba1", "typical", 203, **SMALL)
    libraries = ["mpmath", *(["flint"] if importlib.util.find_spec("flint") else [])]
    found = [answers_of(call, lambda *arguments, using=using: certificate(*arguments, using=using)) for using in libraries]
    for one in found:
        for name, answer in one.items():
            assert np.array_equal(answer.value, found[0][name].value)
            assert (answer.error <= np.spacing(np.abs(answer.value))).all()


@given(
    branch=st.sampled_from(recurrences.BRANCHES),
    regime=st.sampled_from(list(recurrences.SCAN.regimes)),
    seed=st.integers(0, 2**32 - 1),
    sizes=st.fixed_dictionaries({axis: st.integers(1, 3) for axis in "BTPNG"}),
    members=st.integers(1, 2),
)
@settings(max_examples=20, deadline=None)
def test_two_routes_to_a_gradient_agree_at_any_size(branch, regime, seed, sizes, members):
    call = recurrences.scan(branch, regime, seed, **sizes, H=sizes["G"] * members)
    assert uncovered(answers_of(call, replay), answers_of(call, costate)) == []
    assert uncovered(answers_of(call, costate), answers_of(call, by_lanes)) == []


@pytest.mark.slow
@pytest.mark.parametrize("branch, regime", CELLS)
def test_the_bounds_cover_every_element_on_fresh_seeds(branch, regime, record_property):
    """Seeds that set no bound, against 50 digits: the coverage that `docs/explanation/chain-of-trust.md` states."""
    elements, used = 0, {name: [] for name in ("blackbox", "replay", "costate", "fast")}
    for seed in FRESH:
        call = recurrences.scan(branch, regime, seed, B=2, T=6, H=4, G=2, P=2, N=3)
        exact = answers_of(call, certificate)
        for name, ratios in used.items():
            found = answers_of(call, CHAIN[name])
            assert uncovered(exact, found) == [], (seed, name)
            elements += sum(answer.value.size for answer in found.values())
            ratios += [
                float(np.median(np.abs(answer.value - exact[q].value)[answer.error > 0] / answer.error[answer.error > 0]))
                for q, answer in found.items()
                if (answer.error > 0).any()
            ]
    record_property("elements covered", elements)
    for name, ratios in used.items():
        record_property(f"median of error made / error allowed, {name}", float(np.median(ratios)))
        assert np.median(ratios) > 1e-6, name  # a bound a million times too large would cover anything


@pytest.mark.parametrize("op, branch", recurrences.GATED)
def test_every_link_agrees_on_the_gated_delta_rule(op, branch):
    call = recurrences.gated(op, branch, "typical", 200, T=3, Hk=1, Hv=2, Dk=2, Dv=1)
    found = {name: answers_of(call, oracle) for name, oracle in OF_ANY_STEP.items()}
    for a, b in pairwise(OF_ANY_STEP):
        assert uncovered(found[a], found[b]) == [], (a, b)


def test_no_link_follows_a_delta_rule_that_compares_before_it_decays():
    def early(state, q, k, v, g, beta):
        q, k = (np.repeat(x, v.shape[-2] // x.shape[-2], axis=-2)[..., None, :] for x in (q, k))
        delta = beta[..., None] * (v - (state * k).sum(-1))
        after = state * g[..., None, None] + delta[..., None] * k
        return after, (after * q,)

    call = recurrences.gated("gated_delta", "scalar", "typical", 202, T=3, Hk=1, Hv=2, Dk=2, Dv=1)
    other = replace(call, recurrence=replace(call.recurrence, step=early))
    right = answers_of(call, certificate)
    for oracle in list(OF_ANY_STEP.values())[1:]:
        assert set(uncovered(right, answers_of(other, oracle))) == set(right)


@pytest.mark.slow
@pytest.mark.parametrize("op, branch", recurrences.GATED)
def test_the_bounds_cover_every_element_of_the_gated_delta_rule_on_fresh_seeds(op, branch, record_property):
    """In every regime, against 50 digits, as `docs/explanation/chain-of-trust.md` states; `fast` on its rows as Python runs them."""
    rows, outputs = lane_files.lanes(op=op), tuple(recurrences.OPS[op].outputs)
    chain = {"blackbox": blackbox, "replay": replay, "costate": costate, "fast": lambda r, *given: fast(r, rows, outputs, *given)}
    elements, used = 0, {name: [] for name in chain}
    for regime in recurrences.OPS[op].regimes:
        for seed in FRESH[:2]:
            call = recurrences.gated(op, branch, regime, seed)
            exact = answers_of(call, certificate)
            for name, oracle in chain.items():
                found = answers_of(call, oracle)
                assert uncovered(exact, found) == [], (regime, seed, name)
                elements += sum(answer.value.size for answer in found.values())
                for q, answer in found.items():
                    moving = answer.majorant > 0  # where a mask makes a gradient zero no oracle is off
                    if moving.any():
                        off = np.abs(answer.value - exact[q].value)[moving]
                        used[name].append(float(np.median(off / answer.error[moving])))
    record_property("elements covered", elements)
    for name, ratios in used.items():
        record_property(f"median of error made / error allowed, {name}", float(np.median(ratios)))
        assert np.median(ratios) > 1e-6, name
