// Checked mode: who touched each piece of memory last, and whether the program orders that before what happens now.
//
// Time is one counter for the launch, since checked mode runs one threadgroup at a time on one OS thread: it advances when a threadgroup begins
// and at every barrier. An earlier access is ordered before one of now if the same thread made it, if it is older than the last barrier whose
// flags cover that memory, or if a lane of the same simdgroup made it before their last such simdgroup_barrier. Accesses of other threadgroups
// are never ordered.
#pragma once
#include "runtime.h"

struct Access {
  gcm_u32 clock;  // 0: never
  gcm_u32 where;  // 21 bits of the place in the kernel library, 10 of the thread, 1: atomic
};
constexpr gcm_u32 place_bits = 21, thread_mask = 1023, atomic_bit = 1u << 31;

struct Cell { Access write, read, other_read; };

struct Memory {
  char* low;
  gcm_u64 bytes;
  Cell* cells;  // null: only read, so there is nothing to remember
  gcm_u32 shift;  // a cell stands for 1 << shift bytes
  gcm_u32 flag;   // the mem_flags that order it
  gcm_u32 buffer;
  bool writable, initialised, ours;  // ours: memory of the kernel library itself
  const char* name;
};

// The memory that a place in the program touched last, which is nearly always the one it touches next.
struct alignas(64) Recent {
  char* low;
  gcm_u64 starts;  // how many offsets there are at which an access of this size lies within it
  Cell* cells;
  gcm_u32 shift, flag;
};
constexpr gcm_u32 n_recent = 512, n_sizes = 5;  // a table for each of 1, 2, 4, 8, 16 bytes

struct Checker {
  gcm_u64 region;  // of the worker that is being checked; 0 when none is
  long fuel;       // accesses until `tick` wants to be called
  gcm_u32 clock, group_start, any_barrier, barrier_site;
  gcm_u32 barrier[3];  // when one last ordered the memory of each flag
  gcm_u64 library;
  Worker* worker;
  Recent recent[n_sizes][n_recent];
};
extern Checker checker __attribute__((visibility("hidden")));

// An access as the callback saw it.
struct Touch {
  char* address;
  gcm_u64 bytes;
  gcm_u64 place;
  gcm_fiber* self;
  bool write, atomic;
};

void tick(const Touch& touch);
Memory* look_up(const Touch& touch, bool may_be_private);  // null: nothing to check there; does not return from a stray access
void touch_cells(const Touch& touch, Memory& memory);
void misaligned(const Touch& touch);
void written_to_input(const Touch& touch, const Memory& memory);
[[noreturn]] void deadlock(const Touch& touch);
__attribute__((noinline)) void touch_slowly(const Touch& touch);
__attribute__((noinline)) void race(const Touch& touch, const Memory& memory, const Access& other, bool other_writes);

inline Recent& recent_of(gcm_u64 bytes, gcm_u64 place) { return checker.recent[__builtin_ctzl(bytes)][place % n_recent]; }
inline gcm_u32 thread_of(const Access& a) { return a.where >> place_bits & thread_mask; }

// Whether `a` comes before what thread `me` does now.
__attribute__((always_inline)) inline bool ordered(const Access& a, gcm_u32 me, gcm_u32 flag, const gcm_simdgroup* group) {
  if (a.clock < checker.group_start) return flag == flag_threadgroup;  // memory of a threadgroup begins with it
  if (thread_of(a) == me) return true;
  if (a.clock < checker.barrier[flag]) return true;
  return thread_of(a) / GCM_LANES == me / GCM_LANES && a.clock < (flag == flag_device ? group->clock_device : group->clock_threadgroup);
}

constexpr gcm_u32 word_of(gcm_u64 place, gcm_u32 thread) { return (gcm_u32)(place < 1ul << place_bits ? place : 0) | thread << place_bits; }

// The common cases of the rule in a few instructions; false where it needs a closer look. What it has noted by then does not harm.
template <bool write>
__attribute__((always_inline)) inline bool touch_quickly(const Recent& recent, gcm_u64 offset, gcm_u64 bytes, gcm_u64 place, gcm_u32 me) {
  const gcm_u32 start = checker.group_start, barrier = checker.barrier[recent.flag];
  if ((offset | bytes) & ((1ul << recent.shift) - 1)) return false;
  const Access now = {checker.clock, word_of(place - checker.library, me)};
  auto mine = [&](const Access& a) { return (a.clock >= start) & (thread_of(a) == me); };
  auto before_barrier = [&](const Access& a) { return a.clock - start < barrier - start; };
  Cell* cell = recent.cells + (offset >> recent.shift);
  for (gcm_u64 n = bytes >> recent.shift; n; n--, cell++) {
    const Access wrote = cell->write, read = cell->read, other = cell->other_read;
    if (write) {
      auto fine = [&](const Access& a) { return mine(a) | before_barrier(a) | (recent.flag == flag_threadgroup ? a.clock < start : !a.clock); };
      if (!(fine(wrote) & fine(read) & fine(other))) return false;
      *cell = {now, {}, {}};
    } else {
      if (!(mine(wrote) | before_barrier(wrote))) return false;
      if (read.clock < start) {
        if (read.clock && recent.flag == flag_device) return false;  // a read of another threadgroup must not be forgotten
      } else if (read.clock >= barrier && thread_of(read) != me) {
        auto apart = [&](const Access& a) { return thread_of(a) / GCM_LANES != me / GCM_LANES; };
        if (other.clock < start && other.clock && recent.flag == flag_device) return false;
        if (other.clock < barrier || apart(read) >= apart(other)) cell->other_read = read;
      }
      cell->read = now;
    }
  }
  return true;
}

__attribute__((always_inline)) inline gcm_u64 stack_pointer() {
  gcm_u64 stack;
#if defined(__x86_64__)
  __asm__("movq %%rsp, %0" : "=r"(stack));
#else
  __asm__("mov %0, sp" : "=r"(stack));
#endif
  return stack;
}
// Whether this is a fiber of the launch that is being checked, and not a library that is being loaded.
__attribute__((always_inline)) inline bool in_launch() { return (stack_pointer() & ~(GCM_REGION_BYTES - 1)) == checker.region; }
