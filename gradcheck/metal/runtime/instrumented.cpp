// What code compiled with -fsanitize=thread calls before each access to memory. The library is linked without the sanitizer: these are ours.
#include <cstring>

#include "shadow.h"

// Everything but the common cases, which are written so that they need no stack of their own.
template <gcm_u32 n, bool write, bool aligned>
__attribute__((noinline)) static void accessed_slowly(char* address, gcm_u64 place) {
  if (!in_launch()) return;
  const Touch touch = {address, n, place, gcm::self(), write, false};
  if (checker.fuel < 0) tick(touch);
  if (aligned && (gcm_u64)address % n != 0) misaligned(touch);
  touch_slowly(touch);
}

template <gcm_u32 n, bool write, bool aligned>
__attribute__((noinline)) static void accessed_cells(char* address, gcm_u64 place) {
  const Recent& recent = recent_of(n, place);
  const gcm_u32 me = (gcm_u32)(stack_pointer() / GCM_STACK_BYTES % (GCM_REGION_BYTES / GCM_STACK_BYTES)) - GCM_FIRST_SLOT;
  if (!touch_quickly<write>(recent, (gcm_u64)(address - recent.low), n, place, me)) accessed_slowly<n, write, aligned>(address, place);
}

template <gcm_u32 n, bool write, bool aligned>
__attribute__((always_inline)) static inline void accessed(char* address, gcm_u64 place) {
  if (((gcm_u64)address ^ stack_pointer()) < GCM_STACK_BYTES) return;  // its own private memory
  const Recent& recent = recent_of(n, place);
  const gcm_u64 offset = (gcm_u64)(address - recent.low);
  const bool known = offset < recent.starts && !(aligned && (gcm_u64)address % n);
  if (__builtin_expect(--checker.fuel >= 0 && known, 1)) {
    if (recent.cells) return accessed_cells<n, write, aligned>(address, place);
    if (!write) return;
  }
  accessed_slowly<n, write, aligned>(address, place);
}

#define PLACE ((gcm_u64)__builtin_return_address(0))
#define SIZE(n) \
  GCM_EXPORT void __tsan_read##n(void* p) { accessed<n, false, true>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_write##n(void* p) { accessed<n, true, true>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_read_write##n(void* p) { \
    accessed<n, false, true>((char*)p, PLACE); \
    accessed<n, true, true>((char*)p, PLACE); \
  } \
  GCM_EXPORT void __tsan_volatile_read##n(void* p) { accessed<n, false, true>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_volatile_write##n(void* p) { accessed<n, true, true>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_unaligned_read##n(void* p) { accessed<n, false, false>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_unaligned_write##n(void* p) { accessed<n, true, false>((char*)p, PLACE); } \
  GCM_EXPORT void __tsan_unaligned_read_write##n(void* p) { \
    accessed<n, false, false>((char*)p, PLACE); \
    accessed<n, true, false>((char*)p, PLACE); \
  }
SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16)

static void range(const void* p, gcm_u64 bytes, bool write, gcm_u64 place) {
  if (!in_launch()) return;
  const Touch touch = {(char*)p, bytes, place, gcm::self(), write, false};
  if (--checker.fuel < 0) tick(touch);
  touch_slowly(touch);
}

GCM_EXPORT void __tsan_read_range(void* p, gcm_u64 n) { range(p, n, false, PLACE); }
GCM_EXPORT void __tsan_write_range(void* p, gcm_u64 n) { range(p, n, true, PLACE); }
GCM_EXPORT void* __tsan_memcpy(void* to, const void* from, gcm_u64 n) {
  range(from, n, false, PLACE);
  range(to, n, true, PLACE);
  return memcpy(to, from, n);
}
GCM_EXPORT void* __tsan_memmove(void* to, const void* from, gcm_u64 n) {
  range(from, n, false, PLACE);
  range(to, n, true, PLACE);
  return memmove(to, from, n);
}
GCM_EXPORT void* __tsan_memset(void* to, int value, gcm_u64 n) {
  range(to, n, true, PLACE);
  return memset(to, value, n);
}
GCM_EXPORT void __tsan_init() {}
GCM_EXPORT void __tsan_func_entry(void*) {}
GCM_EXPORT void __tsan_func_exit() {}
GCM_EXPORT void __tsan_vptr_update(void**, void*) {}
GCM_EXPORT void __tsan_vptr_read(void**) {}

// A thread that reads the same atomic over and over waits for another one: that gets its turn, and when none changes anything it is a deadlock.
static void look_for_spinning(const Touch& touch) {
  constexpr gcm_u32 patience = 4096, rounds = 1024;
  static struct {
    const gcm_fiber* self;
    const char* address;
    gcm_u64 value;
    gcm_u32 times;
  } last;
  gcm_u64 value = 0;
  memcpy(&value, touch.address, touch.bytes < 8 ? touch.bytes : 8);
  if (last.self != touch.self || last.address != touch.address || last.value != value) last = {touch.self, touch.address, value, 0};
  if (++last.times < patience) return;
  last.times = 0;
  if (++checker.worker->fruitless > rounds) deadlock(touch);
  run_another(*checker.worker, touch.self);
}

GCM_EXPORT void gcm_note_atomic(const volatile void* p, gcm_u64 bytes, gcm_u32 what) {
  if (!in_launch()) return;
  const Touch touch = {(char*)p, bytes, PLACE, gcm::self(), what != 0, true};
  if (--checker.fuel < 0) tick(touch);
  touch_slowly(touch);
  look_for_spinning(touch);
}
