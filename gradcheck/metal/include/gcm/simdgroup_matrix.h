// <metal_simdgroup_matrix>: an 8 x 8 matrix over the 32 lanes of a simdgroup, two neighbours of one row in each. Which two, Metal leaves open;
// kernels count on what Apple's GPUs do, as MLX's steel/gemm/mma.h does, and so it is here.
#pragma once
#pragma clang system_header
#include "execution.h"
#include "vector.h"

namespace metal {
template <class T, int Cols, int Rows> struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "simdgroup_matrix: Metal has 8 x 8 only");
  typedef vec<T, 2> storage_type;
  storage_type elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal);
  GCM_FUNC storage_type& thread_elements() { return elements; }
  GCM_FUNC const storage_type& thread_elements() const { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
} // namespace metal

namespace gcm {
GCM_FUNC uint matrix_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
GCM_FUNC uint matrix_column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; } // of its first element

struct matrix_terms { float a[2], b[2], c[2]; };
struct matrix_result { float d[2]; };

// D = A B + C for the whole simdgroup. Sums run over k upwards from C, in float.
template <class = void> GCM_OUTLINED void multiply_matrices(gcm_simdgroup* group, gcm_u32 mask) {
  float a[8][8] = {}, b[8][8] = {}, d[8][8] = {};
  for (uint lane = 0; lane < 32; lane++) {
    if (!has(mask, lane)) {
      for (uint other = 0; other < 32; other++)
        if (has(mask, other)) gcm_lane_missing(group, other, lane);
      continue;
    }
    const matrix_terms terms = lane_value<matrix_terms>(group, lane);
    const uint r = matrix_row(lane), c = matrix_column(lane);
    for (uint i = 0; i < 2; i++) a[r][c + i] = terms.a[i], b[r][c + i] = terms.b[i], d[r][c + i] = terms.c[i];
  }
  for (uint r = 0; r < 8; r++)
    for (uint k = 0; k < 8; k++)
      for (uint c = 0; c < 8; c++) d[r][c] = __builtin_fmaf(a[r][k], b[k][c], d[r][c]);
  for (uint lane = 0; lane < 32; lane++)
    if (has(mask, lane)) set_lane_value(group, lane, matrix_result{{d[matrix_row(lane)][matrix_column(lane)], d[matrix_row(lane)][matrix_column(lane) + 1]}});
}
} // namespace gcm

namespace metal {
// Not filled: on the diagonal, as of a matrix.
template <class T, int C, int R> METAL_FUNC simdgroup_matrix<T, C, R>::simdgroup_matrix(T diagonal) {
  const uint r = gcm::matrix_row(gcm::lane()), c = gcm::matrix_column(gcm::lane());
  elements = storage_type::of(r == c ? diagonal : T(0), r == c + 1 ? diagonal : T(0));
}
template <class T, int Cols, int Rows = Cols> METAL_FUNC simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Cols, Rows> m;
  m.elements = vec<T, 2>::of(value, value);
  return m;
}
template <class T, int Cols, int Rows = Cols> METAL_FUNC simdgroup_matrix<T, Cols, Rows> make_diagonal_simdgroup_matrix(T value) { return simdgroup_matrix<T, Cols, Rows>(value); }

template <class D, class A, class B, class C>
GCM_RUNTIME void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b,
                                               const simdgroup_matrix<C, 8, 8>& c, GCM_HERE) {
  const gcm::matrix_terms terms{{float(a.elements.x), float(a.elements.y)}, {float(b.elements.x), float(b.elements.y)}, {float(c.elements.x), float(c.elements.y)}};
  const auto result = gcm::meet<gcm::matrix_result>(terms, 0, at.site, &gcm::multiply_matrices<>);
  d.elements = vec<D, 2>::of(D(result.d[0]), D(result.d[1]));
}
template <class D, class A, class B>
GCM_RUNTIME void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b, GCM_HERE) {
  const gcm::matrix_terms terms{{float(a.elements.x), float(a.elements.y)}, {float(b.elements.x), float(b.elements.y)}, {0, 0}};
  const auto result = gcm::meet<gcm::matrix_result>(terms, 0, at.site, &gcm::multiply_matrices<>);
  d.elements = vec<D, 2>::of(D(result.d[0]), D(result.d[1]));
}
template <class T> METAL_FUNC simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

// Memory is read and written by the lanes as by any of their own statements, so checked mode watches it.
template <class T, class M>
METAL_FUNC void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const M* from, ulong elements_per_row = 8, vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false) {
  const ulong r = gcm::matrix_row(gcm::lane()), c = gcm::matrix_column(gcm::lane());
  const M* at = from + origin.y * elements_per_row + origin.x;
  m.elements = transpose ? vec<T, 2>::of(T(at[c * elements_per_row + r]), T(at[(c + 1) * elements_per_row + r]))
                         : vec<T, 2>::of(T(at[r * elements_per_row + c]), T(at[r * elements_per_row + c + 1]));
}
template <class T, class M>
METAL_FUNC void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, M* to, ulong elements_per_row = 8, vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false) {
  const ulong r = gcm::matrix_row(gcm::lane()), c = gcm::matrix_column(gcm::lane());
  M* at = to + origin.y * elements_per_row + origin.x;
  at[transpose ? c * elements_per_row + r : r * elements_per_row + c] = M(m.elements.x);
  at[transpose ? (c + 1) * elements_per_row + r : r * elements_per_row + c + 1] = M(m.elements.y);
}
} // namespace metal
