// packed_float3 and its kind: a vector's components without its alignment, so that 3 of them take the room of 3. They are storage: any
// arithmetic converts to the vector first.
#pragma once
#pragma clang system_header
#include "vector.h"

namespace metal {
template <class T, int N> struct packed_vec;

#define GCM_PACKED(N, ...) \
  packed_vec() = default; \
  GCM_FUNC packed_vec(T s) : packed_vec(vec<T, N>(s)) {} \
  template <class A, class B, class... R> GCM_FUNC packed_vec(A a, B b, R... r) : packed_vec(vec<T, N>(a, b, r...)) {} \
  template <class S, enable_if_t<!__is_same(S, T), int> = 0> GCM_FUNC explicit packed_vec(const vec<S, N>& v) : packed_vec(vec<T, N>(v)) {} \
  GCM_FUNC operator vec<T, N>() const { return vec<T, N>::of(__VA_ARGS__); } \
  GCM_INLINED T& operator[](int i) { return reinterpret_cast<T(&)[N]>(*this)[i]; } \
  GCM_INLINED const T& operator[](int i) const { return reinterpret_cast<const T(&)[N]>(*this)[i]; } \
  GCM_FUNC T get(int i) const { return vec<T, N>(*this).get(i); }
template <class T> struct packed_vec<T, 2> {
  T x, y;
  GCM_PACKED(2, x, y)
  GCM_FUNC packed_vec(const vec<T, 2>& v) : x(v.x), y(v.y) {}
};
template <class T> struct packed_vec<T, 3> {
  T x, y, z;
  GCM_PACKED(3, x, y, z)
  GCM_FUNC packed_vec(const vec<T, 3>& v) : x(v.x), y(v.y), z(v.z) {}
};
template <class T> struct packed_vec<T, 4> {
  T x, y, z, w;
  GCM_PACKED(4, x, y, z, w)
  GCM_FUNC packed_vec(const vec<T, 4>& v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
};
#undef GCM_PACKED
} // namespace metal

namespace gcm {
template <class T, int N> struct shape<metal::packed_vec<T, N>> : shape<vec<T, N>> {};
template <class A> inline constexpr bool is_packed = false;
template <class T, int N> inline constexpr bool is_packed<metal::packed_vec<T, N>> = true;
template <class A> GCM_FUNC A unpacked(A a) { return a; }
template <class T, int N> GCM_FUNC vec<T, N> unpacked(metal::packed_vec<T, N> a) { return a; }
template <class A, class B = A> using if_packed = metal::enable_if_t<is_packed<A> || is_packed<B>, int>;
} // namespace gcm

namespace metal {
#define GCM_PACKED(op) \
  template <class A, class B, gcm::if_packed<A, B> = 0> GCM_FUNC auto operator op(const A& a, const B& b)->decltype(gcm::unpacked(a) op gcm::unpacked(b)) { return gcm::unpacked(a) op gcm::unpacked(b); }
GCM_PACKED(+) GCM_PACKED(-) GCM_PACKED(*) GCM_PACKED(/) GCM_PACKED(%) GCM_PACKED(&) GCM_PACKED(|) GCM_PACKED(^) GCM_PACKED(<<) GCM_PACKED(>>)
GCM_PACKED(==) GCM_PACKED(!=) GCM_PACKED(<) GCM_PACKED(>) GCM_PACKED(<=) GCM_PACKED(>=)
#undef GCM_PACKED
#define GCM_PACKED(op) template <class T, int N, class B> GCM_FUNC packed_vec<T, N>& operator op##=(packed_vec<T, N>& a, const B& b) { return a = vec<T, N>(a) op gcm::unpacked(b); }
GCM_PACKED(+) GCM_PACKED(-) GCM_PACKED(*) GCM_PACKED(/) GCM_PACKED(%) GCM_PACKED(&) GCM_PACKED(|) GCM_PACKED(^) GCM_PACKED(<<) GCM_PACKED(>>)
#undef GCM_PACKED
template <class T, int N> GCM_FUNC vec<T, N> operator-(packed_vec<T, N> a) { return -vec<T, N>(a); }
} // namespace metal

#define GCM_PACKED(t) \
  typedef metal::packed_vec<t, 2> packed_##t##2; \
  typedef metal::packed_vec<t, 3> packed_##t##3; \
  typedef metal::packed_vec<t, 4> packed_##t##4;
GCM_PACKED(char) GCM_PACKED(uchar) GCM_PACKED(short) GCM_PACKED(ushort) GCM_PACKED(int) GCM_PACKED(uint) GCM_PACKED(long) GCM_PACKED(ulong)
GCM_PACKED(half) GCM_PACKED(bfloat) GCM_PACKED(float)
#undef GCM_PACKED
