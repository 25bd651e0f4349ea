// complex64_t in place of MLX's header of this name. MLX's has each constructor once per address space; on a CPU those are one and the same.
// Same type, same conversions: implicitly from what converts to the real part, and to what the real part converts to.
#pragma once
#include <metal_stdlib>

#include "mlx/backend/metal/kernels/bf16.h"

template <typename T> struct complex_t;

template <typename T> static constexpr bool is_complex_v = false;
template <typename T> static constexpr bool is_complex_v<complex_t<T>> = true;

// A bfloat is made from a float by a cast only, and is still a fit part of a complex number.
template <typename From, typename To>
static constexpr bool is_lane_convertible_v = metal::is_convertible_v<From, To> || (metal::is_same_v<To, bfloat> && metal::is_convertible_v<From, float>) ||
    (metal::is_same_v<From, bfloat> && metal::is_convertible_v<float, To>);

namespace gcm {
template <class From, class To> inline constexpr bool is_part = !is_complex_v<From> && !shape<From>::is_vector && is_lane_convertible_v<From, To>;
template <class From, class To> using if_part = metal::enable_if_t<is_part<From, To>, int>;
} // namespace gcm

template <typename T> struct complex_t {
  using value_type = T;
  T real;
  T imag;

  GCM_FUNC complex_t() : real(T(0)), imag(T(0)) {}
  GCM_FUNC complex_t(T re, T im) : real(re), imag(im) {}
  template <typename U, gcm::if_part<U, T> = 0> GCM_FUNC complex_t(U re) : real(T(re)), imag(T(0)) {}
  template <typename U, metal::enable_if_t<!metal::is_same_v<U, T> && is_lane_convertible_v<U, T>, int> = 0>
  GCM_FUNC complex_t(complex_t<U> z) : real(T(z.real)), imag(T(z.imag)) {}
  GCM_FUNC complex_t(metal::vec<T, 2> v) : real(v.x), imag(v.y) {}

  GCM_FUNC operator metal::vec<T, 2>() const { return metal::vec<T, 2>(real, imag); }
  template <typename U, metal::enable_if_t<!is_complex_v<U> && gcm::is_scalar<U> && is_lane_convertible_v<T, U>, int> = 0> GCM_FUNC operator U() const { return U(real); }
};

using complex32_t = complex_t<half>;
using complex64_t = complex_t<float>;
static_assert(sizeof(complex64_t) == 8 && sizeof(complex32_t) == 4);

template <typename T> GCM_FUNC complex_t<T> operator-(complex_t<T> z) { return {-z.real, -z.imag}; }
template <typename T> GCM_FUNC complex_t<T> operator+(complex_t<T> a, complex_t<T> b) { return {a.real + b.real, a.imag + b.imag}; }
template <typename T> GCM_FUNC complex_t<T> operator-(complex_t<T> a, complex_t<T> b) { return {a.real - b.real, a.imag - b.imag}; }
template <typename T> GCM_FUNC complex_t<T> operator*(complex_t<T> a, complex_t<T> b) {
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
// By Smith's method, in float: the larger part of the divisor is divided out first, so that nothing overflows on the way.
template <typename T> GCM_FUNC complex_t<T> operator/(complex_t<T> a, complex_t<T> b) {
  const float ar = a.real, ai = a.imag, br = b.real, bi = b.imag;
  if (metal::abs(br) >= metal::abs(bi)) {
    const float ratio = bi / br, scale = br + bi * ratio;
    return {T((ar + ai * ratio) / scale), T((ai - ar * ratio) / scale)};
  }
  const float ratio = br / bi, scale = bi + br * ratio;
  return {T((ar * ratio + ai) / scale), T((ai * ratio - ar) / scale)};
}
// Part by part, with the sign of the divisor, as numpy's % of reals.
template <typename T> GCM_FUNC complex_t<T> operator%(complex_t<T> a, complex_t<T> b) {
  T re = T(a.real - b.real * T(int64_t(a.real / b.real))), im = T(a.imag - b.imag * T(int64_t(a.imag / b.imag)));
  if (re != T(0) && (re < T(0)) != (b.real < T(0))) re += b.real;
  if (im != T(0) && (im < T(0)) != (b.imag < T(0))) im += b.imag;
  return {re, im};
}
// By the real parts, then by the imaginary ones.
template <typename T> GCM_FUNC bool operator==(complex_t<T> a, complex_t<T> b) { return a.real == b.real && a.imag == b.imag; }
template <typename T> GCM_FUNC bool operator!=(complex_t<T> a, complex_t<T> b) { return !(a == b); }
template <typename T> GCM_FUNC bool operator>(complex_t<T> a, complex_t<T> b) { return a.real > b.real || (a.real == b.real && a.imag > b.imag); }
template <typename T> GCM_FUNC bool operator>=(complex_t<T> a, complex_t<T> b) { return a.real > b.real || (a.real == b.real && a.imag >= b.imag); }
template <typename T> GCM_FUNC bool operator<(complex_t<T> a, complex_t<T> b) { return b > a; }
template <typename T> GCM_FUNC bool operator<=(complex_t<T> a, complex_t<T> b) { return b >= a; }

// With a real number on one side.
#define GCM_COMPLEX(op) \
  template <typename T, typename U, gcm::if_part<U, T> = 0> GCM_FUNC auto operator op(complex_t<T> a, U b) { return a op complex_t<T>(b); } \
  template <typename T, typename U, gcm::if_part<U, T> = 0> GCM_FUNC auto operator op(U a, complex_t<T> b) { return complex_t<T>(a) op b; }
GCM_COMPLEX(+) GCM_COMPLEX(-) GCM_COMPLEX(*) GCM_COMPLEX(/) GCM_COMPLEX(==) GCM_COMPLEX(!=)
#undef GCM_COMPLEX
template <typename T> GCM_FUNC complex_t<T>& operator+=(complex_t<T>& a, complex_t<T> b) { return a = a + b; }
template <typename T> GCM_FUNC complex_t<T>& operator-=(complex_t<T>& a, complex_t<T> b) { return a = a - b; }
template <typename T> GCM_FUNC complex_t<T>& operator*=(complex_t<T>& a, complex_t<T> b) { return a = a * b; }
template <typename T> GCM_FUNC complex_t<T>& operator/=(complex_t<T>& a, complex_t<T> b) { return a = a / b; }
