"""Slopes by differences against derivatives on paper: within their bounds, and the bounds are tight enough to mean something."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck.numerics.differences import COMPLEX_STEP, HEADROOM, SPACING, analytic, central, complex_step, secant, stencil
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.sweep import ROUNDINGS, UNIT

U = float(np.finfo(np.float64).eps) / 2
TIGHT = 1e-6
LEAST = float(np.finfo(np.float64).tiny)  # below it, roundings are no longer relative

coefficients = st.lists(st.floats(-4, 4), min_size=1, max_size=7)
points = st.floats(-2, 2)


def one(p):
    """The point as steps see it: time first, and a direction along it."""
    point = np.array([[p]])
    return point, np.ones_like(point)


def solve(pairs: int) -> list[Fraction]:
    """w_j with sum_j w_j 2 j^m = (1 if m == 1 else 0) for odd m < 2n, by elimination in rationals."""
    rows = [[Fraction(2 * j**m) for j in range(1, pairs + 1)] + [Fraction(int(m == 1))] for m in range(1, 2 * pairs, 2)]
    for i in range(pairs):
        pivot = next(k for k in range(i, pairs) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(pairs):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("pairs", range(1, 9))
def test_the_weights_of_a_central_difference_are_the_exact_solution(pairs):
    assert central(pairs) == tuple(float(w) for w in solve(pairs))


@given(terms=coefficients, p=points)
def test_the_stencil_has_no_truncation_up_to_the_sixth_power(terms, p):
    polynomial = np.polynomial.Polynomial(terms)
    slope = stencil(lambda z: (polynomial(z),), *one(p))
    size = np.polynomial.Polynomial(np.abs(terms))(abs(p) + 2 * SPACING)  # what is added, in absolute value
    off = abs(slope.value[0].item() - polynomial.deriv()(p))
    assert off <= slope.amplification * ROUNDINGS * U * size + U * size + LEAST
    assert slope.amplification * ROUNDINGS * U <= TIGHT  # of the size of f


@given(rate=st.floats(-25, 25), p=st.floats(-1, 1))
def test_the_stencil_covers_an_exponential_and_its_bound_is_small(rate, p):
    slope = stencil(lambda z: (np.exp(rate * z),), *one(p))
    want = rate * np.exp(rate * p)
    assert slope.truncation is not None
    size = (1 + abs(rate)) * np.exp(rate * p + abs(rate) * 2 * SPACING)  # the exponent is itself rounded
    bound = slope.truncation[0].item() + slope.amplification * ROUNDINGS * U * size
    assert abs(slope.value[0].item() - want) <= bound
    if abs(rate) <= 4:
        assert bound <= TIGHT * max(abs(want), np.exp(rate * p))


def test_the_truncation_bound_sees_a_function_that_is_too_wild_for_the_spacing():
    rate = 2000.0
    slope = stencil(lambda z: (np.sin(rate * z),), *one(0.3))
    assert slope.truncation is not None
    off = abs(slope.value[0].item() - rate * np.cos(rate * 0.3))
    assert off > TIGHT * rate
    assert off <= slope.truncation[0].item()


@given(a=st.floats(-100, 100), b=st.floats(-100, 100), p=st.floats(-100, 100))
def test_a_secant_of_an_affine_function_is_its_slope_to_rounding(a, b, p):
    h = HEADROOM * 128.0
    point, direction = one(p)
    slope = secant(lambda z: (a + b * z,), point, direction, np.array([h]), (a + b * point,))
    assert slope.truncation is None
    size = abs(a) + abs(b) * abs(p)  # what the move itself brings is h b, of which the slope keeps u
    bound = float(slope.amplification[0]) * ROUNDINGS * U * size + ROUNDINGS * U * abs(b)
    assert abs(slope.value[0].item() - b) <= bound
    assert bound <= TIGHT * max(1.0, abs(b))


def test_a_secant_has_a_step_of_its_own_at_each_time():
    point = np.array([[1.0], [2.0], [3.0]])
    h = np.array([1.0, 2.0, 4.0])
    slope = secant(lambda z: (z**2,), point, np.ones((1, 1)), h, (point**2,))  # (p + h)^2 - p^2 = h (2p + h)
    assert slope.value[0][:, 0].tolist() == [2 + 1, 4 + 2, 6 + 4]
    assert slope.amplification.tolist() == [2, 1, 0.5]


@pytest.mark.parametrize("number, smallest", [(np.float32, DTYPES["f32"].smallest), (np.float64, float(np.finfo(np.float64).tiny))])
@given(rate=st.floats(-4, 4), p=st.floats(-2, 2))
def test_a_complex_step_has_the_noise_of_its_precision_and_no_more(rate, p, number, smallest):
    p, rate, h = float(np.float32(p)), float(np.float32(rate)), COMPLEX_STEP[np.dtype(number)]
    slope = complex_step(lambda z: (np.exp(number(rate) * z), z * z * z), *(a.astype(number) for a in one(p)))
    for got, want, third in zip(slope.value, (rate * np.exp(rate * p), 3 * p * p), (rate**3 * np.exp(rate * p), 6), strict=True):
        rounding = ROUNDINGS * float(np.finfo(number).eps) / 2 * (1 + abs(rate * p)) * abs(want)
        assert got.dtype == number
        assert abs(got.item() - want) <= rounding + smallest / h + h**2 * abs(third)


ANALYTIC = {
    "exp": np.exp,
    "a branch by the real part": lambda z: np.where(z.real > 0, z, np.exp(z)),
    "nothing of the point": lambda z: np.ones(z.shape),
}
NOT_ANALYTIC = {
    "a size": np.abs,
    "a real part": lambda z: z.real,
    "a conjugate": lambda z: z * np.conj(z),
    "one element of many": lambda z: np.where(np.arange(z.size).reshape(z.shape) == 4, np.abs(z), z),
    "no function of complex numbers": np.cbrt,
    "nothing finite": lambda z: z * np.nan,
}


@pytest.mark.parametrize("what", ANALYTIC | NOT_ANALYTIC)
def test_a_complex_step_is_believed_of_an_analytic_function_only(what):
    point = np.array([[-2.0, -1.0, 0.25, 0.5, 3.0]])
    assert analytic(lambda z: (z, (ANALYTIC | NOT_ANALYTIC)[what](z)), point, UNIT) == (what in ANALYTIC)


def test_every_array_that_the_function_returns_has_its_slope_and_keeps_its_shape():
    point = np.arange(6.0).reshape(1, 2, 3)

    def f(z):
        return z.sum(-1), np.sin(z), z[..., None] * np.ones(4)

    for slope in (stencil(f, point, np.ones_like(point)), secant(f, point, np.ones_like(point), np.array([1.0]), f(point))):
        assert [a.shape for a in slope.value] == [(1, 2), (1, 2, 3), (1, 2, 3, 4)]
    single = complex_step(f, point.astype(np.float32), np.ones((1, 2, 3), np.float32))
    assert [a.shape for a in single.value] == [(1, 2), (1, 2, 3), (1, 2, 3, 4)]


def test_the_function_is_never_called_where_it_was_not_asked_about():
    seen: list[float] = []

    def f(z):
        seen.extend(z.ravel().tolist())
        return (z,)

    stencil(f, np.array([[1.0, 5.0]]), np.array([[0.0, 1.0]]))
    assert set(seen[::2]) == {1.0}
    assert sorted(set(seen[1::2])) == [5 + j * SPACING for j in (-2, -1, -0.5, 0.5, 1, 2)]
