"""A case's name is its identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck import Case, UsageError
from gradcheck._case import OBJECTIVES, parse_dims

words = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
dims = st.dictionaries(st.from_regex(r"[A-Z][A-Za-z]{0,3}", fullmatch=True), st.integers(1, 10**6), min_size=1, max_size=6)
cases = st.builds(
    Case,
    op=words,
    dims=dims.map(lambda sizes: tuple(sizes.items())),
    dtype=st.sampled_from(["f32", "f16", "bf16"]),
    regime=words,
    seed=st.integers(0, 10**9),
    variant=st.one_of(st.just(""), words),
    objective=st.sampled_from(sorted(OBJECTIVES)),
)


@given(cases)
def test_a_name_parses_back_to_its_case(case):
    assert Case.parse(str(case)) == case
    assert Case.parse(str(case)).sizes == dict(case.dims)


@given(cases, cases)
def test_different_cases_have_different_names(one, two):
    assert (str(one) == str(two)) == (one == two)


def test_a_name_reads_as_in_the_documentation():
    text = "ssm_scan/B2,T65,H4,P8,N16,G2,mamba2/f32/long-memory@impulse/7"
    case = Case.parse(text)
    assert str(case) == text
    assert (case.op, case.variant, case.dtype, case.regime, case.objective, case.seed) == (
        "ssm_scan", "mamba2", "f32", "long-memory", "impulse", 7,
    )  # fmt: skip
    assert case.sizes == {"B": 2, "T": 65, "H": 4, "P": 8, "N": 16, "G": 2}


@pytest.mark.parametrize(
    "text, says",
    [
        ("ssm_scan", "has 1 parts, need 5: op/B2"),
        ("ssm_scan/B2/f32/typical/7/8", "has 6 parts"),
        ("ssm_scan/B2/f32/typical@impluse/7", "no objective 'impluse'; known: all, y, state, impulse"),
        ("ssm_scan/B2/f32/typical/x", "the seed 'x' is not a whole number"),
        ("ssm_scan/B2/f32/typical/-1", "the seed '-1'"),
        ("ssm_scan/B2/f32/typical/1.5", "the seed '1.5'"),
        ("ssm_scan/B0/f32/typical/1", "'B0' is neither an axis with a positive size"),
        ("ssm_scan/B-2/f32/typical/1", "'B-2' is neither"),
        ("ssm_scan/2B/f32/typical/1", "'2B' is neither"),
        ("ssm_scan/B2,B3/f32/typical/1", "the axis B is given twice"),
        ("ssm_scan/B2,one,two/f32/typical/1", "'two' is neither"),
    ],
)
def test_what_is_not_a_case_is_refused_and_says_why(text, says):
    with pytest.raises(UsageError) as caught:
        Case.parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["T=0", "T=x", "B2,="])
def test_sizes_that_are_none_are_told_as_they_were_written_with_the_variants_there_are(text):
    bad = text.rpartition(",")[2]
    with pytest.raises(UsageError, match=rf"'{bad}' is neither an axis with a positive size \(T65\) nor a variant \(scalar, vector\)$"):
        parse_dims(text, ("scalar", "vector"))
    with pytest.raises(UsageError, match=rf"'{bad}' is neither an axis with a positive size \(T65\) nor a variant$"):
        parse_dims(text)


@given(dims)
def test_sizes_may_be_written_with_an_equals_sign_and_spaces(sizes):
    assert parse_dims(" , ".join(f"{axis} = {size}".replace(" = ", "=") for axis, size in sizes.items())) == (tuple(sizes.items()), "")


def test_a_case_can_be_a_key():
    one = Case.parse("op/B2/f32/typical/1")
    assert {one: 1}[Case.parse("op/B2/f32/typical/1")] == 1
