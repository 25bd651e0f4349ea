// <metal_math>, <metal_common>, <metal_relational> and <metal_geometric>. Only what Metal has: no log1p, expm1, erf, hypot or cbrt (MLX's headers define
// some of them themselves), and nothing for double.
// half and bfloat are computed in float and rounded once. fast:: and precise:: are the same functions here, as Apple's bits are not known.
#pragma once
#pragma clang system_header
#include "limits.h"
#include "vector.h"

namespace gcm {
// The type a function of floats computes in, for one kind of argument: T for the floats and their vectors; for an integer, which Metal
// would convert, float. (A constant integer beside a float keeps the float's type.)
template <class T> using scalar_t = typename shape<T>::scalar;
template <class T> inline constexpr bool is_float = metal::is_floating_point_v<scalar_t<T>>;
template <class T, bool = is_float<T>, bool = __is_integral(T)> struct floats {};
template <class T, bool I> struct floats<T, true, I> { typedef typename shape<T>::type type; };
template <class T> struct floats<T, false, true> { typedef float type; };
template <class T> using floats_t = typename floats<T>::type;

// Of several arguments: all the same; or an integer gives way to a float; of two different float types, float; a scalar becomes a vector.
template <class A, class B> struct common_scalar { typedef float type; };
template <class A> struct common_scalar<A, A> { typedef A type; };
template <class A, class B> using common_scalar_t =
    metal::conditional_t<__is_integral(A) && !__is_integral(B), B, metal::conditional_t<__is_integral(B) && !__is_integral(A), A,
    metal::conditional_t<__is_integral(A) && __is_integral(B), metal::conditional_t<__is_same(A, B), A, decltype(0 ? A() : B())>, typename common_scalar<A, B>::type>>>;
template <class A, class B, bool = is_scalar<A> && is_scalar<B>, class = void> struct common {};
template <class A, class B> struct common<A, B, true> { typedef common_scalar_t<A, B> type; };
template <class A, class B> struct common<A, B, false, void_t<vector_of_t<A, B>>> { typedef vector_of_t<A, B> type; };
template <class A, class B> using common2_t = typename common<A, B>::type;
template <class A, class B, class C> using common3_t = common2_t<common2_t<A, B>, C>;

template <class... A> struct common_n;
template <class A> struct common_n<A> { typedef typename shape<A>::type type; };
template <class A, class B> struct common_n<A, B> { typedef common2_t<A, B> type; };
template <class A, class B, class C> struct common_n<A, B, C> { typedef common3_t<A, B, C> type; };
// The type that a function of these arguments returns: among floats …
template <class... A> using float_t = floats_t<typename common_n<A...>::type>;
// … among integers, and among both.
template <class T> inline constexpr bool is_integer = __is_integral(scalar_t<T>);
template <class... A> using integer_t = metal::enable_if_t<is_integer<typename common_n<A...>::type>, typename common_n<A...>::type>;
template <class T> using number = metal::enable_if_t<is_float<T> || is_integer<T>, T>;
template <class... A> using number_t = number<typename common_n<A...>::type>;

// F, which takes and gives floats, of each component in float; one rounding at the end.
template <class R, class F, class... A> GCM_FUNC R in_float(F f, const A&... a) {
  typedef scalar_t<R> S;
  return map([f](auto... s) GCM_INLINED { return S(f(float(s)...)); }, R(a)...);
}
// A number from 0 up to, and not including, 1.
template <class S> GCM_FUNC S below_one(float f) {
  const S s = S(f);
  return float(s) >= 1 ? S(1 - float(metal::numeric_limits<S>::epsilon()) / 2) : s;
}

// sin(pi x) and cos(pi x): the reduction to a quadrant is exact, so a large x costs no accuracy.
METAL_FUNC float sin_pi(float x) {
  const float within = __builtin_fmodf(x, 2.f), n = __builtin_rintf(2 * within), r = M_PI_F * (within - n / 2);
  const int quadrant = n - n == 0 ? int(n) & 3 : 0; // n is no number where x is none
  const float s = quadrant & 1 ? __builtin_cosf(r) : __builtin_sinf(r);
  return x == __builtin_truncf(x) ? within * 0 : quadrant & 2 ? -s : s;
}
METAL_FUNC float cos_pi(float x) {
  const float within = __builtin_fmodf(x, 2.f), n = __builtin_rintf(2 * within), r = M_PI_F * (within - n / 2);
  const int quadrant = n - n == 0 ? int(n) & 3 : 0;
  const float c = quadrant & 1 ? __builtin_sinf(r) : __builtin_cosf(r);
  return quadrant == 1 || quadrant == 2 ? -c : c;
}
METAL_FUNC float sign(float x) { return x > 0 ? 1.f : x < 0 ? -1.f : x == 0 ? x : 0.f; }
METAL_FUNC float smooth(float low, float high, float x) {
  const float t = __builtin_fminf(__builtin_fmaxf((x - low) / (high - low), 0.f), 1.f);
  return t * t * (3 - 2 * t);
}
} // namespace gcm

namespace metal {
#define GCM_FLOAT1(name, ...) \
  template <class A, class R = gcm::float_t<A>> GCM_FUNC R name(const A& a_) { return gcm::in_float<R>([](float x) GCM_INLINED { return __VA_ARGS__; }, a_); }
#define GCM_FLOAT2(name, ...) \
  template <class A, class B, class R = gcm::float_t<A, B>> GCM_FUNC R name(const A& a_, const B& b_) { \
    return gcm::in_float<R>([](float x, float y) GCM_INLINED { return __VA_ARGS__; }, a_, b_); \
  }
#define GCM_FLOAT3(name, ...) \
  template <class A, class B, class C, class R = gcm::float_t<A, B, C>> GCM_FUNC R name(const A& a_, const B& b_, const C& c_) { \
    return gcm::in_float<R>([](float x, float y, float z) GCM_INLINED { return __VA_ARGS__; }, a_, b_, c_); \
  }
GCM_FLOAT1(acos, __builtin_acosf(x))
GCM_FLOAT1(acosh, __builtin_acoshf(x))
GCM_FLOAT1(asin, __builtin_asinf(x))
GCM_FLOAT1(asinh, __builtin_asinhf(x))
GCM_FLOAT1(atan, __builtin_atanf(x))
GCM_FLOAT1(atanh, __builtin_atanhf(x))
GCM_FLOAT1(ceil, __builtin_ceilf(x))
GCM_FLOAT1(cos, __builtin_cosf(x))
GCM_FLOAT1(cosh, __builtin_coshf(x))
GCM_FLOAT1(cospi, gcm::cos_pi(x))
GCM_FLOAT1(exp, __builtin_expf(x))
GCM_FLOAT1(exp2, __builtin_exp2f(x))
GCM_FLOAT1(exp10, __builtin_powf(10.f, x))
GCM_FLOAT1(fabs, __builtin_fabsf(x))
GCM_FLOAT1(floor, __builtin_floorf(x))
GCM_FLOAT1(log, __builtin_logf(x))
GCM_FLOAT1(log2, __builtin_log2f(x))
GCM_FLOAT1(log10, __builtin_log10f(x))
GCM_FLOAT1(rint, __builtin_rintf(x))
GCM_FLOAT1(round, __builtin_roundf(x))
GCM_FLOAT1(rsqrt, 1 / __builtin_sqrtf(x))
GCM_FLOAT1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.f), 1.f))
GCM_FLOAT1(sign, gcm::sign(x))
GCM_FLOAT1(sin, __builtin_sinf(x))
GCM_FLOAT1(sinh, __builtin_sinhf(x))
GCM_FLOAT1(sinpi, gcm::sin_pi(x))
GCM_FLOAT1(sqrt, __builtin_sqrtf(x))
GCM_FLOAT1(tan, __builtin_tanf(x))
GCM_FLOAT1(tanh, __builtin_tanhf(x))
GCM_FLOAT1(tanpi, gcm::sin_pi(x) / gcm::cos_pi(x))
GCM_FLOAT1(trunc, __builtin_truncf(x))
GCM_FLOAT2(atan2, __builtin_atan2f(x, y))
GCM_FLOAT2(copysign, __builtin_copysignf(x, y))
GCM_FLOAT2(divide, x / y)
GCM_FLOAT2(fdim, x != x || y != y ? x + y : x > y ? x - y : 0.f)
GCM_FLOAT2(fmax, __builtin_fmaxf(x, y))
GCM_FLOAT2(fmin, __builtin_fminf(x, y))
GCM_FLOAT2(fmod, __builtin_fmodf(x, y))
GCM_FLOAT2(pow, __builtin_powf(x, y))
GCM_FLOAT2(powr, x < 0 ? __builtin_nanf("") : __builtin_powf(x, y))
GCM_FLOAT2(step, y < x ? 0.f : 1.f)
GCM_FLOAT3(fma, __builtin_fmaf(x, y, z))
GCM_FLOAT3(fmax3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
GCM_FLOAT3(fmin3, __builtin_fminf(x, __builtin_fminf(y, z)))
GCM_FLOAT3(fmedian3, __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))
GCM_FLOAT3(mix, x + (y - x) * z)
GCM_FLOAT3(smoothstep, gcm::smooth(x, y, z))
#undef GCM_FLOAT1
#undef GCM_FLOAT2
#undef GCM_FLOAT3

template <class A, class R = gcm::float_t<A>> GCM_FUNC R fract(const A& a) {
  return gcm::map([](auto s) GCM_INLINED { return gcm::below_one<decltype(s)>(float(s) - __builtin_floorf(float(s))); }, R(a));
}

// Predicates.
#define GCM_PREDICATE(name, ...) \
  template <class A, class R = gcm::floats_t<A>> GCM_FUNC auto name(const A& a_) { return gcm::map([](auto s) GCM_INLINED { const float x = float(s); return bool(__VA_ARGS__); }, R(a_)); }
GCM_PREDICATE(isnan, __builtin_isnan(x))
GCM_PREDICATE(isinf, __builtin_isinf(x))
GCM_PREDICATE(isfinite, __builtin_isfinite(x))
GCM_PREDICATE(isnormal, __builtin_isfinite(x) && __builtin_fabsf(x) >= float(numeric_limits<decltype(s)>::min()))
GCM_PREDICATE(signbit, __builtin_signbit(x))
#undef GCM_PREDICATE
template <class A, class B, class R = gcm::float_t<A, B>> GCM_FUNC auto isunordered(const A& a, const B& b) { return gcm::map([](auto x, auto y) GCM_INLINED { return bool(x != x || y != y); }, R(a), R(b)); }
template <class A, class B, class R = gcm::float_t<A, B>> GCM_FUNC auto isordered(const A& a, const B& b) { return !isunordered(a, b); }

GCM_FUNC bool any(bool b) { return b; }
GCM_FUNC bool all(bool b) { return b; }
template <int N> GCM_FUNC bool any(vec<bool, N> b) { bool r = b.get(0); for (int i = 1; i < N; i++) r = r | b.get(i); return r; }
template <int N> GCM_FUNC bool all(vec<bool, N> b) { bool r = b.get(0); for (int i = 1; i < N; i++) r = r & b.get(i); return r; }

// b where the condition holds, else a; of vectors by component.
template <class A, class B, class R = gcm::number_t<A, B>> GCM_FUNC R select(const A& a, const B& b, bool c) { return c ? R(b) : R(a); }
template <class A, class B, int N, class R = gcm::number_t<A, B>> GCM_FUNC R select(const A& a, const B& b, vec<bool, N> c) {
  return gcm::map([](auto x, auto y, bool which) GCM_INLINED { return which ? y : x; }, R(a), R(b), c);
}

// Metal's fast and relaxed forms of max and min give way to a number where one is NaN, as fmax and fmin do.
#define GCM_EXTREME(name, op) \
  template <class A, class B, class R = gcm::number_t<A, B>> GCM_FUNC R name(const A& a_, const B& b_) { \
    if constexpr (gcm::is_float<R>) return f##name(R(a_), R(b_)); \
    else return gcm::map([](auto x, auto y) GCM_INLINED { return x op y ? x : y; }, R(a_), R(b_)); \
  } \
  template <class A, class B, class C, class R = gcm::number_t<A, B, C>> GCM_FUNC R name##3(const A& a, const B& b, const C& c) { return name(name(R(a), R(b)), R(c)); }
GCM_EXTREME(max, >)
GCM_EXTREME(min, <)
#undef GCM_EXTREME
template <class A, class B, class C, class R = gcm::number_t<A, B, C>> GCM_FUNC R median3(const A& a, const B& b, const C& c) {
  return max(min(R(a), R(b)), min(max(R(a), R(b)), R(c)));
}
template <class A, class B, class C, class R = gcm::number_t<A, B, C>> GCM_FUNC R clamp(const A& x, const B& low, const C& high) { return min(max(R(x), R(low)), R(high)); }
// The lowest integer has no positive counterpart and stays itself.
template <class A, class R = gcm::number_t<A>> GCM_FUNC R abs(const A& a) {
  if constexpr (gcm::is_float<R>) return fabs(R(a));
  else return gcm::map([](auto s) GCM_INLINED { return s < 0 ? decltype(s)(-make_unsigned_t<decltype(s)>(s)) : s; }, R(a));
}

// Exponents and fractions.
template <class A> using gcm_int_t = gcm::like_t<int, gcm::floats_t<A>>;
template <class A, class K, class R = gcm::floats_t<A>> GCM_FUNC R ldexp(const A& a, const K& k) {
  return gcm::map([](auto s, int e) GCM_INLINED { return decltype(s)(__builtin_ldexpf(float(s), e)); }, R(a), gcm_int_t<A>(k));
}
template <class A> GCM_FUNC gcm_int_t<A> ilogb(const A& a) {
  return gcm::map([](auto s) GCM_INLINED { const float x = float(s); return x == 0 || x != x ? FP_ILOGB0 : __builtin_isinf(x) ? INT_MAX : __builtin_ilogbf(x); }, gcm::floats_t<A>(a));
}
template <class A, class R = gcm::floats_t<A>> METAL_FUNC R frexp(const A& a, gcm_int_t<A>& exponent) {
  exponent = gcm::map([](auto s) GCM_INLINED { int e = 0; __builtin_frexpf(float(s), &e); return float(s) - float(s) == 0 ? e : 0; }, R(a));
  return gcm::map([](auto s) GCM_INLINED { int e = 0; return decltype(s)(__builtin_frexpf(float(s), &e)); }, R(a));
}
template <class A, class R = gcm::floats_t<A>> METAL_FUNC R modf(const A& a, R& whole) {
  whole = trunc(R(a));
  return gcm::map([](auto s) GCM_INLINED { const float x = float(s); return decltype(s)(__builtin_copysignf(__builtin_isinf(x) ? 0.f : x - __builtin_truncf(x), x)); }, R(a));
}
template <class A, class R = gcm::floats_t<A>> METAL_FUNC R sincos(const A& a, R& cosine) {
  cosine = cos(R(a));
  return sin(R(a));
}
// The next number of its own type towards the other.
template <class A, class B, class R = gcm::float_t<A, B>> GCM_FUNC R nextafter(const A& a, const B& b) {
  return gcm::map([](auto x, auto y) GCM_INLINED {
    typedef decltype(x) S;
    typedef conditional_t<sizeof(S) == 2, uint16_t, uint32_t> B_;
    if (x != x || y != y) return S(numeric_limits<S>::quiet_NaN());
    if (x == y) return y;
    const B_ bits = as_type<B_>(x), top = B_(B_(1) << (8 * sizeof(S) - 1));
    if (x == S(0)) return as_type<S>(B_(1 | (y < x ? top : B_(0))));
    return as_type<S>(B_(((x < y) == !(bits & top)) ? bits + 1 : bits - 1));
  }, R(a), R(b));
}

// Geometry: of vectors of floats; computed in float, rounded once.
namespace gcm_geometry {
template <class V> METAL_FUNC float dot(const V& a, const V& b) {
  float sum = float(a.get(0)) * float(b.get(0));
  for (int i = 1; i < gcm::shape<V>::lanes; i++) sum += float(a.get(i)) * float(b.get(i));
  return sum;
}
} // namespace gcm_geometry
template <class A, class B> using gcm_space_t = enable_if_t<gcm::is_float<gcm::vector_of_t<gcm::vector_t<A>, gcm::vector_t<B>>>, gcm::vector_of_t<A, B>>;
template <class A, class B, class V = gcm_space_t<A, B>> METAL_FUNC gcm::scalar_t<V> dot(const A& a, const B& b) { return gcm::scalar_t<V>(gcm_geometry::dot<V>(V(a), V(b))); }
template <class A, class V = gcm_space_t<A, A>> METAL_FUNC gcm::scalar_t<V> length_squared(const A& a) { return dot(a, a); }
template <class A, class V = gcm_space_t<A, A>> METAL_FUNC gcm::scalar_t<V> length(const A& a) { return gcm::scalar_t<V>(__builtin_sqrtf(gcm_geometry::dot<V>(V(a), V(a)))); }
template <class A, class B, class V = gcm_space_t<A, B>> METAL_FUNC gcm::scalar_t<V> distance(const A& a, const B& b) { return length(V(a) - V(b)); }
template <class A, class B, class V = gcm_space_t<A, B>> METAL_FUNC gcm::scalar_t<V> distance_squared(const A& a, const B& b) { return length_squared(V(a) - V(b)); }
template <class A, class V = gcm_space_t<A, A>> METAL_FUNC V normalize(const A& a) {
  const float scale = 1 / __builtin_sqrtf(gcm_geometry::dot<V>(V(a), V(a)));
  return gcm::in_float<V>([scale](float x) GCM_INLINED { return x * scale; }, a);
}
template <class A, class B, class V = gcm_space_t<A, B>> METAL_FUNC V cross(const A& a_, const B& b_) {
  static_assert(gcm::shape<V>::lanes == 3, "cross: the vectors must have three components");
  typedef vec<float, 3> F;
  const F a(V(a_).x, V(a_).y, V(a_).z), b(V(b_).x, V(b_).y, V(b_).z);
  return V(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class A, class B, class V = gcm_space_t<A, B>> METAL_FUNC V reflect(const A& i, const B& n) { return V(i) - gcm::scalar_t<V>(2) * dot(V(n), V(i)) * V(n); }
template <class A, class V = gcm_space_t<A, A>> METAL_FUNC V faceforward(const A& n, const A& i, const A& reference) { return float(dot(reference, i)) < 0 ? V(n) : -V(n); }

#define GCM_ALSO(f) using metal::f;
#define GCM_BOTH \
  GCM_ALSO(abs) GCM_ALSO(acos) GCM_ALSO(acosh) GCM_ALSO(asin) GCM_ALSO(asinh) GCM_ALSO(atan) GCM_ALSO(atan2) GCM_ALSO(atanh) GCM_ALSO(ceil) GCM_ALSO(clamp) \
  GCM_ALSO(copysign) GCM_ALSO(cos) GCM_ALSO(cosh) GCM_ALSO(cospi) GCM_ALSO(cross) GCM_ALSO(distance) GCM_ALSO(distance_squared) GCM_ALSO(divide) GCM_ALSO(dot) \
  GCM_ALSO(exp) GCM_ALSO(exp10) GCM_ALSO(exp2) GCM_ALSO(fabs) GCM_ALSO(fdim) GCM_ALSO(floor) GCM_ALSO(fma) GCM_ALSO(fmax) GCM_ALSO(fmax3) GCM_ALSO(fmedian3) \
  GCM_ALSO(fmin) GCM_ALSO(fmin3) GCM_ALSO(fmod) GCM_ALSO(fract) GCM_ALSO(frexp) GCM_ALSO(ilogb) GCM_ALSO(isfinite) GCM_ALSO(isinf) GCM_ALSO(isnan) GCM_ALSO(isnormal) \
  GCM_ALSO(ldexp) GCM_ALSO(length) GCM_ALSO(length_squared) GCM_ALSO(log) GCM_ALSO(log10) GCM_ALSO(log2) GCM_ALSO(max) GCM_ALSO(max3) GCM_ALSO(median3) GCM_ALSO(min) \
  GCM_ALSO(min3) GCM_ALSO(mix) GCM_ALSO(modf) GCM_ALSO(nextafter) GCM_ALSO(normalize) GCM_ALSO(pow) GCM_ALSO(powr) GCM_ALSO(rint) GCM_ALSO(round) GCM_ALSO(rsqrt) \
  GCM_ALSO(saturate) GCM_ALSO(sign) GCM_ALSO(sin) GCM_ALSO(sincos) GCM_ALSO(sinh) GCM_ALSO(sinpi) GCM_ALSO(smoothstep) GCM_ALSO(sqrt) GCM_ALSO(step) GCM_ALSO(tan) \
  GCM_ALSO(tanh) GCM_ALSO(tanpi) GCM_ALSO(trunc)
namespace fast { GCM_BOTH }
namespace precise { GCM_BOTH }
#undef GCM_BOTH
#undef GCM_ALSO
} // namespace metal
