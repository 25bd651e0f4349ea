// The part of the Metal standard library that kernels of recurrences use, in CUDA. Compiled by NVRTC, where every function is a device's.
#pragma once

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI_F
#define M_PI_F 3.14159274f
#endif

namespace metal {

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;

// Narrow floats: made from a number by a cast or an assignment, and a float in any arithmetic.
#define GCM_NARROW(NAME, STORED, NARROWED, WIDENED) \
  struct NAME { \
    STORED bits; \
    NAME() = default; \
    template <class T> \
    explicit NAME(T value) : bits(NARROWED(static_cast<float>(value))) {} \
    template <class T> \
    NAME& operator=(T value) { \
      bits = NARROWED(static_cast<float>(value)); \
      return *this; \
    } \
    operator float() const { return WIDENED(bits); } \
    NAME& operator+=(float other) { return *this = float(*this) + other; } \
    NAME& operator-=(float other) { return *this = float(*this) - other; } \
    NAME& operator*=(float other) { return *this = float(*this) * other; } \
    NAME& operator/=(float other) { return *this = float(*this) / other; } \
  };
GCM_NARROW(half, __half, __float2half_rn, __half2float)
GCM_NARROW(bfloat, __nv_bfloat16, __float2bfloat16_rn, __bfloat162float)
#undef GCM_NARROW
typedef half float16_t;
typedef bfloat bfloat16_t;

// Vectors.
template <class T, int N>
struct vec;
#define GCM_COMMON \
  vec() = default; \
  T& operator[](int i) { return (&x)[i]; } \
  const T& operator[](int i) const { return (&x)[i]; }
#define GCM_WITH(OP, EACH) \
  friend vec operator OP(vec a, vec b) { return EACH(OP); } \
  vec& operator OP##=(vec b) { return *this = *this OP b; }
#define GCM_EACH_2(OP) vec(a.x OP b.x, a.y OP b.y)
#define GCM_EACH_3(OP) vec(a.x OP b.x, a.y OP b.y, a.z OP b.z)
#define GCM_EACH_4(OP) vec(a.x OP b.x, a.y OP b.y, a.z OP b.z, a.w OP b.w)
#define GCM_ARITHMETIC(N) GCM_WITH(+, GCM_EACH_##N) GCM_WITH(-, GCM_EACH_##N) GCM_WITH(*, GCM_EACH_##N) GCM_WITH(/, GCM_EACH_##N)

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  GCM_COMMON
  vec(T a) : x(a), y(a) {}
  vec(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit vec(const vec<U, 2>& o) : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)) {}
  GCM_ARITHMETIC(2)
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  GCM_COMMON
  vec(T a) : x(a), y(a), z(a) {}
  vec(T a, T b, T c) : x(a), y(b), z(c) {}
  template <class U>
  explicit vec(const vec<U, 3>& o) : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)), z(static_cast<T>(o.z)) {}
  GCM_ARITHMETIC(3)
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  GCM_COMMON
  vec(T a) : x(a), y(a), z(a), w(a) {}
  vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  template <class U>
  explicit vec(const vec<U, 4>& o) : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)), z(static_cast<T>(o.z)), w(static_cast<T>(o.w)) {}
  GCM_ARITHMETIC(4)
};
#undef GCM_COMMON
#undef GCM_WITH
#undef GCM_EACH_2
#undef GCM_EACH_3
#undef GCM_EACH_4
#undef GCM_ARITHMETIC

#define GCM_VECTORS(T) \
  typedef vec<T, 2> T##2; \
  typedef vec<T, 3> T##3; \
  typedef vec<T, 4> T##4;
GCM_VECTORS(float)
GCM_VECTORS(half)
GCM_VECTORS(bfloat)
GCM_VECTORS(int)
GCM_VECTORS(uint)
GCM_VECTORS(short)
GCM_VECTORS(ushort)
GCM_VECTORS(char)
GCM_VECTORS(uchar)
#undef GCM_VECTORS

// Mathematics. In Metal a narrow argument is a float here, and so is the result.
#define GCM_UNARY(NAME, CUDA) \
  inline float NAME(float x) { return CUDA(x); }
#define GCM_ALL \
  GCM_UNARY(exp, ::expf) GCM_UNARY(exp2, ::exp2f) GCM_UNARY(exp10, ::exp10f) GCM_UNARY(log, ::logf) GCM_UNARY(log2, ::log2f) \
  GCM_UNARY(log10, ::log10f) GCM_UNARY(sqrt, ::sqrtf) GCM_UNARY(rsqrt, ::rsqrtf) GCM_UNARY(sin, ::sinf) GCM_UNARY(cos, ::cosf) \
  GCM_UNARY(tan, ::tanf) GCM_UNARY(tanh, ::tanhf) GCM_UNARY(sinh, ::sinhf) GCM_UNARY(cosh, ::coshf) GCM_UNARY(asin, ::asinf) \
  GCM_UNARY(acos, ::acosf) GCM_UNARY(atan, ::atanf) \
  inline float pow(float x, float y) { return ::powf(x, y); } \
  inline float divide(float x, float y) { return x / y; }
GCM_ALL
GCM_UNARY(floor, ::floorf)
GCM_UNARY(ceil, ::ceilf)
GCM_UNARY(trunc, ::truncf)
GCM_UNARY(round, ::roundf)
GCM_UNARY(rint, ::rintf)
namespace precise { GCM_ALL }
namespace fast { GCM_ALL }
#undef GCM_ALL
#undef GCM_UNARY
inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float fmod(float a, float b) { return ::fmodf(a, b); }
inline float copysign(float a, float b) { return ::copysignf(a, b); }
inline float fmax(float a, float b) { return ::fmaxf(a, b); }
inline float fmin(float a, float b) { return ::fminf(a, b); }
inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f; }
inline float fract(float x) { return x - ::floorf(x); }
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return x - x != 0 && x == x; }
inline bool isfinite(float x) { return x - x == 0; }

template <class A, class B>
inline auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
template <class A, class B>
inline auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
inline float max(float a, float b) { return ::fmaxf(a, b); }  // of a NaN and a number the number, as in Metal
inline float min(float a, float b) { return ::fminf(a, b); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return ::fabsf(x); }
inline float fabs(float x) { return ::fabsf(x); }
template <class T>
inline T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T>
inline T mix(T a, T b, T at) { return a + (b - a) * at; }
template <class T>
inline T select(T a, T b, bool second) { return second ? b : a; }
template <class T>
inline T dot(vec<T, 2> a, vec<T, 2> b) { return a.x * b.x + a.y * b.y; }
template <class T>
inline T dot(vec<T, 3> a, vec<T, 3> b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class T>
inline T dot(vec<T, 4> a, vec<T, 4> b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline uint popcount(uint x) { return ::__popc(x); }
inline uint clz(uint x) { return ::__clz(x); }
template <class To, class From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// Threads that wait for each other. A simdgroup is a warp.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
inline void threadgroup_barrier(mem_flags) { __syncthreads(); }
inline void simdgroup_barrier(mem_flags) { __syncwarp(); }

#define GCM_WARP 0xffffffffu
#define GCM_SHUFFLE(NAME, CUDA) \
  template <class T> \
  inline T NAME(T value, uint by) { return CUDA(GCM_WARP, value, by); } \
  inline half NAME(half value, uint by) { return half(CUDA(GCM_WARP, float(value), by)); } \
  inline bfloat NAME(bfloat value, uint by) { return bfloat(CUDA(GCM_WARP, float(value), by)); } \
  template <class T> \
  inline vec<T, 2> NAME(vec<T, 2> v, uint by) { return vec<T, 2>(NAME(v.x, by), NAME(v.y, by)); } \
  template <class T> \
  inline vec<T, 4> NAME(vec<T, 4> v, uint by) { return vec<T, 4>(NAME(v.x, by), NAME(v.y, by), NAME(v.z, by), NAME(v.w, by)); }
GCM_SHUFFLE(simd_shuffle, __shfl_sync)
GCM_SHUFFLE(simd_shuffle_down, __shfl_down_sync)
GCM_SHUFFLE(simd_shuffle_up, __shfl_up_sync)
GCM_SHUFFLE(simd_shuffle_xor, __shfl_xor_sync)
GCM_SHUFFLE(simd_broadcast, __shfl_sync)
#undef GCM_SHUFFLE
template <class T>
inline T simd_broadcast_first(T value) { return simd_shuffle(value, 0u); }

// The ascending butterfly: the order of additions that the CPU takes too.
#define GCM_REDUCE(NAME, EXPRESSION) \
  template <class T> \
  inline T NAME(T a) { \
    for (uint by = 1; by < 32; by <<= 1) { \
      const T b = simd_shuffle_xor(a, by); \
      a = T(EXPRESSION); \
    } \
    return a; \
  }
GCM_REDUCE(simd_sum, a + b)
GCM_REDUCE(simd_product, a * b)
GCM_REDUCE(simd_max, a > b ? a : b)
GCM_REDUCE(simd_min, a < b ? a : b)
GCM_REDUCE(simd_and, a & b)
GCM_REDUCE(simd_or, a | b)
GCM_REDUCE(simd_xor, a ^ b)
#undef GCM_REDUCE
inline uint gcm_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u; }
template <class T>
inline T simd_prefix_inclusive_sum(T value) {
  for (uint by = 1; by < 32; by <<= 1) {
    const T before = simd_shuffle_up(value, by);
    if (gcm_lane() >= by) value = T(before + value);
  }
  return value;
}
template <class T>
inline T simd_prefix_exclusive_sum(T value) {
  const T before = simd_shuffle_up(simd_prefix_inclusive_sum(value), 1u);
  return gcm_lane() == 0 ? T(0) : before;
}
inline bool simd_all(bool value) { return __all_sync(GCM_WARP, value); }
inline bool simd_any(bool value) { return __any_sync(GCM_WARP, value); }
inline bool simd_is_first() { return gcm_lane() == 0; }

// Atomics, which are relaxed.
enum memory_order { memory_order_relaxed = 0 };
template <class T>
struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
template <class T, class U>
inline T atomic_fetch_add_explicit(atomic<T>* p, U by, memory_order) { return atomicAdd(&p->value, static_cast<T>(by)); }
template <class T, class U>
inline T atomic_fetch_max_explicit(atomic<T>* p, U with, memory_order) { return atomicMax(&p->value, static_cast<T>(with)); }
template <class T, class U>
inline T atomic_fetch_min_explicit(atomic<T>* p, U with, memory_order) { return atomicMin(&p->value, static_cast<T>(with)); }
template <class T>
inline T atomic_load_explicit(const atomic<T>* p, memory_order) { return *const_cast<const volatile T*>(&p->value); }
template <class T, class U>
inline void atomic_store_explicit(atomic<T>* p, U value, memory_order) { *const_cast<volatile T*>(&p->value) = static_cast<T>(value); }

}  // namespace metal
