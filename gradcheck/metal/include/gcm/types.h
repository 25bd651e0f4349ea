// Metal's scalar types, address spaces and function qualifiers in the words of clang.
// Nothing of libc or libstdc++ is included anywhere in these headers: they are parsed once per compiled kernel.
// Flags they count on: -std=c++17 -fdeclspec -fsigned-char -Xclang -cl-single-precision-constant -Xclang -ffloat16-excess-precision=none
#pragma once
#pragma clang system_header // warnings are for the kernel's own text

#if defined(__METAL__)
#error "gradcheck's Metal headers are for a host C++ compiler; Apple's Metal compiler has its own"
#endif
#define __METAL__ 1
#define __METAL_VERSION__ 320
#define __HAVE_BFLOAT__ 1

// On a CPU there is one address space, so the words vanish; -DGCM_LINT gives each its own, so that clang -fsyntax-only rejects a mix-up.
// A threadgroup variable is more than a qualified one: rewrite.py turns its declaration into storage of the threadgroup.
#ifdef GCM_LINT
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant
#define threadgroup
#endif
#define thread
#define kernel

#define METAL_FUNC inline __attribute__((always_inline))
#define GCM_INLINED __attribute__((always_inline)) // of a lambda
#define GCM_FUNC GCM_INLINED constexpr

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef long int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef _Float16 half;

static_assert(sizeof(long) == 8 && sizeof(void*) == 8, "Metal's long has 64 bits: a 64-bit Linux or macOS target is needed");
static_assert(char(-1) < 0, "Metal's char is signed: compile with -fsigned-char");

// The literals 1.0h and 1h. Clang takes H only with an underscore: rewrite.py writes 1.0H as 1.0_h, and 1.0bf, of bfloat.h, as 1.0_bf.
GCM_FUNC half operator""h(long double v) { return half(v); }
GCM_FUNC half operator""h(unsigned long long v) { return half(v); }
GCM_FUNC half operator""_h(long double v) { return half(v); }
GCM_FUNC half operator""_h(unsigned long long v) { return half(v); }

// The same bits as another type.
template <class To, class From> GCM_FUNC To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type: the two types differ in size");
  if constexpr (__is_trivially_copyable(To) && __is_trivially_copyable(From)) return __builtin_bit_cast(To, from);
  else {  // a vector, in checked mode
    To to{};
    __builtin_memcpy((void*)&to, (const void*)&from, sizeof(To));
    return to;
  }
}
namespace metal {
using ::as_type;
}
