"""Vectors: layout, constructors, swizzles, operators, packed ones, matrices, and the matrix over a simdgroup."""

from __future__ import annotations

import ctypes as c
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from tests.unit.metal.header import build, complaints

SEEN = [
    ("swizzles.h", "GCM_FUNC vec<T, 2> get_##a##b() const { return vec<T, 2>::of(a, b); } \\\n  GCM_FUNC void put", "GCM_FUNC vec<T, 2> get_##a##b() const { return vec<T, 2>::of(b, a); } \\\n  GCM_FUNC void put"),
    ("swizzles.h", "GCM_FUNC void put_##a##b##c(vec<T, 3> v) { a = v.x, b = v.y, c = v.z; }", "GCM_FUNC void put_##a##b##c(vec<T, 3> v) { a = v.x, b = v.y, c = v.y; }"),
    ("matrix.h", "if (i != r) minor[c - 1][k++] = m[c][i];", "if (i != r) minor[c - 1][k++] = m[c - 1][i];"),
    ("simdgroup_matrix.h", "return (lane / 4 & 4) + lane / 2 % 4;", "return lane / 4;"),
    ("vector.h", "R(a.y op b.y), R(a.z op b.z)); \\", "R(a.y op b.y), R(a.z op b.y)); \\"),
]  # fmt: skip


def _swizzles() -> str:
    """Every swizzle without a repeated letter, read and written, of vectors of 2, 3 and 4; `0` where one is right."""
    lines = []
    for size in (2, 3, 4):
        for kept in range(2, size + 1):
            for letters in permutations(range(size), kept):
                name = "".join("xyzw"[i] for i in letters)
                read = " && ".join(f"v.{name}[{k}] == {i + 1}" for k, i in enumerate(letters))
                written = " && ".join(f"w[{i}] == {10 + k}" for k, i in enumerate(letters))
                rest = " && ".join(f"w[{i}] == {i + 1}" for i in range(size) if i not in letters) or "true"
                values, wanted = ", ".join(f"T({i + 1})" for i in range(size)), ", ".join(f"T({10 + k})" for k in range(kept))
                lines.append(
                    f"{{ vec<T, {size}> v({values}), w = v; w.{name} = vec<T, {kept}>({wanted}); if (!({read} && {written} && {rest})) return {len(lines) + 1}; }}"
                )
    return "\n".join(lines)


REPEATED = [name for n in (3, 4) for letters in product("xyzw", repeat=n) if len(set(letters)) < n for name in ["".join(letters)]]
ALL_SWIZZLES = (
    "#define GCM_ALL_SWIZZLES\n#include <metal_stdlib>\n"
    + "".join(f"static_assert(metal::is_same_v<decltype(float4().{name}), float{len(name)}>);\n" for name in REPEATED)
    + "static_assert(metal::is_same_v<decltype(half2().xyxy), half4> && metal::is_same_v<decltype(bfloat3().zzx), bfloat3>);"
)
TEXT = (
    """
#include "gcm/simdgroup_matrix.h"
#define SHOW extern "C" __attribute__((visibility("default")))
extern "C" { static int missing; void gcm_lane_missing(gcm_simdgroup*, gcm_u32, gcm_u32) { missing++; } }
template <class T> int swizzle_of() {
"""
    + _swizzles()
    + """
  return 0;
}
SHOW int swizzles_float() { return swizzle_of<float>(); }
SHOW int swizzles_bfloat() { return swizzle_of<bfloat>(); }
SHOW int swizzles_uchar() { return swizzle_of<uchar>(); }

static_assert(sizeof(float2) == 8 && sizeof(float3) == 16 && sizeof(float4) == 16 && alignof(float4) == 16 && alignof(half3) == 8 && sizeof(bool4) == 4);
static_assert(sizeof(bfloat2) == 4 && alignof(bfloat4) == 8 && sizeof(vec<bfloat, 8>) == 16 && alignof(vec<bfloat, 8>) == 16 && sizeof(ulong2) == 16);
static_assert(sizeof(packed_float3) == 12 && alignof(packed_float3) == 4 && sizeof(packed_half4) == 8 && alignof(packed_bfloat2) == 2 && sizeof(float3x3) == 48);
static_assert(is_same_v<decltype(half4() * 2.0f), half4> && is_same_v<decltype(int4() < 3), bool4> && is_same_v<decltype(packed_float3() * 2), float3>);
static_assert(is_same_v<decltype(bfloat4() * 2), bfloat4> && is_same_v<vec<float, 4>, float4> && is_same_v<decltype(float4().xy), float2>);
constexpr uint3 whole(1, 2, 3);
static_assert(whole.y == 2 && (whole + 1u).z == 4 && uint4(whole, 9).w == 9);

#define THAT(...) if (!(__VA_ARGS__)) return __LINE__;
#define ALL(...) THAT(all(__VA_ARGS__))
template <class V4> V4 through_alias(float a, float b) { return V4(a, b, a, b); }
SHOW int constructors() {
  using V = vec<float, 4>; typedef half4 H; float2 p(1, 2); float3 q(3, 4, 5);
  ALL(V(p, 3, 4) == float4(1, 2, 3, 4)) ALL(float4(q, 6) == float4(3, 4, 5, 6)) ALL(float4(0, p, 7) == float4(0, 1, 2, 7)) ALL(V(2) == float4(2, 2, 2, 2))
  ALL(through_alias<V>(1, 2) == float4(1, 2, 1, 2)) ALL(through_alias<H>(1, 2) == half4(1, 2, 1, 2)) ALL(int4(float4(1.9f, -1.9f, 2, 3)) == int4(1, -1, 2, 3))
  ALL((int4)float4(1.5f) == 1) ALL(float4(half4(0.1h)) == float(0.1h)) ALL(static_cast<float2>(uchar2(250, 3)) == float2(250, 3)) ALL(bool3(q) == bool3(true))
  float4 zero = 0; float4 listed = {1, 2, 3, 4}; bfloat4 b = 0; ALL(zero == 0) ALL(listed == float4(1, 2, 3, 4)) ALL(b == bfloat4(0.0f))
  ALL(bfloat2(1.00390625f, 2.5f) == bfloat2(1.0_bf, 2.5_bf)) ALL(gcm::make<float4>(p, p) == float4(1, 2, 1, 2))
  ALL(as_type<uint2>(float2(1, -2)) == uint2(0x3f800000, 0xc0000000)) THAT(as_type<ulong>(uint2(1, 2)) == 0x200000001ul) ALL(as_type<ushort4>(half4(1)) == ushort4(0x3c00))
  return 0;
}
SHOW int operators() {
  float4 a(1, 2, 3, 4), b(5, 6, 7, 8); float3 t(1, 2, 3); int4 i(7, -7, 9, 1); uchar4 u(200, 100, 255, 1);
  ALL(a + b == float4(6, 8, 10, 12)) ALL(t + t == float3(2, 4, 6)) ALL(t * float3(3, 5, 7) == float3(3, 10, 21)) ALL(b - 1 == float4(4, 5, 6, 7)) ALL(1.0f / a.xy == float2(1, 0.5f)) ALL(-a == float4(-1, -2, -3, -4))
  ALL(i % 4 == int4(3, -3, 1, 1)) ALL((i & 3) == int4(3, 1, 1, 1)) ALL((~i) == int4(-8, 6, -10, -2)) ALL((i << 1) == 2 * i) ALL((u + u) == uchar4(144, 200, 254, 2))
  ALL((a < 3) == bool4(true, true, false, false)) ALL((a != b) == true) ALL(!(a > b)) ALL((a < 3 && b > 5) == bool4(false, true, false, false)) THAT(any(a == 4)) THAT(!all(a == 4))
  ALL(bool4(false, true, false, true) == (a == 2 || a == 4))
  a += b; ALL(a == float4(6, 8, 10, 12)) a *= 2; ALL(a == float4(12, 16, 20, 24)) i >>= 1; ALL(i == int4(3, -4, 4, 0)) a.xy += 1; ALL(a == float4(13, 17, 20, 24))
  a.zw *= a.xy; ALL(a == float4(13, 17, 260, 408)) a[2] = 5; THAT(a.z == 5) a.x++; THAT(a.x == 14)
  half4 h(1); h = h * 0.333333f; THAT(h.x == half(0.333333f)) bfloat4 g(1); g += g * 2; ALL(g == bfloat4(3.0f)) vec<bfloat, 8> e(1.5f); e = e * e + 1; THAT(e[7] == 3.25_bf)
  ALL(select(int2(1, 2), int2(3, 4), bool2(true, false)) == int2(3, 2)) ALL(clamp(i, 0, 3) == int4(3, 0, 3, 0)) ALL(mix(float2(0), float2(2, 4), 0.5f) == float2(1, 2))
  ALL(max(float4(1, NAN, 3, 4), 2.0f) == float4(2, 2, 3, 4)) ALL(abs(int2(-3, 3)) == 3) ALL(ldexp(float2(1, 2), int2(3, 4)) == float2(8, 32)) ALL(isnan(float2(NAN, 1)) == bool2(true, false))
  return 0;
}
SHOW int packed() {
  packed_float3 p(1, 2, 3), many[2] = {packed_float3(4), float3(5, 6, 7)}; float3 v = p; ALL(v == float3(1, 2, 3)) ALL(many[1] * p == float3(5, 12, 21)) THAT(reinterpret_cast<float*>(many)[5] == 7)
  p = v + 1; ALL(p == float3(2, 3, 4)) p += p; THAT(p[1] == 6 && p.z == 8) ALL(exp(packed_float3(0)) == 1) ALL(float4(p, 1) == float4(4, 6, 8, 1)) THAT(dot(p, v) == 4 + 12 + 24)
  return 0;
}
SHOW int geometry() {
  float3 a(1, 2, 3), b(4, 5, 6); THAT(dot(a, b) == 32) ALL(cross(a, b) == float3(-3, 6, -3)) THAT(length(float2(3, 4)) == 5) THAT(distance(a, b) == sqrt(27.0f)) THAT(length_squared(a) == 14)
  ALL(fabs(normalize(float2(3, 4)) - float2(0.6f, 0.8f)) < 1e-6f) ALL(reflect(float2(1, -1), float2(0, 1)) == float2(1, 1)) THAT(is_same_v<decltype(dot(half2(), half2())), half>)
  THAT(isinf(length(half2(60000, 60000))) && length(half2(3, 4)) == 5) ALL(faceforward(a, b, b) == -a)
  return 0;
}
SHOW int matrices() {
  float2x3 m(float3(1, 2, 3), float3(4, 5, 6)); THAT(m[1][2] == 6) ALL(m * float2(1, 10) == float3(41, 52, 63)) ALL(float3(1, 1, 1) * m == float2(6, 15)) THAT(transpose(m)[2].y == 6)
  float2x2 s(1, 2, 3, 4); THAT(determinant(s) == -2) THAT(s * float2x2(1.0f) == s) THAT((s * s)[0][1] == 10 && (s * s)[1][0] == 15) THAT(determinant(float3x3(2, 0, 1, 1, 3, 2, 1, 1, 1)) == 0 + 2 * (3 - 2) - 0 + 1 * (1 - 3))
  THAT(determinant(float4x4(2.0f)) == 16) s += s; THAT(s[1][1] == 8) THAT((2.0f * s)[0][0] == 4) array<int, 3> r = {{1, 2, 3}}; THAT(r.size() == 3 && r[2] == 3)
  return 0;
}
// A simdgroup's lanes in a row, each with its part of a, b and c; what each is left with.
SHOW int multiply(const float* a, const float* b, const float* c, float* d, unsigned mask) {
  static gcm_fiber lanes[32]; gcm_simdgroup group = {}; group.lanes = lanes; missing = 0;
  for (uint lane = 0; lane < 32; lane++) {
    const uint row = ROW, column = COLUMN, at = 8 * row + column;
    gcm::set_lane_value(&group, lane, gcm::matrix_terms{{a[at], a[at + 1]}, {b[at], b[at + 1]}, {c[at], c[at + 1]}});
  }
  gcm::multiply_matrices(&group, mask);
  for (uint lane = 0; lane < 32; lane++) {
    const uint at = 8 * (ROW) + COLUMN; const auto r = gcm::lane_value<gcm::matrix_result>(&group, lane); d[at] = r.d[0], d[at + 1] = r.d[1];
  }
  return missing;
}
""".replace("ROW", "((lane / 4 & 4) + (lane / 2) % 4)").replace("COLUMN", "((lane / 4 & 2) * 2 + (lane % 2) * 2)")  # as MLX's steel/gemm/mma.h
)  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return build(TEXT, tmp_path_factory.mktemp("vectors"))


@pytest.mark.parametrize("scalar", ["float", "bfloat", "uchar"])
def test_every_swizzle_reads_and_writes_its_components_and_no_others(library: c.CDLL, scalar: str) -> None:
    assert getattr(library, f"swizzles_{scalar}")() == 0


def test_swizzles_with_repeats_are_there_for_a_text_that_asks() -> None:
    assert complaints(ALL_SWIZZLES) == ""


def test_swizzles_with_repeats_are_left_out_otherwise() -> None:
    assert "no member named 'xxyy'" in complaints("#include <metal_stdlib>\nauto a = float4().xxyy;")


@pytest.mark.parametrize("name", ["constructors", "operators", "packed", "geometry", "matrices"])
def test_vectors_do_what_metal_says(library: c.CDLL, name: str) -> None:
    """What is returned is the line of the first expectation that does not hold."""
    assert getattr(library, name)() == 0


def _multiply(library: c.CDLL, mask: int = 0xFFFFFFFF) -> tuple[np.ndarray, np.ndarray, int]:
    a, b, k = (np.random.default_rng(i).integers(-9, 9, (8, 8)).astype(np.float32) for i in range(3))
    d = np.zeros((8, 8), np.float32)
    missing = library.multiply(*(m.ctypes.data_as(c.c_void_p) for m in (a, b, k, d)), c.c_uint(mask))
    return d, a @ b + k, missing


def test_a_matrix_over_a_simdgroup_has_the_layout_that_mlx_counts_on(library: c.CDLL) -> None:
    got, want, missing = _multiply(library)
    assert np.array_equal(got, want)
    assert missing == 0


def test_a_matrix_product_without_all_lanes_is_reported(library: c.CDLL) -> None:
    assert _multiply(library, mask=0xFFFFFFFE)[2] == 31


@pytest.mark.parametrize(
    "name", ["steel/gemm/mma.h", "complex.h", "utils.h", "reduce_utils.h", "steel/attn/mma.h", "unary_ops.h", "sdpa_vector.h", "atomic.h"]
)
def test_headers_of_mlx_compile_as_they_are(name: str) -> None:
    assert complaints(f'#include "mlx/backend/metal/kernels/utils.h"\n#include "mlx/backend/metal/kernels/{name}"\n') == ""


def test_complex_numbers_of_mlx_work() -> None:
    assert complaints(
        '#include "mlx/backend/metal/kernels/utils.h"\nconstexpr complex64_t a(1, 2), b = 3;\n'
        "static_assert((a * a).real == -3 && (a * a).imag == 4 && (2.0f * a + 1).real == 3 && a < b && (a / a).real == 1 && float(a) == 1 && (a / 2).imag == 1);\n"
        "complex64_t c(float x) { return log1p(complex64_t(x, 1.0)) * 2.0 - x; }\nfloat2 f = a; complex64_t g = f; bool h = cast_to<bool>(a);\n"
    ) == ""  # fmt: skip


def test_a_wrong_header_is_seen(tmp_path: Path) -> None:
    wrong = build(TEXT, tmp_path, SEEN)
    assert wrong.swizzles_float() != 0
    assert wrong.operators() != 0
    assert wrong.matrices() != 0
    got, want, _ = _multiply(wrong)
    assert not np.array_equal(got, want)
