// Vectors: metal::vec<T, N> for N = 2, 3, 4 of every scalar, and 8 as storage. Size and alignment are Metal's: a vector of 3 takes the room of 4.
// A class, and not clang's ext_vector_type: a constructor call is then one whatever name the type goes by, and a cast between vectors
// converts its values, where (int4)f of the builtin would take the bits.
#pragma once
#pragma clang system_header
#include "bfloat.h"
#include "swizzles.h"

namespace metal {
template <class T, int N> struct vec;
}

namespace gcm {
using metal::vec;

template <class T> inline constexpr bool is_scalar = metal::is_arithmetic_v<T>;

// What a type is made of: vectors (and packed ones, see packed.h) have several lanes, scalars one.
template <class V> struct shape { typedef V scalar; typedef V type; static constexpr int lanes = 1; static constexpr bool is_vector = false; };
template <class T, int N> struct shape<vec<T, N>> { typedef T scalar; typedef vec<T, N> type; static constexpr int lanes = N; static constexpr bool is_vector = true; };

template <class T, int N> struct lanes { T lane[N]; };
template <class T> struct splat { T s; };

template <class T, class A> GCM_FUNC void append(T* to, int& at, const A& a) {
  if constexpr (!shape<A>::is_vector) to[at++] = T(a);
  else {
    const typename shape<A>::type v = a;
    for (int i = 0; i < shape<A>::lanes; i++) to[at++] = T(v.get(i));
  }
}

// The lanes of all the arguments in a row: what a constructor of several arguments takes.
template <class T, int N, class... A> GCM_FUNC lanes<T, N> flatten(const A&... a) {
  static_assert((shape<A>::lanes + ...) == N, "vector constructor: the arguments together must have as many components as the vector");
  lanes<T, N> all{};
  int at = 0;
  (append(all.lane, at, a), ...);
  return all;
}
} // namespace gcm

namespace metal {
// A vector is copied as C++ copies a plain struct, and then nothing looks at where it lies. In checked mode copies are calls, so that what
// they bind to is looked at; they are passed in registers all the same.
#if defined(__has_feature) && !defined(GCM_PLAIN_VECTORS)
#if __has_feature(thread_sanitizer)
#define GCM_WATCHED_VECTOR __attribute__((trivial_abi))
#define GCM_COPIED(assigned, ...) \
  GCM_FUNC vec(const vec& v) : vec(__VA_ARGS__) {} \
  GCM_FUNC vec& operator=(const vec& v) { return assigned, *this; }
#endif
#endif
#ifndef GCM_COPIED
#define GCM_WATCHED_VECTOR
#define GCM_COPIED(assigned, ...)
#endif

#define GCM_VECTOR_COMMON(N) \
  vec() = default; \
  GCM_FUNC vec(T s) : vec(gcm::splat<T>{s}) {} \
  /* what T itself converts from, as in bfloat4 v = 0 */ \
  template <class S, enable_if_t<gcm::is_scalar<S> && !__is_same(S, T) && __is_convertible(S, T), int> = 0> GCM_FUNC vec(S s) : vec(T(s)) {} \
  template <class S, enable_if_t<gcm::is_scalar<S> && !__is_convertible(S, T), int> = 0> GCM_FUNC explicit vec(S s) : vec(T(s)) {} \
  template <class S, enable_if_t<!__is_same(S, T), int> = 0> GCM_FUNC explicit vec(const vec<S, N>& v) : vec(gcm::flatten<T, N>(v)) {} \
  template <class A, class B, class... R> GCM_FUNC vec(A a, B b, R... r) : vec(gcm::flatten<T, N>(a, b, r...)) {} \
  /* bounded, so that checked mode sees an index out of range */ \
  __attribute__((always_inline)) T& operator[](int i) { return reinterpret_cast<T(&)[N]>(*this)[i]; } \
  __attribute__((always_inline)) const T& operator[](int i) const { return reinterpret_cast<const T(&)[N]>(*this)[i]; }

template <class T> struct GCM_WATCHED_VECTOR alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  GCM_VECTOR_COMMON(2)
  GCM_COPIED((x = v.x, y = v.y), v.x, v.y)
  // The components themselves: spares the compiler the choice of a constructor.
  GCM_FUNC vec(T x_, T y_) : x(x_), y(y_) {}
  static GCM_FUNC vec of(T x, T y) { return vec(x, y); }
  GCM_SWIZZLES_XY
  GCM_FUNC T get(int i) const { return i == 0 ? x : y; }

 private:
  GCM_FUNC vec(gcm::splat<T> v) : x(v.s), y(v.s) {}
  GCM_FUNC vec(const gcm::lanes<T, 2>& l) : x(l.lane[0]), y(l.lane[1]) {}
};

template <class T> struct GCM_WATCHED_VECTOR alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  GCM_VECTOR_COMMON(3)
  GCM_COPIED((x = v.x, y = v.y, z = v.z), v.x, v.y, v.z)
  GCM_FUNC vec(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
  static GCM_FUNC vec of(T x, T y, T z) { return vec(x, y, z); }
  GCM_SWIZZLES_XY
  GCM_SWIZZLES_Z
  GCM_FUNC T get(int i) const { return i == 0 ? x : i == 1 ? y : z; }

 private:
  GCM_FUNC vec(gcm::splat<T> v) : x(v.s), y(v.s), z(v.s) {}
  GCM_FUNC vec(const gcm::lanes<T, 3>& l) : x(l.lane[0]), y(l.lane[1]), z(l.lane[2]) {}
};

template <class T> struct GCM_WATCHED_VECTOR alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  GCM_VECTOR_COMMON(4)
  GCM_COPIED((x = v.x, y = v.y, z = v.z, w = v.w), v.x, v.y, v.z, v.w)
  GCM_FUNC vec(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
  static GCM_FUNC vec of(T x, T y, T z, T w) { return vec(x, y, z, w); }
  GCM_SWIZZLES_XY
  GCM_SWIZZLES_Z
  GCM_SWIZZLES_W
  GCM_FUNC T get(int i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }

 private:
  GCM_FUNC vec(gcm::splat<T> v) : x(v.s), y(v.s), z(v.s), w(v.s) {}
  GCM_FUNC vec(const gcm::lanes<T, 4>& l) : x(l.lane[0]), y(l.lane[1]), z(l.lane[2]), w(l.lane[3]) {}
};

template <class T> struct GCM_WATCHED_VECTOR alignas(8 * sizeof(T)) vec<T, 8> {
  T lane[8];
  GCM_VECTOR_COMMON(8)
  GCM_COPIED((lane[0] = v.lane[0], lane[1] = v.lane[1], lane[2] = v.lane[2], lane[3] = v.lane[3], lane[4] = v.lane[4], lane[5] = v.lane[5], lane[6] = v.lane[6], lane[7] = v.lane[7]), v.lane[0], v.lane[1], v.lane[2], v.lane[3], v.lane[4], v.lane[5], v.lane[6], v.lane[7])
  GCM_FUNC T get(int i) const { return lane[i]; }

 private:
  GCM_FUNC vec(gcm::splat<T> v) : lane{v.s, v.s, v.s, v.s, v.s, v.s, v.s, v.s} {}
  GCM_FUNC vec(const gcm::lanes<T, 8>& l) : lane{l.lane[0], l.lane[1], l.lane[2], l.lane[3], l.lane[4], l.lane[5], l.lane[6], l.lane[7]} {}
};
#undef GCM_VECTOR_COMMON
#undef GCM_COPIED
#undef GCM_WATCHED_VECTOR
} // namespace metal

#define GCM_VECTORS(t) \
  typedef metal::vec<t, 2> t##2; \
  typedef metal::vec<t, 3> t##3; \
  typedef metal::vec<t, 4> t##4;
GCM_VECTORS(bool) GCM_VECTORS(char) GCM_VECTORS(uchar) GCM_VECTORS(short) GCM_VECTORS(ushort) GCM_VECTORS(int) GCM_VECTORS(uint)
GCM_VECTORS(long) GCM_VECTORS(ulong) GCM_VECTORS(half) GCM_VECTORS(bfloat) GCM_VECTORS(float)
#undef GCM_VECTORS

namespace gcm {
template <bool Fits, class V> struct operands {};
template <class V> struct operands<true, V> { typedef V type; };

// The vector that an operator on A and B works in: two vectors of one type, or a vector and a scalar that its components convert from.
template <class A, class B, bool = shape<A>::is_vector, bool = shape<B>::is_vector> struct vector_of {};
template <class A, class B> struct vector_of<A, B, true, true> : operands<__is_same(typename shape<A>::type, typename shape<B>::type), typename shape<A>::type> {};
template <class A, class B> struct vector_of<A, B, true, false> : operands<__is_convertible(B, typename shape<A>::scalar), typename shape<A>::type> {};
template <class A, class B> struct vector_of<A, B, false, true> : vector_of<B, A> {};
template <class A, class B> using vector_of_t = typename vector_of<A, B>::type;
template <class V> using vector_t = metal::enable_if_t<shape<V>::is_vector, typename shape<V>::type>;
// For a scalar that a component of type T converts from.
template <class S, class T> using if_operand = metal::enable_if_t<is_scalar<S> && __is_convertible(S, T), int>;
// A scalar or vector of S with as many components as V.
template <class S, class V> struct like { typedef S type; };
template <class S, class T, int N> struct like<S, vec<T, N>> { typedef vec<S, N> type; };
template <class S, class V> using like_t = typename like<S, V>::type;
template <class V> using bools_t = vec<bool, shape<V>::lanes>;

// f of the components that stand at the same place in each vector; of scalars f itself.
template <class F, class A, class... B> GCM_FUNC auto map(F f, const A& a, const B&... b) {
  if constexpr (!shape<A>::is_vector) return f(a, b...);
  else {
    typedef vec<decltype(f(a.get(0), b.get(0)...)), shape<A>::lanes> R;
    if constexpr (shape<A>::lanes == 2) return R::of(f(a.x, b.x...), f(a.y, b.y...));
    else if constexpr (shape<A>::lanes == 3) return R::of(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...));
    else if constexpr (shape<A>::lanes == 4) return R::of(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...), f(a.w, b.w...));
    else {
      R all{};
      for (int i = 0; i < shape<A>::lanes; i++) all.lane[i] = f(a.lane[i], b.lane[i]...);
      return all;
    }
  }
}
} // namespace gcm

namespace metal {
// One component after the other: putting them into vector registers is left to the optimiser.
#define GCM_OPERATOR(op, R) \
  template <class T, int N> GCM_FUNC vec<R, N> operator op(vec<T, N> a, vec<T, N> b) { \
    if constexpr (N == 2) return vec<R, N>::of(R(a.x op b.x), R(a.y op b.y)); \
    else if constexpr (N == 3) return vec<R, N>::of(R(a.x op b.x), R(a.y op b.y), R(a.z op b.z)); \
    else if constexpr (N == 4) return vec<R, N>::of(R(a.x op b.x), R(a.y op b.y), R(a.z op b.z), R(a.w op b.w)); \
    else return gcm::map([](T x, T y) GCM_INLINED { return R(x op y); }, a, b); \
  } \
  template <class T, int N, class S, gcm::if_operand<S, T> = 0> GCM_FUNC vec<R, N> operator op(vec<T, N> a, S b) { return a op vec<T, N>(T(b)); } \
  template <class T, int N, class S, gcm::if_operand<S, T> = 0> GCM_FUNC vec<R, N> operator op(S a, vec<T, N> b) { return vec<T, N>(T(a)) op b; }
GCM_OPERATOR(+, T) GCM_OPERATOR(-, T) GCM_OPERATOR(*, T) GCM_OPERATOR(/, T) GCM_OPERATOR(%, T)
GCM_OPERATOR(&, T) GCM_OPERATOR(|, T) GCM_OPERATOR(^, T) GCM_OPERATOR(<<, T) GCM_OPERATOR(>>, T)
GCM_OPERATOR(==, bool) GCM_OPERATOR(!=, bool) GCM_OPERATOR(<, bool) GCM_OPERATOR(>, bool) GCM_OPERATOR(<=, bool) GCM_OPERATOR(>=, bool)
GCM_OPERATOR(&&, bool) GCM_OPERATOR(||, bool)
#undef GCM_OPERATOR

template <class T, int N> GCM_FUNC vec<T, N> operator+(vec<T, N> a) { return a; }
template <class T, int N> GCM_FUNC vec<T, N> operator-(vec<T, N> a) { return gcm::map([](T s) GCM_INLINED { return T(-s); }, a); }
template <class T, int N> GCM_FUNC vec<T, N> operator~(vec<T, N> a) { return gcm::map([](T s) GCM_INLINED { return T(~s); }, a); }
template <class T, int N> GCM_FUNC vec<bool, N> operator!(vec<T, N> a) { return gcm::map([](T s) GCM_INLINED { return !s; }, a); }

// The right side may be a scalar.
#define GCM_ASSIGN(op) \
  template <class T, int N, class B> GCM_FUNC auto operator op##=(vec<T, N>& a, const B& b)->decltype(a = a op b) { return a = a op b; }
GCM_ASSIGN(+) GCM_ASSIGN(-) GCM_ASSIGN(*) GCM_ASSIGN(/) GCM_ASSIGN(%) GCM_ASSIGN(&) GCM_ASSIGN(|) GCM_ASSIGN(^) GCM_ASSIGN(<<) GCM_ASSIGN(>>)
#undef GCM_ASSIGN
} // namespace metal

namespace gcm {
// A vector built from scalars and vectors, as its constructor does; for a scalar type a plain cast.
template <class V, class... A> GCM_FUNC V make(const A&... a) { return V(a...); }
} // namespace gcm
