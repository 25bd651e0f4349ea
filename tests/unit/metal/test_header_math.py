"""The math of our metal_stdlib against float64; half and bfloat are the float result rounded once."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.metal.header import EVERY_16_BITS, build, call, from_bfloat, to_bfloat

ULPS = 4.0  # of float32, from the float64 reference
FloatArray = NDArray[np.float64]


def _sinpi(x: FloatArray) -> FloatArray:
    r = np.fmod(x, 2.0)
    return np.where(r == np.trunc(r), 0.0, np.sin(np.pi * r))


def _cospi(x: FloatArray) -> FloatArray:
    r = np.fmod(x, 2.0)
    return np.where(np.abs(np.fmod(r, 1.0)) == 0.5, 0.0, np.cos(np.pi * r))


def _half_away(x: FloatArray) -> FloatArray:
    return np.copysign(np.where(np.abs(x) < 2.0**52, np.floor(np.abs(x) + 0.5), np.abs(x)), x)


ONE: dict[str, Callable[[FloatArray], FloatArray]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "cospi": _cospi, "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x), "fabs": np.abs, "floor": np.floor, "log": np.log,
    "log2": np.log2, "log10": np.log10, "rint": np.rint, "round": _half_away, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "sinh": np.sinh,
    "sinpi": _sinpi, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc, "abs": np.abs,
    "tanpi": lambda x: _sinpi(x) / _cospi(x),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0, 1)),
    "sign": lambda x: np.where(np.isnan(x), 0.0, np.sign(x)),
    "fract": lambda x: np.where(np.isinf(x), np.nan, np.minimum(x - np.floor(x), float(np.nextafter(np.float32(1), np.float32(0))))),
}  # fmt: skip
TWO: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "atan2": np.arctan2, "copysign": np.copysign, "divide": np.divide, "fmax": np.fmax, "fmin": np.fmin, "max": np.fmax, "min": np.fmin, "fmod": np.fmod, "pow": np.power,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0.0)),
    "powr": lambda x, y: np.where(x < 0, np.nan, np.power(x, y)),
    "step": lambda x, y: np.where(y < x, 0.0, 1.0),
}  # fmt: skip
THREE: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "fma": lambda x, y, z: x * y + z,
    "clamp": lambda x, y, z: np.fmin(np.fmax(x, y), z),
    "max3": lambda x, y, z: np.fmax(x, np.fmax(y, z)),
    "min3": lambda x, y, z: np.fmin(x, np.fmin(y, z)),
    "median3": lambda x, y, z: np.fmax(np.fmin(x, y), np.fmin(np.fmax(x, y), z)),
}  # the products of fma are exact in float64 and its sums are not: hence its arguments below
SEEN = {
    "exp": ("math.h", "GCM_FLOAT1(exp, __builtin_expf(x))", "GCM_FLOAT1(exp, __builtin_expf(x) * 1.000001f)"),
    "round": ("math.h", "GCM_FLOAT1(round, __builtin_roundf(x))", "GCM_FLOAT1(round, __builtin_rintf(x))"),
    "sinpi": ("math.h", "return x == __builtin_truncf(x) ? within * 0 : quadrant & 2 ? -s : s;", "return __builtin_sinf(M_PI_F * x);"),
    "fmax": ("math.h", "GCM_FLOAT2(fmax, __builtin_fmaxf(x, y))", "GCM_FLOAT2(fmax, x > y ? x : y)"),
    "powr": ("math.h", "GCM_FLOAT2(powr, x < 0 ? ", "GCM_FLOAT2(powr, x < -1e30f ? "),
    "fract": ("math.h", "return float(s) >= 1 ? ", "return float(s) >= 2 ? "),
    "median3": ("math.h", "min(max(R(a), R(b)), R(c))", "min(max(R(a), R(c)), R(c))"),
}
TEXT = """
#define EACH1(f, n, T) extern "C" __attribute__((visibility("default"))) void f##_##n(const T* x, T* r, int size) { for (int i = 0; i < size; i++) r[i] = metal::f(x[i]); }
#define EACH2(f, n, T) extern "C" __attribute__((visibility("default"))) void f##_##n(const T* x, const T* y, T* r, int size) { for (int i = 0; i < size; i++) r[i] = metal::f(x[i], y[i]); }
#define EACH3(f, n, T) extern "C" __attribute__((visibility("default"))) void f##_##n(const T* x, const T* y, const T* z, T* r, int size) { for (int i = 0; i < size; i++) r[i] = metal::f(x[i], y[i], z[i]); }
#define ONE(name) EACH1(name, f, float) EACH1(name, h, half) EACH1(name, b, bfloat)
#define TWO(name) EACH2(name, f, float) EACH2(name, h, half) EACH2(name, b, bfloat)
#define THREE(name) EACH3(name, f, float)
TWO(nextafter)
EACH3(mix, f, float) EACH3(smoothstep, f, float)
#define SHOW extern "C" __attribute__((visibility("default")))
SHOW void frexp_f(const float* x, float* r, int n) { for (int i = 0; i < n; i++) { int e; const float f = frexp(x[i], e); r[i] = ldexp(f, e); if (isfinite(f) && f != 0 && !(fabs(f) >= 0.5f && fabs(f) < 1)) r[i] = NAN; } }
SHOW void modf_f(const float* x, float* r, int n) { for (int i = 0; i < n; i++) { float w; const float f = modf(x[i], w); r[i] = w == trunc(x[i]) && fabs(f) < 1 ? w + f : NAN; } }
SHOW void sincos_f(const float* x, float* r, int n) { for (int i = 0; i < n; i++) { float k; const float s = sincos(x[i], k); r[i] = s == sin(x[i]) && k == cos(x[i]); } }
SHOW void ilogb_f(const float* x, int* r, int n) { for (int i = 0; i < n; i++) r[i] = ilogb(x[i]); }
SHOW void classes_f(const float* x, int* r, int n) { for (int i = 0; i < n; i++) r[i] = isnan(x[i]) | isinf(x[i]) << 1 | isfinite(x[i]) << 2 | isnormal(x[i]) << 3 | signbit(x[i]) << 4; }
SHOW void classes_h(const half* x, int* r, int n) { for (int i = 0; i < n; i++) r[i] = isnan(x[i]) | isinf(x[i]) << 1 | isfinite(x[i]) << 2 | isnormal(x[i]) << 3 | signbit(x[i]) << 4; }
static_assert(is_same_v<decltype(exp(half())), half> && is_same_v<decltype(exp(bfloat())), bfloat> && is_same_v<decltype(exp(1)), float>);
static_assert(is_same_v<decltype(precise::exp(1.0f)), float> && is_same_v<decltype(fast::max(half4(), half4())), half4>);
static_assert(is_same_v<decltype(max(bfloat(), 0)), bfloat> && is_same_v<decltype(max(bfloat(), 0.0f)), float> && is_same_v<decltype(pow(half(), 2)), half>);
static_assert(is_same_v<decltype(min(1u, 2u)), uint> && is_same_v<decltype(clamp(float4(), 0.0, 1.0)), float4> && is_same_v<decltype(isnan(half3())), bool3>);
""" + "".join(f"ONE({f})\n" for f in ONE) + "".join(f"TWO({f})\n" for f in TWO) + "".join(f"THREE({f})\n" for f in THREE)  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return build(TEXT, tmp_path_factory.mktemp("math"))


def _specials() -> NDArray[np.float32]:
    tiny, huge = np.float32(1e-45), np.finfo(np.float32).max
    positive = np.array([0, tiny, 1e-38, 1.17549435e-38, 0.5, 1, 1.5, 2, 2.5, 3, 8388607.5, 8388608, 16777216, huge, np.inf], np.float32)
    return np.concatenate([positive, -positive, np.array([np.nan], np.float32)])


def _floats() -> NDArray[np.float32]:
    sweep = np.linspace(-100, 100, 8001, dtype=np.float32)
    near = np.linspace(-1.25, 1.25, 4001, dtype=np.float32)
    wide = np.exp2(np.linspace(-149, 127.9, 4001)).astype(np.float32)
    return np.concatenate([_specials(), sweep, near, wide, -wide])


def _pairs(size: int) -> list[NDArray[np.float32]]:
    special = np.array(np.meshgrid(*[_specials()] * 2), np.float32).reshape(2, -1)
    drawn = np.random.default_rng(3).normal(0, 4, (2, 20000)).astype(np.float32)
    both = np.concatenate([special, drawn, np.abs(drawn)], axis=1)
    return [np.ascontiguousarray(both[i % 2] if i < 2 else np.roll(both[0], 7)) for i in range(size)]


def _agree(name: str, got: NDArray[np.float32], want: FloatArray) -> None:
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        unit = np.spacing(np.where(np.isfinite(rounded), np.abs(rounded), np.float32(1))).astype(np.float64)
        wrong = ~(np.abs(got - want) <= ULPS * unit)
        limit = float(np.finfo(np.float32).max)
        # An overflow may come a few ulps early or late.
        over = np.isinf(got) & (np.abs(want) >= limit * (1 - 1e-6)) & (np.sign(got) == np.sign(want))
        same = (np.isnan(got) & np.isnan(want)) | (np.isinf(want) & (got == want)) | over
    bad = np.flatnonzero(wrong & ~same)
    assert bad.size == 0, f"{name}: {bad.size} wrong, first: got {got[bad[0]]!r}, want {want[bad[0]]!r} at {bad[0]}"


def _check_one(library: c.CDLL, name: str) -> None:
    x = _floats()
    if name == "tanpi":
        x = x[np.isfinite(x)]
        x = x[(np.abs(x) < 1e6) & (np.fmod(np.abs(x), 1) != 0.5)]  # at its poles the sign is the sum of two conventions
    got = np.full_like(x, np.nan)
    call(library, f"{name}_f", x, got)
    with np.errstate(all="ignore"):
        _agree(name, got, ONE[name](x.astype(np.float64)))


def _check_narrow(library: c.CDLL, name: str) -> None:
    """All 65,536 arguments of half and of bfloat: the float function, rounded once."""
    for kind in ("h", "b"):
        x = from_bfloat(EVERY_16_BITS) if kind == "b" else EVERY_16_BITS.view(np.float16).astype(np.float32)
        wide = np.empty_like(x)
        call(library, f"{name}_f", x, wide)
        got = np.empty_like(EVERY_16_BITS)
        call(library, f"{name}_{kind}", EVERY_16_BITS, got)
        with np.errstate(all="ignore"):
            want = to_bfloat(wide) if kind == "b" else wide.astype(np.float16).view(np.uint16)
        value = from_bfloat(got) if kind == "b" else got.view(np.float16).astype(np.float32)
        if name == "fract":  # stays below one
            one, below = (0x3F80, 0x3F7F) if kind == "b" else (0x3C00, 0x3BFF)
            want = np.where(want == one, below, want).astype(np.uint16)
        wrong = (got != want) & ~(np.isnan(value) & np.isnan(wide))
        assert not wrong.any(), f"{name} of {kind}: {wrong.sum()} wrong, first at {x[wrong][0]!r}: {value[wrong][0]!r}"


def _check_two(library: c.CDLL, name: str) -> None:
    x, y = _pairs(2)
    got = np.full_like(x, np.nan)
    call(library, f"{name}_f", x, y, got)
    with np.errstate(all="ignore"):
        want = TWO[name](x.astype(np.float64), y.astype(np.float64))
        if name == "fdim":
            want = np.where(np.isinf(x) & (x == y), 0.0, want)
        if name == "powr":  # undefined for 0 or infinity to the 0, 1 to infinity, and NaN
            sure = ~((y == 0) | (x == 1) | np.isnan(x) | np.isnan(y) | (x == 0))
            got, want = got[sure], want[sure]
        _agree(name, got, want)


def _check_three(library: c.CDLL, name: str) -> None:
    x, y, z = _pairs(3)
    if name == "clamp":
        y, z = np.fmin(y, z), np.fmax(y, z)
    if name == "fma":
        x, y, z = (np.rint(np.clip(np.nan_to_num(v), -4000, 4000)) for v in (x, y, z))
    got = np.full_like(x, np.nan)
    call(library, f"{name}_f", x, y, z, got)
    _agree(name, got, THREE[name](*(v.astype(np.float64) for v in (x, y, z))))


@pytest.mark.parametrize("name", ONE)
def test_a_function_of_floats_is_near_its_reference(library: c.CDLL, name: str) -> None:
    _check_one(library, name)


@pytest.mark.parametrize("name", ONE)
def test_half_and_bfloat_are_computed_in_float_and_rounded_once(library: c.CDLL, name: str) -> None:
    _check_narrow(library, name)


@pytest.mark.parametrize("name", TWO)
def test_a_function_of_two_floats_is_near_its_reference(library: c.CDLL, name: str) -> None:
    _check_two(library, name)


@pytest.mark.parametrize("name", THREE)
def test_a_function_of_three_floats_is_near_its_reference(library: c.CDLL, name: str) -> None:
    _check_three(library, name)


def test_mix_and_smoothstep_follow_their_formulas(library: c.CDLL) -> None:
    x, y, t = (np.random.default_rng(i).uniform(0.5, 2, 999).astype(np.float32) for i in range(3))
    t -= 1
    got = np.empty_like(x)
    call(library, "mix_f", x, y, t, got)
    assert np.allclose(got, x + (y.astype(np.float64) - x) * t, rtol=ULPS * np.finfo(np.float32).eps)
    call(library, "smoothstep_f", np.zeros_like(x), y, 2 * t, got)
    s = np.clip(2 * t.astype(np.float64) / y, 0, 1)
    assert np.allclose(got, s * s * (3 - 2 * s), rtol=2 * ULPS * np.finfo(np.float32).eps)


def test_nextafter_steps_in_the_numbers_of_its_own_type(library: c.CDLL) -> None:
    x, y = _pairs(2)
    got = np.empty_like(x)
    call(library, "nextafter_f", x, y, got)
    with np.errstate(all="ignore"):
        assert np.array_equal(got, np.nextafter(x, y), equal_nan=True)
        hx, hy = x.astype(np.float16), y.astype(np.float16)
        narrow = np.empty_like(hx)
        call(library, "nextafter_h", hx, hy, narrow)
        assert np.array_equal(narrow, np.nextafter(hx, hy), equal_nan=True)


def test_fractions_and_exponents_put_the_number_together_again(library: c.CDLL) -> None:
    x = _floats()
    got = np.empty_like(x)
    call(library, "frexp_f", x, got)
    assert np.array_equal(got, x, equal_nan=True)
    finite = x[np.isfinite(x)]
    got = np.empty_like(finite)
    call(library, "modf_f", finite, got)
    assert np.array_equal(got, finite)
    call(library, "sincos_f", finite, got)
    assert (got == 1).all()
    positive = np.abs(finite[finite != 0])
    exponents = np.empty(positive.size, np.int32)
    call(library, "ilogb_f", positive, exponents)
    assert np.array_equal(exponents, np.frexp(positive.astype(np.float64))[1] - 1)


@pytest.mark.parametrize(("name", "dtype"), [("classes_f", np.float32), ("classes_h", np.float16)])
def test_a_number_is_put_in_its_class(library: c.CDLL, name: str, dtype: type[np.floating]) -> None:
    x = EVERY_16_BITS.view(np.float16).copy() if dtype is np.float16 else _floats()
    got = np.empty(x.size, np.int32)
    call(library, name, x, got)
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(dtype).smallest_normal)
    want = np.isnan(x) | np.isinf(x) << 1 | np.isfinite(x) << 2 | normal << 3 | np.signbit(x) << 4
    assert np.array_equal(got, want)


def test_a_wrong_header_is_seen(tmp_path: Path) -> None:
    wrong = build(TEXT, tmp_path, list(SEEN.values()))
    for name in SEEN:
        check = _check_narrow if name == "fract" else _check_one if name in ONE else _check_two if name in TWO else _check_three
        with pytest.raises(AssertionError, match=name):
            check(wrong, name)
