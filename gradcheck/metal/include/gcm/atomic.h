// atomic<T> and its functions. Memory order is stronger here than asked for; the checker follows the program's own.
#pragma once
#include "gcm/fiber.h"

extern "C" {
enum gcm_atomic { GCM_ATOMIC_LOAD = 0, GCM_ATOMIC_STORE = 1, GCM_ATOMIC_CHANGE = 2 };
// Checked mode: an atomic access is about to happen. Also where a thread that spins is noticed.
void gcm_note_atomic(const volatile void* address, gcm_u64 bytes, gcm_u32 what);
}

namespace metal {

enum class mem_flags : unsigned int { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags((unsigned)a | (unsigned)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags((unsigned)a & (unsigned)b); }

enum memory_order { memory_order_relaxed = 0, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device, thread_scope_system };

GCM_INLINE void atomic_thread_fence(mem_flags, memory_order = memory_order_relaxed, thread_scope = thread_scope_device) { __atomic_thread_fence(5); }

template <class T>
struct atomic { T value; };
template <class T>
using _atomic = atomic<T>;
typedef atomic<int> atomic_int;
typedef atomic<unsigned int> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<unsigned long> atomic_ulong;

}  // namespace metal

namespace gcm {

template <class T> struct same { typedef T type; };  // keeps a parameter out of deduction

#ifdef GCM_CHECKED
#define GCM_NOTE(p, what) gcm_note_atomic(p, sizeof(*p), what)
#else
#define GCM_NOTE(p, what)
#endif

template <class T, class F>
GCM_INLINE T change(volatile metal::atomic<T>* p, F f) {
  GCM_NOTE(p, GCM_ATOMIC_CHANGE);
  T before, after;
  __atomic_load((T*)&p->value, &before, 5);
  do after = f(before);
  while (!__atomic_compare_exchange((T*)&p->value, &before, &after, true, 5, 5));
  return before;
}

}  // namespace gcm

namespace metal {

template <class T>
GCM_INLINE T atomic_load_explicit(const volatile atomic<T>* p, memory_order = memory_order_relaxed) {
  GCM_NOTE(p, GCM_ATOMIC_LOAD);
  T result;
  __atomic_load((T*)&p->value, &result, 5);
  return result;
}
template <class T>
GCM_INLINE void atomic_store_explicit(volatile atomic<T>* p, typename gcm::same<T>::type value, memory_order = memory_order_relaxed) {
  GCM_NOTE(p, GCM_ATOMIC_STORE);
  __atomic_store((T*)&p->value, &value, 5);
}
template <class T>
GCM_INLINE T atomic_exchange_explicit(volatile atomic<T>* p, typename gcm::same<T>::type value, memory_order = memory_order_relaxed) {
  GCM_NOTE(p, GCM_ATOMIC_CHANGE);
  T result;
  __atomic_exchange((T*)&p->value, &value, &result, 5);
  return result;
}
template <class T>
GCM_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, typename gcm::same<T>::type* expected, typename gcm::same<T>::type desired,
                                                       memory_order = memory_order_relaxed, memory_order = memory_order_relaxed) {
  GCM_NOTE(p, GCM_ATOMIC_CHANGE);
  return __atomic_compare_exchange((T*)&p->value, expected, &desired, false, 5, 5);
}
#define GCM_CHANGE(name, expression) \
  template <class T> \
  GCM_INLINE T atomic_fetch_##name##_explicit(volatile atomic<T>* p, typename gcm::same<T>::type x, memory_order = memory_order_relaxed) { \
    return gcm::change(p, [=](T a) { return (T)(expression); }); \
  }
GCM_CHANGE(add, a + x)
GCM_CHANGE(sub, a - x)
GCM_CHANGE(max, a > x ? a : x)
GCM_CHANGE(min, a < x ? a : x)
GCM_CHANGE(and, a & x)
GCM_CHANGE(or, a | x)
GCM_CHANGE(xor, a ^ x)
#undef GCM_CHANGE

}  // namespace metal
