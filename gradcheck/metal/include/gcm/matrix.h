// <metal_matrix>: C columns of R components, column after column, as in float4x3: four columns of three.
#pragma once
#pragma clang system_header
#include "math.h"

namespace metal {
template <class T, int C, int R> struct matrix {
  typedef vec<T, R> column;
  column columns[C];

  matrix() = default;
  // s on the diagonal
  GCM_FUNC explicit matrix(T s) : columns{} {
    for (int c = 0; c < C && c < R; c++) columns[c][c] = s;
  }
  template <class S> explicit GCM_FUNC matrix(const matrix<S, C, R>& m) : columns{} {
    for (int c = 0; c < C; c++) columns[c] = column(m.columns[c]);
  }
  // its columns, or all its components column after column
  template <class A, class B, class... More> GCM_FUNC matrix(const A& a, const B& b, const More&... more) : columns{} {
    const auto all = gcm::flatten<T, C * R>(a, b, more...);
    for (int i = 0; i < C * R; i++) columns[i / R][i % R] = all.lane[i];
  }
  GCM_FUNC column& operator[](int c) { return columns[c]; }
  GCM_FUNC const column& operator[](int c) const { return columns[c]; }
};

template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator+(matrix<T, C, R> a, const matrix<T, C, R>& b) {
  for (int c = 0; c < C; c++) a[c] = a[c] + b[c];
  return a;
}
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator-(matrix<T, C, R> a, const matrix<T, C, R>& b) {
  for (int c = 0; c < C; c++) a[c] = a[c] - b[c];
  return a;
}
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator-(matrix<T, C, R> a) {
  for (int c = 0; c < C; c++) a[c] = -a[c];
  return a;
}
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator*(matrix<T, C, R> a, remove_cv_t<T> s) {
  for (int c = 0; c < C; c++) a[c] = a[c] * s;
  return a;
}
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator*(remove_cv_t<T> s, const matrix<T, C, R>& a) { return a * s; }
template <class T, int C, int R> METAL_FUNC vec<T, R> operator*(const matrix<T, C, R>& m, vec<T, C> v) {
  vec<T, R> sum = m[0] * v[0];
  for (int c = 1; c < C; c++) sum += m[c] * v[c];
  return sum;
}
template <class T, int C, int R> METAL_FUNC vec<T, C> operator*(vec<T, R> v, const matrix<T, C, R>& m) {
  vec<T, C> result;
  for (int c = 0; c < C; c++) result[c] = dot(v, m[c]);
  return result;
}
template <class T, int C, int K, int R> METAL_FUNC matrix<T, C, R> operator*(const matrix<T, K, R>& a, const matrix<T, C, K>& b) {
  matrix<T, C, R> result;
  for (int c = 0; c < C; c++) result[c] = a * b[c];
  return result;
}
#define GCM_ASSIGN(op) template <class T, int C, int R, class B> METAL_FUNC matrix<T, C, R>& operator op##=(matrix<T, C, R>& a, const B& b) { return a = a op b; }
GCM_ASSIGN(+) GCM_ASSIGN(-) GCM_ASSIGN(*)
#undef GCM_ASSIGN
template <class T, int C, int R> METAL_FUNC bool operator==(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
  for (int c = 0; c < C; c++)
    if (any(a[c] != b[c])) return false;
  return true;
}
template <class T, int C, int R> METAL_FUNC bool operator!=(const matrix<T, C, R>& a, const matrix<T, C, R>& b) { return !(a == b); }

template <class T, int C, int R> METAL_FUNC matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> result;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++) result[r][c] = m[c][r];
  return result;
}
template <class T, int N> METAL_FUNC T determinant(const matrix<T, N, N>& m) {
  if constexpr (N == 2) return m[0][0] * m[1][1] - m[1][0] * m[0][1];
  else {
    // along the first column
    T sum = T(0);
    for (int r = 0; r < N; r++) {
      matrix<T, N - 1, N - 1> minor;
      for (int c = 1; c < N; c++)
        for (int i = 0, k = 0; i < N; i++)
          if (i != r) minor[c - 1][k++] = m[c][i];
      sum += (r % 2 ? -m[0][r] : m[0][r]) * determinant(minor);
    }
    return sum;
  }
}
} // namespace metal

#define GCM_MATRIX(t, c) \
  typedef metal::matrix<t, c, 2> t##c##x2; \
  typedef metal::matrix<t, c, 3> t##c##x3; \
  typedef metal::matrix<t, c, 4> t##c##x4;
GCM_MATRIX(float, 2) GCM_MATRIX(float, 3) GCM_MATRIX(float, 4) GCM_MATRIX(half, 2) GCM_MATRIX(half, 3) GCM_MATRIX(half, 4)
#undef GCM_MATRIX
