// numeric_limits of every Metal scalar, and the constants of <metal_math> and <metal_limits>. In float: M_PI_F; in half: M_PI_H; in bfloat: M_PI_BF.
#pragma once
#pragma clang system_header
#include "bfloat.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VALH half(__builtin_inff())
#define MAXFLOAT 3.402823466e+38f
#define MAXHALF half(65504.0f)

#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul

#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#define FLT_MAX_10_EXP 38
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MIN_EXP (-125)
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_RADIX 2
#define HALF_MAX_10_EXP 4
#define HALF_MAX_EXP 16
#define HALF_MIN_10_EXP (-4)
#define HALF_MIN_EXP (-13)
#define HALF_MAX half(0x1.ffcp15f)
#define HALF_MIN half(0x1p-14f)
#define HALF_EPSILON half(0x1p-10f)
#define BFLT_DIG 2
#define BFLT_MANT_DIG 8
#define BFLT_MAX bfloat(0x1.fep127f)
#define BFLT_MIN bfloat(0x1p-126f)
#define BFLT_EPSILON bfloat(0x1p-7f)

#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN (-2147483647 - 1)

// The values are pi, e, … to more digits than any of the types holds; each is rounded once.
#define M_E_F 2.718281828459045235360287f
#define M_LOG2E_F 1.442695040888963407359925f
#define M_LOG10E_F 0.434294481903251827651129f
#define M_LN2_F 0.693147180559945309417232f
#define M_LN10_F 2.302585092994045684017991f
#define M_PI_F 3.141592653589793238462643f
#define M_PI_2_F 1.570796326794896619231322f
#define M_PI_4_F 0.785398163397448309615661f
#define M_1_PI_F 0.318309886183790671537768f
#define M_2_PI_F 0.636619772367581343075535f
#define M_2_SQRTPI_F 1.128379167095512573896159f
#define M_SQRT2_F 1.414213562373095048801689f
#define M_SQRT1_2_F 0.707106781186547524400845f
#define M_E_H half(M_E_F)
#define M_LOG2E_H half(M_LOG2E_F)
#define M_LOG10E_H half(M_LOG10E_F)
#define M_LN2_H half(M_LN2_F)
#define M_LN10_H half(M_LN10_F)
#define M_PI_H half(M_PI_F)
#define M_PI_2_H half(M_PI_2_F)
#define M_PI_4_H half(M_PI_4_F)
#define M_1_PI_H half(M_1_PI_F)
#define M_2_PI_H half(M_2_PI_F)
#define M_2_SQRTPI_H half(M_2_SQRTPI_F)
#define M_SQRT2_H half(M_SQRT2_F)
#define M_SQRT1_2_H half(M_SQRT1_2_F)
#define M_E_BF bfloat(M_E_F)
#define M_LOG2E_BF bfloat(M_LOG2E_F)
#define M_LOG10E_BF bfloat(M_LOG10E_F)
#define M_LN2_BF bfloat(M_LN2_F)
#define M_LN10_BF bfloat(M_LN10_F)
#define M_PI_BF bfloat(M_PI_F)
#define M_PI_2_BF bfloat(M_PI_2_F)
#define M_PI_4_BF bfloat(M_PI_4_F)
#define M_1_PI_BF bfloat(M_1_PI_F)
#define M_2_PI_BF bfloat(M_2_PI_F)
#define M_2_SQRTPI_BF bfloat(M_2_SQRTPI_F)
#define M_SQRT2_BF bfloat(M_SQRT2_F)
#define M_SQRT1_2_BF bfloat(M_SQRT1_2_F)

namespace gcm {
struct no_limits { static constexpr bool is_specialized = false; };

template <class T> struct integer_limits {
  static constexpr bool is_specialized = true, is_integer = true, is_exact = true, is_signed = T(-1) < T(0);
  static constexpr bool has_infinity = false, has_quiet_NaN = false;
  static constexpr int radix = 2, digits = 8 * sizeof(T) - is_signed, digits10 = digits * 30103 / 100000;
  static constexpr T min() { return is_signed ? T(1ul << digits) : T(0); }
  static constexpr T max() { return T(~0ul >> (64 - digits)); }
  static constexpr T lowest() { return min(); }
  static constexpr T epsilon() { return T(0); }
  static constexpr T infinity() { return T(0); }
  static constexpr T quiet_NaN() { return T(0); }
};

// A binary format by its bits: B is an integer of its size, M the bits of its fraction.
template <class T, class B, int M, int Digits10, int MaxExponent> struct float_limits {
  static constexpr bool is_specialized = true, is_integer = false, is_exact = false, is_signed = true, is_iec559 = true;
  static constexpr bool has_infinity = true, has_quiet_NaN = true, has_denorm = true;
  static constexpr int radix = 2, digits = M + 1, digits10 = Digits10, max_exponent = MaxExponent, min_exponent = 3 - MaxExponent;
  static constexpr T infinity() { return as_type<T>(B((B(2) << (8 * sizeof(B) - M - 2)) - 1 << M)); }
  static constexpr T quiet_NaN() { return as_type<T>(B(as_type<B>(infinity()) | B(B(1) << (M - 1)))); }
  static constexpr T signaling_NaN() { return as_type<T>(B(as_type<B>(infinity()) | B(B(1) << (M - 2)))); }
  static constexpr T max() { return as_type<T>(B(as_type<B>(infinity()) - 1)); }
  static constexpr T lowest() { return -max(); }
  static constexpr T min() { return as_type<T>(B(B(1) << M)); }
  static constexpr T denorm_min() { return as_type<T>(B(1)); }
  static constexpr T epsilon() { return as_type<T>(B(B(MaxExponent - 1 - M) << M)); }
  static constexpr T round_error() { return T(0.5f); }
};
} // namespace gcm

namespace metal {
template <class T> struct numeric_limits : gcm::no_limits {};
template <class T> struct numeric_limits<const T> : numeric_limits<T> {};
template <class T> struct numeric_limits<volatile T> : numeric_limits<T> {};
template <> struct numeric_limits<bool> : gcm::integer_limits<bool> {
  static constexpr int digits = 1, digits10 = 0;
  static constexpr bool min() { return false; }
  static constexpr bool max() { return true; }
  static constexpr bool lowest() { return false; }
};
template <> struct numeric_limits<char> : gcm::integer_limits<char> {};
template <> struct numeric_limits<signed char> : gcm::integer_limits<signed char> {};
template <> struct numeric_limits<uchar> : gcm::integer_limits<uchar> {};
template <> struct numeric_limits<short> : gcm::integer_limits<short> {};
template <> struct numeric_limits<ushort> : gcm::integer_limits<ushort> {};
template <> struct numeric_limits<int> : gcm::integer_limits<int> {};
template <> struct numeric_limits<uint> : gcm::integer_limits<uint> {};
template <> struct numeric_limits<long> : gcm::integer_limits<long> {};
template <> struct numeric_limits<ulong> : gcm::integer_limits<ulong> {};
template <> struct numeric_limits<half> : gcm::float_limits<half, uint16_t, 10, 3, 16> {};
template <> struct numeric_limits<bfloat> : gcm::float_limits<bfloat, uint16_t, 7, 2, 128> {};
template <> struct numeric_limits<float> : gcm::float_limits<float, uint32_t, 23, 6, 128> {};
} // namespace metal
