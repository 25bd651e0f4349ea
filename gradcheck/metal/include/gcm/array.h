// metal::array, and metal::uniform.
#pragma once
#pragma clang system_header
#include "traits.h"

namespace metal {
template <class T, size_t N> struct array {
  T elements[N];
  GCM_FUNC T& operator[](size_t i) { return elements[i]; }
  GCM_FUNC const T& operator[](size_t i) const { return elements[i]; }
  static GCM_FUNC size_t size() { return N; }
  GCM_FUNC T* data() { return elements; }
  GCM_FUNC const T* data() const { return elements; }
  GCM_FUNC T* begin() { return elements; }
  GCM_FUNC T* end() { return elements + N; }
  GCM_FUNC const T* begin() const { return elements; }
  GCM_FUNC const T* end() const { return elements + N; }
};
} // namespace metal

namespace metal {
// A value that is the same for all threads: a promise to Apple's compiler, and nothing here.
template <class T> using uniform = T;
template <class T> GCM_FUNC T make_uniform(T v) { return v; }
} // namespace metal
