"""The functions of references, against mpmath at 60 digits, for every kind of number that they serve."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gradcheck import math
from gradcheck.math import SOFTPLUS_LINEAR_ABOVE

NAMES = ("exp", "log", "sqrt", "tanh", "log1p", "sigmoid", "softplus")
PARTS = {"float64": np.float64, "float32": np.float32, "complex128": np.float64, "complex64": np.float32}
ULPS = 4
COMPLEX_ULPS = {"tanh": 8, "sigmoid": 8}  # glibc's complex tanh reaches 4.7, and numpy's complex division brings sigmoid to 4.5

real_numbers = st.one_of(
    st.floats(-120, 120),
    st.floats(-1e-2, 1e-2),
    st.builds(lambda sign, power: sign * 10.0**power, st.sampled_from([-1, 1]), st.floats(-30, 2)),
)
small_numbers = st.builds(lambda sign, power: sign * 10.0**power, st.sampled_from([-1, 1]), st.floats(-12, -2))


def exact(name, z):
    """The function by mpmath, at its working precision."""
    if name == "sigmoid":
        return 1 / (1 + mpmath.exp(-z))
    if name == "softplus":
        return z if z.real > SOFTPLUS_LINEAR_ABOVE else mpmath.log1p(mpmath.exp(z))
    return getattr(mpmath, name)(z)


def domain(name, x):
    """x, or its mirror image where the function is not defined at x."""
    return {"log": abs(x), "sqrt": abs(x), "log1p": abs(x) if x < -0.5 else x}.get(name, x)


def ulps(got, want, part) -> float:
    """How far `got` is from the exact `want`, in spacings of numbers of dtype `part` there."""
    with np.errstate(over="ignore"):
        nearest = part(float(want)) if abs(want) < mpmath.mpf(10) ** 308 else part(np.inf)
    if np.isinf(nearest):
        return 0.0 if np.isinf(got) else np.inf
    return float(abs(mpmath.mpf(float(got)) - want) / mpmath.mpf(float(np.spacing(abs(nearest)))))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(x=real_numbers)
@example(x=20.0)
@example(x=-110.0)
def test_a_function_of_a_real_number_is_within_4_ulp(name, dtype, x):
    part = PARTS[dtype]
    z = np.array([part(domain(name, x))])
    assume(not (name == "log" and z[0] == 0))
    with mpmath.workdps(60), np.errstate(over="ignore", under="ignore"):
        got = getattr(math, name)(z)
        assert got.dtype == z.dtype
        assert ulps(got[0], exact(name, mpmath.mpf(float(z[0]))), part) <= ULPS


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(x=real_numbers, y=small_numbers)
@example(x=-10.0, y=1e-6)
@example(x=1e-8, y=1e-5)
def test_both_parts_of_a_complex_number_near_the_real_axis_are_within_a_few_ulp(name, dtype, x, y):
    x = domain(name, x)
    if name == "log1p":
        assume(y * y <= abs(x))  # its docstring says so
    z = np.array([x + 1j * y]).astype(dtype)
    assume(not (name == "log" and z[0].real == 0))
    limit = COMPLEX_ULPS.get(name, ULPS)
    with mpmath.workdps(60), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        got = getattr(math, name)(z)
        want = exact(name, mpmath.mpc(complex(z[0])))
        assert got.dtype == z.dtype
        assume(np.isfinite(got[0]))  # beyond the range there is no complex step
        assert ulps(got[0].real, want.real, PARTS[dtype]) <= limit
        assert ulps(got[0].imag, want.imag, PARTS[dtype]) <= limit


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(x=real_numbers, y=st.one_of(st.none(), small_numbers))
def test_mpmath_numbers_keep_their_digits(name, x, y):
    x = domain(name, x)
    assume(x != 0)
    with mpmath.workdps(50):
        z = mpmath.mpf(x) if y is None else mpmath.mpc(x, y)
        (got,) = getattr(math, name)(np.array([z], object))
        assert isinstance(got, type(z))
        with mpmath.workdps(80):
            want = exact(name, z)
        assert abs(got - want) <= abs(want) * mpmath.mpf(10) ** -45


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(x=real_numbers)
def test_a_ball_of_python_flint_holds_the_exact_value(name, x):
    flint = pytest.importorskip("flint")
    x = domain(name, x)
    assume(x != 0)
    (got,) = getattr(math, name)(np.array([flint.arb(x)], object))
    with mpmath.workdps(90):  # more digits than a ball has at any precision that the certificate sets, so that its radius covers the rest
        want = flint.arb(mpmath.nstr(exact(name, mpmath.mpf(x)), 75))
    assert got.overlaps(want)
    assert got.rad() <= abs(got.mid()) * 2**-40 or x < -25  # a ball that holds everything would prove nothing


def test_numpys_own_complex_log1p_would_not_do():
    z = np.array([1e-8 + 1e-12j])
    with mpmath.workdps(60):
        want = exact("log1p", mpmath.mpc(complex(z[0])))
    assert ulps(math.log1p(z)[0].real, want.real, np.float64) <= ULPS
    assert not (ulps(np.log(1 + z)[0].real, want.real, np.float64) <= 1000)


def test_softplus_jumps_at_20_by_what_ggml_leaves_out():
    below, above = np.array([20.0]), np.nextafter(np.array([20.0]), 21)
    jump = math.softplus(below) - math.softplus(above)
    assert abs(float(jump[0]) - np.log1p(np.exp(-20.0))) <= 2 * np.spacing(20.0)
    assert math.softplus(above) == above
    assert math.softplus(above, linear_above=np.inf) > above


@pytest.mark.parametrize("dtype", PARTS)
def test_a_complex_step_stays_on_the_branch_of_its_base_point(dtype):
    z = np.array([5.0, 20.5]).astype(dtype)
    if dtype.startswith("complex"):
        z = (z + np.array(1e-3j, z.dtype)).astype(dtype)
    got = math.softplus(z)
    assert got[1] == z[1]
    assert got[0] != z[0]


@pytest.mark.parametrize("z", [-1e4, 1e4])
def test_sigmoid_and_softplus_do_not_overflow(z):
    with np.errstate(over="raise"):
        for dtype in PARTS:
            values = np.array([z]).astype(dtype)
            assert np.isfinite(math.sigmoid(values)).all()
            assert np.isfinite(math.softplus(values)).all()


def test_where_branches_on_the_real_part_of_any_number():
    for z in (np.array([-1 + 5j, 1 - 5j]), np.array([mpmath.mpc(-1, 5), mpmath.mpc(1, -5)], object)):
        assert list(math.where(math.real(z) > 0, z, 0 * z)) == [0, z[1]]


def test_a_scalar_array_keeps_its_shape():
    for z in (np.float64(0.5), np.array(mpmath.mpf(0.5), object)):
        assert all(np.shape(getattr(math, name)(z)) == () for name in NAMES)
