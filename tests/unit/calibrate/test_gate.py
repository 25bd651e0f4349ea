"""The gate: each thing that can be the matter closes it by its own code, and the gravest code wins."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck import ExitCode, MutantVerdict, Outcome, Verdict
from gradcheck._verdict import CANARY, NULL
from gradcheck.calibrate.gate import gate

sys.path.insert(0, str(Path(__file__).parent))

from recorded import band, evidence, measurement  # type: ignore[import-not-found]

GOOD = evidence(measurement("y"), measurement("d x"))
CLEAN = Verdict(GOOD.item, Outcome.PASSED, "", GOOD)
BLANK: dict[str, Any] = {"missing": 0, "absent": {}, "rotten": (), "forward_only": False}


def row(outcome: Outcome, mutant: str = "m", why: str = "") -> MutantVerdict:
    return MutantVerdict("k", mutant, "", "full", outcome, why=why)


def told(*measurements, outcome: Outcome = Outcome.PASSED, why: str = "", **changes: Any) -> Verdict:
    one = evidence(*measurements, **changes)
    return Verdict(one.item, outcome, why, one)


KILLS = (row(Outcome.KILLED), row(Outcome.KILLED, CANARY), row(Outcome.SURVIVED, NULL))

# Name to (code, arguments that differ from a good run, what the reason says).
REASONS: dict[str, tuple[ExitCode, dict[str, Any], str]] = {
    "a wrong gradient": (
        ExitCode.WRONG,
        {"verdicts": [told(measurement(size=99.0), outcome=Outcome.FAILED, why="d x: z is 9\nmore")]},
        "kernel k is wrong in 1 of 1 cases; first: d x: z is 9",
    ),
    "a crash": (ExitCode.WRONG, {"verdicts": [told(status="crashed", outcome=Outcome.CRASHED)]}, "took its process down"),
    "stale text": (ExitCode.ROTTEN, {"rotten": ["mutant m is stale"]}, "mutant m is stale"),
    "a canary that lives": (ExitCode.ROTTEN, {"kills": [row(Outcome.SURVIVED, CANARY)]}, "the canary (a gradient of zeros) was not killed"),
    "a canary that hangs": (ExitCode.ROTTEN, {"kills": [row(Outcome.TIMEOUT, CANARY)]}, "the canary"),
    "a null that dies": (ExitCode.ROTTEN, {"kills": [row(Outcome.KILLED, NULL)]}, "the null mutant"),
    "a mutant that does not run": (
        ExitCode.ROTTEN,
        {"kills": [row(Outcome.UNVIABLE, why="NameError\n…")]},
        "mutant m does not run on k: NameError",
    ),
    "a harmless mutant that is killed": (ExitCode.ROTTEN, {"kills": [row(Outcome.KILLED, why="declared harmless")]}, "declared harmless"),
    "nothing at all": (ExitCode.NOTHING, {"verdicts": []}, "nothing was compared"),
    "nothing checked": (ExitCode.NOTHING, {"verdicts": [told(measurement(checked=0))]}, "nothing was compared"),
    "a gradient of which nothing is said": (
        ExitCode.NOTHING,
        {"verdicts": [told(measurement("d x"), measurement("d A", informative=False))]},
        "no case of the plan says anything about d A",
    ),
    "a gradient that is always zero": (
        ExitCode.NOTHING,
        {"verdicts": [told(measurement("d x"), measurement("d A", zero="zero-kept"))]},
        "no case of the plan says anything about d A",
    ),
    "no backward": (
        ExitCode.NOTHING,
        {"verdicts": [CLEAN, told(measurement("y"), status="no-backward", detail="has no vjp")]},
        "kernel k: has no vjp",
    ),
    "a survivor": (ExitCode.SURVIVORS, {"kills": [row(Outcome.SURVIVED)]}, "1 row of the kill table survived: m (full, k)"),
    "a timeout": (ExitCode.INCONCLUSIVE, {"verdicts": [CLEAN, told(status="timeout", outcome=Outcome.TIMEOUT)]}, "timed out at op/"),
    "a mutant that hangs": (ExitCode.INCONCLUSIVE, {"kills": [row(Outcome.TIMEOUT)]}, "which is no kill"),
    "a mutant that crashes": (ExitCode.INCONCLUSIVE, {"kills": [row(Outcome.CRASHED)]}, "which is no kill"),
    "no room": (
        ExitCode.INCONCLUSIVE,
        {"bands": [band("d A", defect=4.1, weakest="m")]},
        "no tolerance separates noise 1 from the defect m at 4.1",
    ),
    "an incomplete run": (ExitCode.INCONCLUSIVE, {"missing": 3}, "3 planned items have no verdict"),
    "an absent kernel": (ExitCode.INCONCLUSIVE, {"absent": {"metal": "no GPU"}}, "kernel metal was asked for and cannot run here: no GPU"),
}


def closed(**changes: Any) -> tuple[ExitCode, tuple[str, ...]]:
    arguments = {"verdicts": [CLEAN], "kills": KILLS, "bands": [band(defect=1e6)]} | BLANK | changes
    return gate(arguments.pop("verdicts"), arguments.pop("kills"), arguments.pop("bands"), **arguments)


def test_a_good_run_opens_the_gate_without_a_word():
    assert closed() == (ExitCode.OK, ())


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_alone_gives_its_code_and_its_sentence(reason):
    code, changes, says = REASONS[reason]
    got, sentences = closed(**changes)
    assert got is code
    assert any(says in sentence for sentence in sentences), sentences
    assert len(sentences) == (2 if reason == "a canary that hangs" else 1)  # it is also a mutant that hangs


def test_one_row_and_one_item_are_told_as_one():
    assert closed(kills=[row(Outcome.SURVIVED)])[1][0].startswith("1 row of the kill table survived")
    assert closed(kills=[row(Outcome.SURVIVED), row(Outcome.SURVIVED)])[1][0].startswith("2 rows of the kill table survived")
    assert closed(missing=1)[1] == ("1 planned item has no verdict",)


ADDABLE = sorted(set(REASONS) - {"nothing at all", "nothing checked"})  # beside a clean case, something was compared


@given(st.sets(st.sampled_from(ADDABLE)))
def test_the_gravest_reason_gives_the_code_and_all_are_told(chosen):
    changes: dict[str, Any] = {"verdicts": [CLEAN], "kills": [*KILLS], "bands": [band(defect=1e6)]}
    for name in sorted(chosen):
        for key, value in REASONS[name][1].items():
            changes[key] = [*changes.get(key, []), *value] if isinstance(value, list) else value
    code, sentences = closed(**changes)
    reasons = [REASONS[name] for name in chosen]
    assert code is ExitCode.worst(*(each for each, _, _ in reasons))
    for each, _, says in reasons:  # a wrong kernel is told once, by its first case
        assert each is ExitCode.WRONG or any(says in sentence for sentence in sentences)
    assert bool(sentences) == bool(chosen)


GRAVEST_FIRST = (130, 70, 2, 1, 4, 5, 3, 6, 0)


@given(st.lists(st.sampled_from(list(ExitCode))))
def test_the_order_of_the_exit_codes(codes):
    assert ExitCode.worst(*codes) == next(code for code in GRAVEST_FIRST if code in {*codes, 0})


def test_a_survivor_declared_or_a_null_is_no_survivor():
    assert closed(kills=[*KILLS, row(Outcome.HARMLESS, why="why"), row(Outcome.EQUIVALENT, why="why")])[0] is ExitCode.OK


def test_without_gradients_to_check_an_uninformative_output_is_nothing():
    blind = told(measurement("y", informative=False))
    assert closed(verdicts=[blind], forward_only=True)[0] is ExitCode.NOTHING
    assert closed(verdicts=[told(measurement("y"))], forward_only=True)[0] is ExitCode.OK


def test_a_gradient_with_a_problem_was_not_uninformative():
    bad = told(measurement("d x", problem="is missing", informative=False), outcome=Outcome.FAILED, why="d x: is missing")
    code, sentences = closed(verdicts=[bad])
    assert code is ExitCode.WRONG
    assert len(sentences) == 1


def test_one_sentence_stands_for_all_cases_of_a_kernel():
    wrong = [told(measurement(size=99.0), outcome=Outcome.FAILED, why="bad", seed=seed) for seed in range(3)]
    _, sentences = closed(verdicts=[*wrong, replace(CLEAN)])
    assert sentences == ("kernel k is wrong in 3 of 4 cases; first: bad",)


def test_a_check_that_fails_makes_a_kernel_wrong_and_one_that_has_nothing_to_compare_does_not():
    def check(outcome: Outcome) -> Verdict:
        of = told(outcome=outcome, why="y changes")
        return replace(of, item=replace(of.item, check="taint"))

    held, idle, broken = (check(outcome) for outcome in (Outcome.PASSED, Outcome.UNINFORMATIVE, Outcome.FAILED))
    assert closed(checks=[held, idle]) == (ExitCode.OK, ())
    code, (reason,) = closed(checks=[held, broken])
    assert code is ExitCode.WRONG
    assert reason.endswith("fails the check taint in 1 of 2 cases; first: y changes")
