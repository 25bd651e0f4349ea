// One GPU thread as a fiber, its simdgroup, and how one fiber hands the core to another. Shared by kernels and runtime.
//
// Kernel code finds its fiber without thread-local storage: stacks lie in a region aligned to its own size, so that the stack pointer
// tells the region, the slot in it, and with that the fiber's record, which is kept away from the stacks so as to spread over the cache.
#pragma once
#include "gcm/abi.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GCM_CHECKED 1
#endif
#endif
#ifdef GCM_CHECKED
// The checker watches the kernel, not the machinery that runs it.
#define GCM_RUNTIME __attribute__((noinline, no_sanitize("thread", "undefined")))
#else
#define GCM_RUNTIME inline __attribute__((always_inline))
#endif
// Parts of it that are always inlined: only into each other when checked, since what is inlined into the kernel is watched like the kernel.
#define GCM_INNER inline __attribute__((always_inline, no_sanitize("thread", "undefined")))
#define GCM_INLINE inline __attribute__((always_inline))
#define GCM_UNWATCHED __attribute__((no_sanitize("thread", "undefined")))
#define GCM_OUTLINED __attribute__((noinline, no_sanitize("thread", "undefined")))

#define GCM_STACK_BYTES 0x10000ul
#define GCM_REGION_BYTES 0x8000000ul
#define GCM_FIBER_BYTES 256ul
#define GCM_FIRST_SLOT 8u  // slots before it hold the fibers' records
#define GCM_MOST_THREADS 1024u
#define GCM_LANES 32u

struct gcm_fiber;
struct gcm_simdgroup;

// Serves a collective for the lanes in `mask`: reads what each has put into its `value` and `argument`, writes each one's result.
typedef void (*gcm_resolver)(gcm_simdgroup* group, gcm_u32 mask);

namespace gcm { struct loop_mark; }

struct alignas(64) gcm_fiber {
  gcm_thread place;  // first: kernels are given a pointer to it
  // All that a switch touches, in one cache line.
  alignas(64) void* stack;
  void* frame;
  void* base;
  void* resume;
  gcm_fiber* next;  // the lane that runs after this one
  gcm_simdgroup* group;
  gcm_u64 stamp;  // a number for the iterations of the marked loops that this thread is in
  gcm_u32 bit;    // 1 << lane
  gcm_u32 argument;
  unsigned char value[32];
  // What it waits for, where not all lanes of its simdgroup wait for the same.
  gcm_u64 key;
  gcm_resolver resolve;
  const gcm::loop_mark* loops;
  gcm_u32 site, unused;
};
static_assert(sizeof(gcm_fiber) == GCM_FIBER_BYTES, "slot arithmetic relies on it");

#define GCM_UNEVEN (1ul << 63)  // in `waiting`: lanes do not all do the same, the runtime decides

struct alignas(64) gcm_simdgroup {
  gcm_u64 waiting;  // lanes that have arrived at the collective `key`, while all lanes do the same
  gcm_u64 live;     // lanes that have not returned
  gcm_u64 key;
  gcm_resolver resolve;
  gcm_fiber* lanes;  // lane 0
  long fuel;         // collectives until the runtime wants to be asked
  gcm_u32 site, order;
  // The runtime's own: lanes by what they do once `waiting` has GCM_UNEVEN.
  gcm_u32 ready, apart, at_barrier, members;
  gcm_fiber* first;
  gcm_u64 priority;
  long fuelled;
  gcm_u32 stale, index;                    // stale: `next` still goes through lanes that have returned
  gcm_u32 clock_device, clock_threadgroup, clock_any, barrier_site;  // checked mode: when a simdgroup_barrier last ordered what
};

extern "C" {
// A lane arrives where its simdgroup is not even, or wants something else than the lanes before it. Returns when it is served.
void gcm_wait(gcm_fiber* self, gcm_u64 key, gcm_u32 site, gcm_resolver resolve);
// All lanes of a simdgroup are served, and its fuel is used up.
void gcm_served(gcm_fiber* self);
void gcm_wait_barrier(gcm_fiber* self, gcm_u32 flags, gcm_u32 site);
void* gcm_threadgroup_memory(gcm_fiber* self, const void* variable, gcm_u64 bytes, gcm_u64 align, const char* name, gcm_u32 site);
void gcm_lane_missing(gcm_simdgroup* group, gcm_u32 lane, gcm_u32 wanted);
void gcm_order_simdgroup(gcm_simdgroup* group, gcm_u32 mask);
}

namespace gcm {

GCM_INNER gcm_fiber* self() {
  gcm_u64 stack;
#if defined(__x86_64__)
  __asm__("movq %%rsp, %0" : "=r"(stack));
#elif defined(__aarch64__)
  __asm__("mov %0, sp" : "=r"(stack));
#else
#error "fibers are written for x86-64 and aarch64"
#endif
  return (gcm_fiber*)((stack & ~(GCM_REGION_BYTES - 1)) + stack / GCM_STACK_BYTES % (GCM_REGION_BYTES / GCM_STACK_BYTES) * GCM_FIBER_BYTES);
}

// Leaves `from` and goes on in `to`; returns `from`, once somebody goes on there (who has it at hand as their `to`). Every register is declared lost, so the compiler saves
// those in use and no others; the three that it may not lose are kept by hand.
GCM_INNER gcm_fiber* switch_fiber(gcm_fiber* from, gcm_fiber* to) {
#if defined(__x86_64__)
  __asm__ volatile(
      "leaq 1f(%%rip), %%rcx\n\t"
      "movq %%rsp, 128(%%rax)\n\tmovq %%rbp, 136(%%rax)\n\tmovq %%rbx, 144(%%rax)\n\tmovq %%rcx, 152(%%rax)\n\t"
      "movq 128(%%rdx), %%rsp\n\tmovq 136(%%rdx), %%rbp\n\tmovq 144(%%rdx), %%rbx\n\tjmpq *152(%%rdx)\n"
      "1:"
      : "+a"(from), "+d"(to)
      :
      : "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
#ifdef __AVX512F__
        "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30",
        "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7",
#endif
        "memory", "cc");
  return to;
#else
  register gcm_fiber* x0 __asm__("x0") = from;
  register gcm_fiber* x1 __asm__("x1") = to;
  __asm__ volatile(
      "adr x3, 1f\n\tmov x2, sp\n\tstp x2, x29, [x0, #128]\n\tstp x19, x3, [x0, #144]\n\t"
      "ldp x2, x29, [x1, #128]\n\tldp x19, x3, [x1, #144]\n\tmov sp, x2\n\tbr x3\n"
      "1:"
      : "+r"(x0), "+r"(x1)
      :
      : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x20", "x21", "x22", "x23",
        "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
  return x1;
#endif
}
static_assert(__builtin_offsetof(gcm_fiber, stack) == 128 && __builtin_offsetof(gcm_fiber, resume) == 152, "the offsets in switch_fiber");

// Where something stands in the source: line and column, in one word.
GCM_INNER constexpr gcm_u32 site(gcm_u32 line, gcm_u32 column) { return line << 10 | (column < 1023 ? column : 1023); }
GCM_INNER constexpr gcm_u32 site_line(gcm_u32 site) { return site >> 10; }
GCM_INNER constexpr gcm_u32 site_column(gcm_u32 site) { return site & 1023; }
GCM_INNER constexpr gcm_u64 site_key(gcm_u32 site) { return (site + 1ul) * 0x9E3779B97F4A7C15ul; }

// As the last parameter `gcm::here at = gcm::here()`: the place of the call.
struct here {
  gcm_u32 site;
  GCM_INNER constexpr here(gcm_u32 line = (gcm_u32)__builtin_LINE(), gcm_u32 column = (gcm_u32)__builtin_COLUMN()) : site(gcm::site(line, column)) {}
};

// Counts the iterations of a loop that holds a collective, so that lanes meet in the same iteration only. The order of lanes that disagree
// is that of (loop, iteration, …, collective) from the outermost loop inwards. A function with a collective is a loop of one iteration, which
// stands where it is called: lanes that call it from two places do not meet in it.
struct loop_mark {
  const loop_mark* outer;
  gcm_u64 before;  // the thread's stamp outside
  gcm_u64 step;    // what one iteration adds to it
  gcm_u32 site, iteration;

  GCM_RUNTIME explicit loop_mark(here at = here()) {
    gcm_fiber* fiber = self();
    outer = fiber->loops;
    before = fiber->stamp;
    site = at.site;
    iteration = 0;
    step = (before ^ site_key(site)) * 0xD1B54A32D192ED03ul | 1;
    fiber->stamp = before + step;
    fiber->loops = this;
  }
  GCM_RUNTIME ~loop_mark() {
    gcm_fiber* fiber = self();
    fiber->stamp = before;
    fiber->loops = outer;
  }
  GCM_RUNTIME void tick() {
    iteration++;
    self()->stamp += step;
  }
  loop_mark(const loop_mark&) = delete;
};

}  // namespace gcm
