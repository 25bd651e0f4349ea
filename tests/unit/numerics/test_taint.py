"""A step that does not keep its declarations is reported, with what to declare; one that does is clean."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck import Op
from gradcheck.numerics.taint import check_lanes, check_linear
from gradcheck.suite import Suite, lint

sys.path.insert(0, str(Path(__file__).parent))

import recurrences  # type: ignore[import-not-found]

SAMPLES = {
    **{
        f"scan, {branch}, {regime}": recurrences.scan(branch, regime, 0)
        for branch in recurrences.BRANCHES
        for regime in recurrences.SCAN.regimes
    },
    **{name: recurrences.toy(name, 0) for name in recurrences.TOYS},
}


def lanes_of(recurrence, sizes=recurrences.DELTA_SIZES) -> tuple[str, ...]:
    call = recurrences.sample(recurrence, np.random.default_rng(1), sizes)
    return check_lanes(recurrence, call.inputs)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_right_declaration_is_clean(name):
    call = SAMPLES[name]
    assert check_lanes(call.recurrence, call.inputs) == ()
    assert check_linear(call.recurrence, call.inputs) == ()


@pytest.mark.parametrize("vector", [False, True])
def test_a_delta_rule_that_forgets_its_coupling_is_told_to_declare_it(vector):
    found = lanes_of(recurrences.delta(vector=vector, coupled=frozenset()))
    assert {sentence.split("[")[0] for sentence in found} == ({"k", "S", "a"} if vector else {"k", "S"})
    assert all('declare coupled="K"' in sentence and "along K" in sentence for sentence in found)
    (key,) = (sentence for sentence in found if sentence.startswith("k"))
    assert key.startswith("k[0, 0, 0] reaches the state at [0, 0, 0, 1] (B H V K) in one step")


def test_an_input_that_is_wrongly_separate_is_told_to_be_taken_out():
    found = lanes_of(recurrences.delta(separate={"q": frozenset({"K"}), "k": frozenset({"K"})}))
    assert [sentence.split("[")[0] for sentence in found] == ["k"]
    assert found[0].endswith('take K out of separate["k"]')


def test_separate_is_never_required():
    assert lanes_of(recurrences.delta(separate={})) == ()


def tiled(S, q, k, v, a, beta):
    """The delta rule with the groups of heads tiled: g = h mod G."""
    q, k = (np.concatenate([array] * (v.shape[-2] // array.shape[-2]), axis=-2) for array in (q, k))
    return recurrences.delta_rule(S, q, k, v, a, beta)


def test_groups_that_are_tiled_are_reported_where_the_declaration_interleaves():
    found = lanes_of(recurrences.delta(step=tiled))
    assert {sentence.split("[")[0] for sentence in found} == {"q", "k"}
    assert all("np.repeat, not np.tile" in sentence and "along G" in sentence for sentence in found)


def test_as_many_groups_as_heads_cannot_tell():
    assert lanes_of(recurrences.delta(step=tiled), recurrences.DELTA_SIZES | {"G": 4}) == ()


LEAKS = {
    "between sequences": (
        lambda s: (s, s + 0 * s[..., ::-1, :]),
        "s[0, 0] reaches term 1 at [1, 0] (B D) in one step",
        "along B: no declaration",
    ),
    "along a sum that cancels": (
        lambda s: (s + 0 * s.sum(-1, keepdims=True), s),
        "s[0, 0] reaches the state at [0, 1] (B D)",
        'coupled="D"',
    ),
    "of 1e-300": (lambda s: (s, s + 1e-300 * np.roll(s, 1, -1)), "s[0, 0] reaches term 1 at [0, 1] (B D)", 'coupled="D"'),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_the_smallest_leak_is_seen(leak):
    change, *says = LEAKS[leak]

    def step(s, x, a):
        state, term = change(a * s + x)
        return state, (term,)

    found = lanes_of(replace(recurrences.SQUASH, step=step), {"B": 2, "T": 3, "D": 3})
    assert any(all(part in sentence for part in says) for sentence in found), found


def test_a_term_that_lacks_the_axis_of_an_input_must_not_move():
    def summed(S, x, k, q, D):
        S, (read, skip) = recurrences.SKIP.step(S, x, k, q, D)
        return S, (read, skip + 0 * S.sum(-1))

    found = lanes_of(replace(recurrences.SKIP, step=summed), {"B": 2, "T": 3, "P": 2, "N": 3})
    assert {sentence.split("[")[0] for sentence in found} == {"S", "k"}
    assert all('declare coupled="N", or return that array along N too, not yet summed' in sentence for sentence in found)


def test_terms_that_are_not_as_declared_are_reported():
    assert lanes_of(recurrences.delta(terms=(("B", "H", "V"),))) == (
        "the step returns term 1 of shape (2, 4, 2, 3), and B H V is (2, 4, 2)",
    )
    twice = replace(recurrences.SKIP, terms=recurrences.SKIP.terms[:1])
    assert lanes_of(twice, {"B": 2, "T": 3, "P": 2, "N": 3}) == ("the step returns 2 terms, and `terms` declares 1",)


@pytest.mark.parametrize("name", ["dt", "A"])
@pytest.mark.parametrize("branch", recurrences.BRANCHES)
@pytest.mark.parametrize("regime", recurrences.SCAN.regimes)
def test_a_gate_that_is_declared_linear_is_reported_in_every_regime(branch, regime, name):
    call = recurrences.scan(branch, regime, 1)
    wrong = replace(call.recurrence, linear=call.recurrence.linear | {name})
    (sentence,) = check_linear(wrong, call.inputs)
    assert sentence.startswith(f"{name} is declared linear")
    assert sentence.endswith(f"take {name} out of `linear`")


@pytest.mark.parametrize("name", ["k", "a"])
def test_an_input_that_enters_by_its_square_or_curved_is_not_linear(name):
    call = recurrences.toy("delta, vector gate", 1)
    wrong = replace(call.recurrence, linear=frozenset({name}))
    assert [sentence.split()[0] for sentence in check_linear(wrong, call.inputs)] == [name]


BENDS = {
    "a small one near 0": lambda x: x + 1e-9 * np.tanh(x),
    "a clip far away": lambda x: np.clip(x, -1e4, 1e4),
    "a small square": lambda x: x + 1e-12 * x**2,
    "a kink": np.abs,
    "an overflow": np.exp,
}


@pytest.mark.parametrize("bend", BENDS)
def test_a_bend_is_seen_near_by_and_far_away(bend):
    recurrence = replace(recurrences.SQUASH, step=lambda s, x, a: (a * s + BENDS[bend](x), (s,)), linear=frozenset({"x", "s"}))
    call = recurrences.sample(recurrence, np.random.default_rng(1), {"B": 2, "T": 3, "D": 3})
    assert [sentence.split()[0] for sentence in check_linear(recurrence, call.inputs)] == ["x"]


def test_nothing_is_asked_of_an_input_that_is_not_declared_linear():
    call = recurrences.toy("two terms", 1)
    assert check_linear(replace(call.recurrence, linear=frozenset()), call.inputs) == ()


def linted(op: Op) -> list[str]:
    """What the lint says about the step of this op, as the only one of a suite."""
    suite = Suite((), {op.name: replace(op, kernels=())}, {}, {}, (), {}, {})
    assert all(problem.kind == "rule" and op.name in problem.where for problem in lint(suite))
    return [problem.what for problem in lint(suite)]


def test_the_lint_asks_the_step_of_every_branch():
    assert linted(recurrences.SCAN) == []
    found = linted(replace(recurrences.SCAN, linear=recurrences.SCAN.linear | {"dt"}))
    assert len(found) == len(recurrences.BRANCHES)
    assert all(what.startswith("dt is declared linear") for what in found)


def test_the_lint_chooses_sizes_at_which_a_wrong_group_map_shows():
    def ssm_scan(s, x, dt, A, B, C):
        B, C = (np.concatenate([array] * (x.shape[-2] // array.shape[-2]), axis=-2) for array in (B, C))
        return recurrences.SCAN.step(s, x, dt, A, B, C)

    found = linted(replace(recurrences.SCAN, step=ssm_scan))
    assert {what.split("[")[0] for what in found} == {"B", "C"}


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"step": lambda **_: 1 / 0}, "its step cannot be run on B2,T5,H6,G2,P5,N3,mamba1 of the regime 'typical': ZeroDivisionError"),
        ({"step": lambda s: (s, (s,))}, "TypeError"),
    ],
)
def test_a_step_that_cannot_be_run_is_a_problem_and_no_crash(changes, says):
    found = linted(replace(recurrences.SCAN, **changes))
    assert len(found) == len(recurrences.BRANCHES)
    assert says in found[0]
