// Kernels written by hand as rewrite.py would have written them: `KERNEL(name)` is the body for one thread.
#include "gcm/execution.h"
using namespace metal;
static inline float larger(float a, float b) { return a > b ? a : b; }

// What the entry that unit.py writes does: the kernel is watched, the entry is not.
#define KERNEL(name) \
  static void name##_body(const float* in, float* out, void* const* buffers, uint tid, uint gid, uint group, uint lane); \
  extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void name(void* const* buffers, gcm_thread* self) { \
    name##_body((const float*)buffers[0], (float*)buffers[1], buffers, self->index_in_threadgroup, self->position_in_grid.x, self->threadgroup_position.x, self->lane); \
  } \
  __attribute__((noinline)) static void name##_body([[maybe_unused]] const float* in, [[maybe_unused]] float* out, [[maybe_unused]] void* const* buffers, [[maybe_unused]] uint tid, \
                                                    [[maybe_unused]] uint gid, [[maybe_unused]] uint group, [[maybe_unused]] uint lane)

#define LOOP(mark, head) \
  { \
    gcm::loop_mark mark; \
    head { \
      mark.tick();
#define END } }
#define SHARED(T, name) auto& name = *gcm::threadgroup_variable<T, struct gcm_tag_##name>(#name)

template <int... k> struct int_list {};
template <int n, int... k> struct int_range : int_range<n - 1, n - 1, k...> {};
template <int... k> struct int_range<0, k...> { typedef int_list<k...> type; };
