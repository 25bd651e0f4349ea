"""A case made concrete: reproducible, exact in its dtype, with cotangents that hide nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradcheck import Case, Regime, SuiteError, UsageError
from gradcheck._case import OBJECTIVES
from gradcheck.engine.problem import Problem, draw
from gradcheck.numerics.dtypes import DTYPES, round_to
from gradcheck.suite import load

SCAN = load().ops["ssm_scan"]
CASE = Case.parse("ssm_scan/B2,T5,H4,P2,N3,G2,mamba2/f32/typical/7")
DIGEST = """
from gradcheck import Case
from gradcheck.engine.problem import draw
from gradcheck.suite import load
import hashlib
problem = draw(load().ops["ssm_scan"], Case.parse({case!r}))
parts = [*problem.inputs.values(), *problem.cotangents]
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


def parts(problem: Problem) -> list[np.ndarray]:
    return [*problem.inputs.values(), *problem.cotangents]


def differs(one: Problem, two: Problem) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(parts(one), parts(two), strict=True))


def test_another_process_draws_the_same():
    here = hashlib.sha256(b"".join(part.tobytes() for part in parts(draw(SCAN, CASE)))).hexdigest()
    there = subprocess.run([sys.executable, "-c", DIGEST.format(case=str(CASE))], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_the_same_case_is_drawn_alike_and_every_part_of_its_name_matters():
    assert not differs(draw(SCAN, CASE), draw(SCAN, Case.parse(str(CASE))))
    for other in (replace(CASE, seed=8), replace(CASE, regime="growth"), replace(CASE, dtype="bf16"), replace(CASE, objective="y")):
        assert differs(draw(SCAN, CASE), draw(SCAN, other))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", SCAN.variants)
@pytest.mark.parametrize("regime", SCAN.regimes)
def test_inputs_and_cotangents_are_exact_in_their_dtype_and_have_their_shapes(dtype, variant, regime):
    problem = draw(SCAN, replace(CASE, dtype=dtype, variant=variant, regime=regime))
    for part in parts(problem):
        assert part.dtype == np.float64
        assert np.isfinite(part).all()
        assert np.array_equal(round_to(part, dtype), part)
    assert {name: value.shape for name, value in problem.inputs.items()} == SCAN.shapes(CASE.sizes, variant)
    assert [value.shape for value in problem.cotangents] == list(SCAN.output_shapes(CASE.sizes).values())


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_cotangents_have_both_signs_and_no_two_elements_are_alike_by_design(seed):
    for weights in draw(SCAN, replace(CASE, seed=seed)).cotangents:
        sizes = np.abs(weights)
        assert ((sizes >= 0.5) & (sizes <= 1.5)).all()
        assert np.unique(sizes).size > sizes.size / 2
        assert {-1.0, 1.0} == set(np.sign(weights).ravel().tolist())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_objective_weighs_what_its_description_says(objective):
    y, state = draw(SCAN, replace(CASE, objective=objective)).cotangents
    steps = y.any(axis=(0, 2, 3)).sum()
    assert (steps, bool(state.any())) == {"all": (5, True), "y": (5, False), "state": (0, True), "impulse": (1, False)}[objective]
    assert (y != 0).sum() == steps * y.size / 5


def test_an_impulse_is_not_always_at_the_same_step():
    steps = {
        int(np.flatnonzero(draw(SCAN, replace(CASE, objective="impulse", seed=seed)).cotangents[0].any(axis=(0, 2, 3)))[0])
        for seed in range(40)
    }
    assert steps == set(range(5))


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"regime": "typicall"}, "no regime of ssm_scan 'typicall'; did you mean 'typical'"),
        ({"dtype": "f64"}, "no dtype 'f64'"),
        ({"variant": "mamba3"}, "no variant of ssm_scan 'mamba3'; did you mean"),
        ({"variant": ""}, "no variant of ssm_scan ''"),
        ({"dims": CASE.dims[:-1]}, "no size for the axis G in the case"),
        ({"dims": (*CASE.dims, ("Z", 2))}, "no axis of ssm_scan 'Z'"),
    ],
)
def test_a_name_that_the_op_does_not_have_is_refused_with_the_near_ones(changes, says):
    with pytest.raises(UsageError, match=says):
        draw(SCAN, replace(CASE, **changes))


def spoiled(change):
    """The scan with a regime whose draws are changed."""

    def typical(rng, shapes):
        return change(SCAN.regimes["typical"].draw(rng, shapes))

    return replace(SCAN, regimes={"typical": Regime("typical", "", typical)})


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda drawn: drawn | {"x": drawn["x"][:, :-1]}, "draws shape .2, 4, 4, 2. for the input x, need shape .2, 5, 4, 2."),
        (lambda drawn: {name: value for name, value in drawn.items() if name != "dt"}, "draws nothing for the input dt"),
        (lambda drawn: drawn | {"z": np.zeros(3)}, "draws z, which is not an input"),
    ],
    ids=["shape", "missing", "stray"],
)
def test_a_regime_that_draws_something_else_is_named(change, says):
    with pytest.raises(SuiteError, match=f"op ssm_scan: regime 'typical' {says}"):
        draw(spoiled(change), CASE)


def test_a_constant_is_not_rounded():
    ids = np.array([7, 2**24 + 1])  # not a float32 number

    def typical(rng, shapes):
        return {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"ids": ids}

    regimes = {"typical": Regime("typical", "", typical)}
    op = replace(SCAN, inputs={**SCAN.inputs, "ids": "B"}, constants=frozenset({"ids"}), regimes=regimes)
    assert draw(op, CASE).inputs["ids"].tolist() == ids.tolist()
