// bfloat as Metal has it: 16 bits, converts implicitly to float and to no other type; from float and half only by an explicit cast, which
// rounds to nearest even. bfloat op bfloat is a bfloat, rounded once; so is bfloat op integer; bfloat op float is a float.
// Clang's own __bf16 converts implicitly both ways, so it would accept kernels that Metal rejects.
#pragma once
#pragma clang system_header
#include "traits.h"

namespace gcm {
template <class T> using if_integral = metal::enable_if_t<__is_integral(T), int>;

GCM_FUNC uint16_t round_to_bfloat(float f) {
  const uint32_t u = __builtin_bit_cast(uint32_t, f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40); // a NaN stays one: rounding could carry it into infinity
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
} // namespace gcm

struct bfloat {
  uint16_t bits;

  bfloat() = default;
  template <class I, gcm::if_integral<I> = 0> GCM_FUNC bfloat(I v) : bits(gcm::round_to_bfloat(float(v))) {}
  GCM_FUNC explicit bfloat(float v) : bits(gcm::round_to_bfloat(v)) {}
  GCM_FUNC explicit bfloat(half v) : bits(gcm::round_to_bfloat(float(v))) {}

  // Templates, so that no standard conversion may follow (float -> int, float -> half): `c ? b : 0` is then a bfloat, not an int.
  template <class F, metal::enable_if_t<__is_same(F, float), int> = 0> GCM_FUNC operator F() const {
    return __builtin_bit_cast(float, uint32_t(bits) << 16);
  }
  template <class T, metal::enable_if_t<__is_integral(T) || __is_same(T, half), int> = 0> GCM_FUNC explicit operator T() const {
    return T(float(*this));
  }

  GCM_FUNC bfloat operator-() const { return as_type<bfloat>(uint16_t(bits ^ 0x8000)); }
  GCM_FUNC bfloat operator+() const { return *this; }
  GCM_FUNC bool operator!() const { return !(bits & 0x7fff); }

#define GCM_BFLOAT(op, result) \
  friend GCM_FUNC result operator op(bfloat a, bfloat b) { return result(float(a) op float(b)); } \
  template <class I, gcm::if_integral<I> = 0> friend GCM_FUNC result operator op(bfloat a, I b) { return a op bfloat(b); } \
  template <class I, gcm::if_integral<I> = 0> friend GCM_FUNC result operator op(I a, bfloat b) { return bfloat(a) op b; }
  GCM_BFLOAT(+, bfloat) GCM_BFLOAT(-, bfloat) GCM_BFLOAT(*, bfloat) GCM_BFLOAT(/, bfloat)
  GCM_BFLOAT(<, bool) GCM_BFLOAT(>, bool) GCM_BFLOAT(<=, bool) GCM_BFLOAT(>=, bool) GCM_BFLOAT(==, bool) GCM_BFLOAT(!=, bool)
#undef GCM_BFLOAT
  GCM_FUNC bfloat& operator+=(bfloat b) { return *this = *this + b; }
  GCM_FUNC bfloat& operator-=(bfloat b) { return *this = *this - b; }
  GCM_FUNC bfloat& operator*=(bfloat b) { return *this = *this * b; }
  GCM_FUNC bfloat& operator/=(bfloat b) { return *this = *this / b; }
  GCM_FUNC bfloat& operator++() { return *this += bfloat(1); }
  GCM_FUNC bfloat& operator--() { return *this -= bfloat(1); }
  GCM_FUNC bfloat operator++(int) { const bfloat old = *this; ++*this; return old; }
  GCM_FUNC bfloat operator--(int) { const bfloat old = *this; --*this; return old; }
};
static_assert(sizeof(bfloat) == 2 && alignof(bfloat) == 2);

// The literals 1.0bf: clang takes only some suffixes without an underscore, so rewrite.py writes them as 1.0_bf.
GCM_FUNC bfloat operator""_bf(long double v) { return bfloat(float(v)); }
GCM_FUNC bfloat operator""_bf(unsigned long long v) { return bfloat(v); }
