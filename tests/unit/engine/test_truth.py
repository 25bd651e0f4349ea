"""The truth of a case is computed once, and computed anew when anything it depends on changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck import Case
from gradcheck._verdict import METRICS
from gradcheck.engine import truth
from gradcheck.engine.truth import carries, cases_of, know, lookup, own_digest
from gradcheck.suite import load

SCAN = load().ops["ssm_scan"]
CASE = Case.parse("ssm_scan/B2,T4,H2,P2,N3,G1,mamba2/f32/typical/7")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path))


def same(one, two) -> bool:
    pairs = zip(one.truth.quantities().values(), two.truth.quantities().values(), strict=True)
    return one.noise == two.noise and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for a, b in pairs for part in ("value", "error", "majorant")
    )


def test_a_truth_is_found_again_as_it_was(monkeypatch):
    assert lookup(SCAN, CASE) is None
    first, problem = know(SCAN, CASE)
    found = lookup(SCAN, CASE)
    assert found is not None
    assert same(first, found)

    def never(*_: object, **__: object):
        raise AssertionError("computed twice")

    monkeypatch.setattr(truth, "ORACLES", dict.fromkeys(truth.ORACLES, never))
    again, same_problem = know(SCAN, CASE)
    assert same(first, again)
    assert np.array_equal(problem.cotangents[0], same_problem.cotangents[0])


def test_cases_and_oracles_are_kept_apart():
    know(SCAN, CASE)
    assert lookup(SCAN, replace(CASE, seed=8)) is None
    assert lookup(SCAN, CASE, "blackbox") is None


def test_a_change_of_the_op_or_a_helper_beside_it_makes_another_truth(tmp_path: Path):
    digests = []
    uses = "from ._help import x"
    for number, (op_text, helper) in enumerate([(uses, "b"), (uses + " ", "b"), (uses, "bb")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "op.py").write_text(op_text)
        (folder / "_help.py").write_text(helper)
        digests.append(truth.op_digest(str(folder / "op.py")))
    assert len(set(digests)) == 3
    assert own_digest() == own_digest()


@pytest.mark.parametrize("oracle", ["costate", "blackbox"])
def test_the_truth_names_its_oracle_and_has_all_quantities_in_order(oracle):
    known, _ = know(SCAN, CASE, oracle)
    assert known.truth.oracle == oracle
    assert list(known.truth.quantities()) == ["y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C"]
    for name, quantity in known.truth.gradients.items():
        assert quantity.value.shape == quantity.error.shape == quantity.majorant.shape == SCAN.shapes(CASE.sizes, "mamba2")[name]


def test_the_noise_is_that_of_every_carry_and_is_above_zero():
    known, _ = know(SCAN, replace(CASE, dtype="bf16"))
    assert tuple(known.noise) == carries("bf16") == ("f32", "bf16")
    for table in known.noise.values():
        assert list(table) == list(known.truth.quantities())
        assert all(set(row) == set(METRICS) and all(np.isfinite(list(row.values()))) for row in table.values())
    fine, coarse = (known.noise[carry]["y"]["l2"] for carry in ("f32", "bf16"))
    assert 0 < fine < coarse  # in units of bf16, so a state kept in float32 costs little more than the last rounding
    assert carries("f32") == ("f32",)


def test_half_precision_is_a_part_of_the_grid_with_the_same_number_in_each_branch():
    cases = cases_of(SCAN, ("f32", "bf16"), seed=0)
    halves = [case for case in cases if case.dtype == "bf16"]
    assert {branch: sum(case.variant == branch for case in halves) for branch in SCAN.variants} == dict.fromkeys(
        SCAN.variants, truth.HALF_CASES
    )
    assert len({case.regime for case in halves}) > len(SCAN.regimes) / 2
    assert [case.dtype for case in cases] == sorted((case.dtype for case in cases), key=("f32", "bf16").index)
    assert len(cases) - len(halves) >= 96


def test_another_kernel_or_a_helper_that_is_not_used_makes_no_other_truth(tmp_path: Path):
    declared = '@op(\n    source="é", kernels=[{}],\n    linear="s",\n)\ndef f(s): return s\n'
    digests = []
    for number, (kernels, linear) in enumerate([("", "s"), ("\n        Kernel(name='metal'),\n    ", "s"), ("", "x")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "op.py").write_text(declared.format(kernels).replace('linear="s"', f'linear="{linear}"'), "utf-8")
        (folder / "_unused.py").write_text(str(number))
        digests.append(truth.op_digest(str(folder / "op.py")))
    assert digests[0] == digests[1] != digests[2]


def test_fast_falls_back_to_costate_and_says_why(monkeypatch):
    plain = know(SCAN, CASE)[0]
    undeclared = replace(SCAN, fast=None)
    wrong = replace(SCAN, fast=lambda inputs, w_y, w_s: {})
    monkeypatch.setattr(truth, "numba_version", lambda: "1.0")
    for number, (op, why) in enumerate([(undeclared, "declares none"), (wrong, "KeyError: 'y'")]):
        seed = replace(CASE, seed=CASE.seed + 1 + number)
        assert truth.refusals(op, [seed], "fast") == ""  # nothing is known yet
        known, _ = know(op, seed, "fast")
        assert known.truth.oracle == "costate"
        assert why in known.refused
        assert lookup(op, seed, "fast").refused == known.refused
        assert truth.refusals(op, [seed], "fast").startswith("the oracle fast was refused in 1 of 1 cases, where costate answered: ")
        assert truth.refusals(op, [seed], "costate") == ""
    monkeypatch.setattr(truth, "numba_version", lambda: None)
    known, _ = know(SCAN, CASE, "fast")
    assert "pip install 'gradcheck[fast]'" in known.refused
    assert same(replace(known, refused=""), plain)


def test_fast_has_truths_of_its_own_and_those_of_costate_do_not_depend_on_numba(monkeypatch):
    keys = []
    for version in ("1.0", "2.0", None):
        monkeypatch.setattr(truth, "numba_version", lambda version=version: version)
        keys.append([truth._key(SCAN, CASE, oracle) for oracle in ("costate", "fast")])
    assert len({costate for costate, _ in keys}) == 1
    assert len({fast for _, fast in keys} | {keys[0][0]}) == 4


def test_the_noise_of_one_case_is_of_several_draws_and_repeats():
    known, problem = know(SCAN, CASE)
    own = truth.own_noise(SCAN, CASE, "f32", known, problem)
    assert own == truth.own_noise(SCAN, CASE, "f32", known, problem)
    assert list(own) == list(known.truth.quantities())
    kept = known.noise["f32"]
    assert all(own[name][metric] >= kept[name][metric] for name in own for metric in METRICS)
    assert any(own[name][metric] > kept[name][metric] for name in own for metric in METRICS)


def test_an_ill_conditioned_case_is_noisier_than_a_plain_one():
    """d s is a product of all gates: a rounding of dt A = -12 moves each by 12 roundings, and one of A = 0 by none."""

    def noise(regime: str) -> float:
        case = replace(CASE, regime=regime, dims=tuple((axis, 64 if axis == "T" else size) for axis, size in CASE.dims))
        known, problem = know(SCAN, case)
        return truth.own_noise(SCAN, case, "f32", known, problem)["d s"]["l2"]

    assert noise("strong-decay") > 8 * noise("gate-one")
