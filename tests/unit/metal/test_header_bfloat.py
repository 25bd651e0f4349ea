"""bfloat and half: rounding, conversions, which type an expression has, limits and literals."""

from __future__ import annotations

import ctypes as c
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.unit.metal.header import EVERY_16_BITS, build, call, complaints, from_bfloat, to_bfloat

SEEN = [
    ("bfloat.h", "uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16)", "uint16_t((u + 0x8000u) >> 16)"),  # ties away from zero
    ("bfloat.h", "friend GCM_FUNC result operator op(bfloat a, bfloat b) { return result(float(a) op float(b)); }",
     "friend GCM_FUNC result operator op(bfloat a, bfloat b) { return result(float(a) op float(b) * 1.01f); }"),
    ("limits.h", "Digits10, max_exponent = MaxExponent, min_exponent = 3 - MaxExponent", "Digits10, max_exponent = MaxExponent, min_exponent = 2 - MaxExponent"),
]  # fmt: skip
REJECTED = [
    ("bfloat r = 1.5f * b;", "no viable conversion from 'float' to 'bfloat'"),
    ("bfloat r = h;", "no viable conversion from 'half' (aka '_Float16') to 'bfloat'"),
    ("half r = b;", "no viable conversion from 'bfloat' to 'half'"),
    ("b = f;", "no viable overloaded '='"),
    ("b += f;", "no viable overloaded '+='"),
    ("float4 r = h4;", "no viable conversion from 'vec<half, [...]>'"),
    ("bfloat4 r = b4 * f;", "invalid operands to binary expression"),
    ("float4 r = float4(f, f, f);", "the arguments together must have as many components as the vector"),
    ("float2 r = f4.xyz;", "no viable conversion"),
    ("f4.xx = f4.yy;", "no setter defined for property"),
    ("float3 r = f4 + f4;", "no viable conversion"),
    ("float4 r = f4 + float3(f);", "invalid operands to binary expression"),
    ("int r = as_type<int>(h);", "as_type: the two types differ in size"),
    ("double d = 1; auto r = exp(d);", "no matching function for call to 'exp'"),
    ("auto r = metal::log1p(f);", "no member named 'log1p' in namespace 'metal'"),
    ("auto r = metal::erf(f);", "no member named 'erf' in namespace 'metal'"),
    ("auto r = metal::cbrt(f);", "no member named 'cbrt' in namespace 'metal'"),
]
TAKEN = "float r = b * f; half4 k = half4(f4); b = bfloat(f); h = f; bfloat4 z = 0; f4.yx = f4.zw; auto c = b < 0 ? b : 1;"
TEXT = """
#define SHOW extern "C" __attribute__((visibility("default")))
SHOW void from_float(const float* x, bfloat* r, int n) { for (int i = 0; i < n; i++) r[i] = bfloat(x[i]); }
SHOW void to_float(const bfloat* x, float* r, int n) { for (int i = 0; i < n; i++) r[i] = x[i]; }
SHOW void add(const bfloat* x, const bfloat* y, bfloat* r, int n) { for (int i = 0; i < n; i++) r[i] = x[i] + y[i]; }
SHOW void multiply(const bfloat* x, const bfloat* y, bfloat* r, int n) { for (int i = 0; i < n; i++) r[i] = x[i] * y[i]; }
SHOW void divide(const bfloat* x, const bfloat* y, bfloat* r, int n) { for (int i = 0; i < n; i++) r[i] = x[i] / y[i]; }
SHOW void doubled(const bfloat* x, bfloat* r, int n) { for (int i = 0; i < n; i++) { bfloat t = x[i]; t += x[i]; r[i] = t != 2 * x[i] && t == t ? 0.5_bf : t; } }
SHOW void negated(const bfloat* x, bfloat* r, int n) { for (int i = 0; i < n; i++) r[i] = -x[i]; }
SHOW void relu(const bfloat* x, bfloat* r, int n) { for (int i = 0; i < n; i++) { r[i] = x[i] > 0 ? x[i] : 0; } }
SHOW void half_sum(const half* x, const half* y, half* r, int n) { for (int i = 0; i < n; i++) r[i] = x[i] + y[i] * 1.5h; }
SHOW void limits(const int*, float* r, int) {
  int i = 0;
#define L(T) r[i++] = numeric_limits<T>::max(); r[i++] = numeric_limits<T>::min(); r[i++] = numeric_limits<T>::lowest(); r[i++] = numeric_limits<T>::epsilon(); \\
  r[i++] = numeric_limits<T>::denorm_min(); r[i++] = numeric_limits<T>::infinity(); r[i++] = numeric_limits<T>::digits; r[i++] = numeric_limits<T>::min_exponent;
  L(half) L(bfloat) L(float)
}
template <class A, class B> constexpr bool same = is_same_v<A, B>;
bfloat b; half h; float f; int i;
static_assert(same<decltype(b + b), bfloat> && same<decltype(b * 2), bfloat> && same<decltype(1u - b), bfloat> && same<decltype(-b), bfloat>);
static_assert(same<decltype(b * f), float> && same<decltype(b * 1.5), float> && same<decltype(f / b), float> && same<decltype(h * h), half>);
static_assert(same<decltype(h * f), float> && same<decltype(h * 2), half> && same<decltype(true ? b : 0), bfloat> && same<decltype(1.0), float>);
static_assert(same<decltype(b < 0), bool> && same<decltype(b == f), bool>);
static_assert(is_convertible_v<bfloat, float> && is_convertible_v<int, bfloat> && !is_convertible_v<float, bfloat> && !is_convertible_v<half, bfloat>);
static_assert(!is_convertible_v<bfloat, half> && !is_convertible_v<bfloat, int> && is_constructible_v<bfloat, float> && is_constructible_v<half, bfloat>);
static_assert(is_floating_point_v<bfloat> && is_arithmetic_v<const bfloat> && !is_floating_point_v<double> && !is_integral_v<bfloat> && is_signed_v<half>);
static_assert(1.5_bf == bfloat(1.5f) && 0.1h == half(0.1f) && 2h == 2 && bool(as_type<bfloat>(ushort(1))) && !(0.0_bf) && int(bfloat(-2.5f)) == -2);
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return build(TEXT, tmp_path_factory.mktemp("bfloat"))


def _around_every_tie() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """All floats that lie halfway between two bfloats, and their neighbours; infinities and NaN among them."""
    bits = EVERY_16_BITS.astype(np.uint32) << 16
    return np.concatenate([bits | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)


def _check_rounding(library: c.CDLL) -> None:
    x = _around_every_tie()
    got = np.empty(x.size, np.uint16)
    call(library, "from_float", x, got)
    number = ~np.isnan(x)
    assert np.array_equal(got[number], to_bfloat(x)[number])
    assert np.isnan(from_bfloat(got[~number])).all()
    mlx = np.array(mx.array(x).astype(mx.bfloat16).view(mx.uint16))
    assert np.array_equal(got[number], mlx[number])


def _check_arithmetic(library: c.CDLL) -> None:
    draw = np.random.default_rng(5)
    x, y = (draw.permutation(EVERY_16_BITS) for _ in range(2))
    for name, op in (("add", np.add), ("multiply", np.multiply), ("divide", np.divide)):
        got = np.empty_like(x)
        call(library, name, x, y, got)
        with np.errstate(all="ignore"):
            exact = op(from_bfloat(x), from_bfloat(y))  # in float: two roundings, of which the first never matters to 8 bits
        number = ~np.isnan(exact)
        assert np.array_equal(got[number], to_bfloat(exact)[number]), name
        assert np.isnan(from_bfloat(got[~number])).all()


def _check_limits(library: c.CDLL) -> None:
    got = np.zeros(24, np.float32)
    library.limits(None, got.ctypes.data_as(c.c_void_p), 0)
    for k, info in ((0, np.finfo(np.float16)), (2, np.finfo(np.float32))):
        want = [info.max, info.smallest_normal, info.min, info.eps, info.smallest_subnormal, np.inf, info.nmant + 1, info.minexp + 1]
        assert got[8 * k : 8 * k + 8].tolist() == [float(v) for v in want]
    assert got[8:16].tolist() == [
        from_bfloat(np.array([0x7F7F], np.uint16))[0],
        2.0**-126,
        -from_bfloat(np.array([0x7F7F], np.uint16))[0],
        2.0**-7,
        2.0**-133,
        np.inf,
        8,
        -125,
    ]


def test_bfloat_rounds_every_tie_to_even_as_mlx_does(library: c.CDLL) -> None:
    _check_rounding(library)


def test_bfloat_becomes_a_float_without_change(library: c.CDLL) -> None:
    got = np.empty(EVERY_16_BITS.size, np.float32)
    call(library, "to_float", EVERY_16_BITS, got)
    assert np.array_equal(got, from_bfloat(EVERY_16_BITS), equal_nan=True)


def test_bfloat_arithmetic_rounds_once(library: c.CDLL) -> None:
    _check_arithmetic(library)


def test_bfloat_works_with_integers_and_in_ternaries(library: c.CDLL) -> None:
    x = from_bfloat(EVERY_16_BITS)
    for name, want in (("doubled", 2 * np.where(np.abs(x) < 1e38, x, np.nan)), ("negated", -x), ("relu", np.where(x > 0, x, 0))):
        got = np.empty_like(EVERY_16_BITS)
        call(library, name, EVERY_16_BITS, got)
        sure = ~np.isnan(want)
        assert np.array_equal(from_bfloat(got)[sure], want[sure]), name


def test_half_arithmetic_rounds_after_every_operation(library: c.CDLL) -> None:
    x, y = (np.random.default_rng(i).permutation(EVERY_16_BITS).view(np.float16) for i in range(2))
    got = np.empty_like(x)
    with np.errstate(all="ignore"):
        want = x + y * np.float16(1.5)
        fused = (x.astype(np.float64) + y.astype(np.float64) * 1.5).astype(np.float16)  # clang may contract, as Metal may
    call(library, "half_sum", x, y, got)
    assert ((got == want) | (got == fused) | (np.isnan(got) & np.isnan(want))).all()


def test_limits_are_those_of_the_formats(library: c.CDLL) -> None:
    _check_limits(library)


@pytest.mark.parametrize(("statement", "complaint"), REJECTED)
def test_what_metal_rejects_is_rejected(rejections: dict[str, str], statement: str, complaint: str) -> None:
    assert complaint in rejections[statement]


def test_what_metal_takes_is_taken(rejections: dict[str, str]) -> None:
    assert rejections[TAKEN] == ""


@pytest.fixture(scope="module")
def rejections() -> dict[str, str]:
    """What the compiler says of each statement, all compiled at once, each as a file of its own name."""
    statements = [*(statement for statement, _ in REJECTED), TAKEN]
    text = "#include <metal_stdlib>\nusing namespace metal;\n"
    for i, statement in enumerate(statements):
        text += f'# 1 "case{i}"\nvoid take{i}(bfloat b, half h, float f, float4 f4, half4 h4, bfloat4 b4) {{ {statement} }}\n'
    text += '# 1 "end"\n'
    lines = complaints(text).splitlines()
    said = dict.fromkeys(statements, "")
    for at, line in enumerate(lines):
        # An error inside a header belongs to the statement that a note behind it names.
        owner = next((later for later in lines[at:] if later.startswith("case")), None) if "error:" in line else None
        if owner:
            said[statements[int(owner[4 : owner.index(":")])]] += line + "\n"
    return said


def test_a_wrong_header_is_seen(tmp_path: Path) -> None:
    wrong = build(TEXT.replace("static_assert(1.5_bf", "static_assert(true || 1.5_bf"), tmp_path, SEEN)
    for check in (_check_rounding, _check_arithmetic, _check_limits):
        with pytest.raises(AssertionError):
            check(wrong)
