// <metal_integer>, beyond what integers share with floats (abs, min, max, clamp, … are in math.h). Of scalars and of vectors by component.
#pragma once
#pragma clang system_header
#include "math.h"

namespace gcm {
// An integer type with twice the bits, which holds any sum or product of two.
template <class T> using wide_t = metal::conditional_t<sizeof(T) == 8, metal::conditional_t<(T(-1) < T(0)), __int128, unsigned __int128>, metal::conditional_t<(T(-1) < T(0)), long, ulong>>;
template <class T> inline constexpr uint bits = 8 * sizeof(T);
template <class T> GCM_FUNC T saturated(wide_t<T> v) {
  return v < wide_t<T>(metal::numeric_limits<T>::min()) ? metal::numeric_limits<T>::min() : v > wide_t<T>(metal::numeric_limits<T>::max()) ? metal::numeric_limits<T>::max() : T(v);
}
template <class T> GCM_FUNC T reversed(T v) {
  metal::make_unsigned_t<T> from = v, to = 0;
  for (uint i = 0; i < bits<T>; i++, from = from >> 1) to = (to << 1) | (from & 1);
  return T(to);
}
} // namespace gcm

namespace metal {
// T: the type of a component, U: its unsigned form, W: one that holds any product.
#define GCM_INTEGER1(name, ...) \
  template <class A, class R = gcm::integer_t<A>> GCM_FUNC auto name(const A& a_) { \
    return gcm::map([](auto x) GCM_INLINED { typedef decltype(x) T; typedef make_unsigned_t<T> U; return __VA_ARGS__; }, R(a_)); \
  }
#define GCM_INTEGER2(name, ...) \
  template <class A, class B, class R = gcm::integer_t<A, B>> GCM_FUNC auto name(const A& a_, const B& b_) { \
    return gcm::map([](auto x, auto y) GCM_INLINED { typedef decltype(x) T; typedef make_unsigned_t<T> U; typedef gcm::wide_t<T> W; return __VA_ARGS__; }, R(a_), R(b_)); \
  }
#define GCM_INTEGER3(name, ...) \
  template <class A, class B, class C, class R = gcm::integer_t<A, B, C>> GCM_FUNC auto name(const A& a_, const B& b_, const C& c_) { \
    return gcm::map([](auto x, auto y, auto z) GCM_INLINED { typedef decltype(x) T; typedef make_unsigned_t<T> U; typedef gcm::wide_t<T> W; return __VA_ARGS__; }, R(a_), R(b_), R(c_)); \
  }
GCM_INTEGER1(popcount, T(__builtin_popcountl(ulong(U(x)))))
GCM_INTEGER1(clz, T(x == 0 ? gcm::bits<T> : __builtin_clzl(ulong(U(x))) - (64 - gcm::bits<T>)))
GCM_INTEGER1(ctz, T(x == 0 ? gcm::bits<T> : __builtin_ctzl(ulong(U(x)))))
GCM_INTEGER1(reverse_bits, gcm::reversed(x))
GCM_INTEGER2(absdiff, U(x > y ? U(x) - U(y) : U(y) - U(x)))
GCM_INTEGER2(addsat, gcm::saturated<T>(W(x) + W(y)))
GCM_INTEGER2(subsat, T(x < y && T(-1) > T(0) ? T(0) : gcm::saturated<T>(W(x) - W(y))))
GCM_INTEGER2(hadd, T((W(x) + W(y)) >> 1))
GCM_INTEGER2(rhadd, T((W(x) + W(y) + 1) >> 1))
GCM_INTEGER2(mulhi, T((W(x) * W(y)) >> gcm::bits<T>))
GCM_INTEGER3(madhi, T(U((W(x) * W(y)) >> gcm::bits<T>) + U(z)))
GCM_INTEGER3(madsat, gcm::saturated<T>(W(x) * W(y) + W(z)))
// Of the low 24 bits of 32-bit integers; the sum wraps.
GCM_INTEGER2(mul24, T(U(U(T(U(x) << 8) >> 8) * U(T(U(y) << 8) >> 8))))
GCM_INTEGER3(mad24, T(U(U(T(U(x) << 8) >> 8) * U(T(U(y) << 8) >> 8) + U(z))))
// Left, by y modulo the number of bits; bits that leave at one end return at the other.
GCM_INTEGER2(rotate, T(U(U(x) << (U(y) % gcm::bits<T>)) | U(U(x) >> ((gcm::bits<T> - U(y) % gcm::bits<T>) % gcm::bits<T>))))
#undef GCM_INTEGER1
#undef GCM_INTEGER2
#undef GCM_INTEGER3

// `count` bits from `offset` on, with the sign of the topmost one where the type has a sign.
template <class A, class R = gcm::integer_t<A>> GCM_FUNC R extract_bits(const A& a, uint offset, uint count) {
  return gcm::map([offset, count](auto x) GCM_INLINED {
    typedef decltype(x) T;
    if (count == 0) return T(0);
    return T(T(make_unsigned_t<T>(x) << (gcm::bits<T> - offset - count)) >> (gcm::bits<T> - count));
  }, R(a));
}
template <class A, class B, class R = gcm::integer_t<A, B>> GCM_FUNC R insert_bits(const A& base, const B& insert, uint offset, uint count) {
  return gcm::map([offset, count](auto x, auto y) GCM_INLINED {
    typedef make_unsigned_t<decltype(x)> U;
    if (count == 0) return x;
    const U mask = U(U(U(~U(0)) >> (gcm::bits<U> - count)) << offset);
    return decltype(x)((U(x) & U(~mask)) | (U(U(y) << offset) & mask));
  }, R(base), R(insert));
}
} // namespace metal
