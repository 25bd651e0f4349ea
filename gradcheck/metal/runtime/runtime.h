// The runtime's parts and what they know of each other. One worker per OS thread; a worker runs one threadgroup at a time.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "gcm/fiber.h"

#define GCM_EXPORT extern "C" __attribute__((visibility("default")))

constexpr gcm_u32 most_simdgroups = GCM_MOST_THREADS / GCM_LANES;
constexpr gcm_u32 most_variables = 64;
constexpr gcm_u64 threadgroup_bytes = 32 * 1024;  // Metal's limit
constexpr gcm_u64 arena_bytes = 128 * 1024;       // with what lies between variables in checked mode
constexpr gcm_u64 page = 4096;
constexpr gcm_u32 flag_device = 1, flag_threadgroup = 2;  // mem_flags

struct Launch {
  const gcm_call* call;
  void* const* pointers;
  gcm_u3 grid, threadgroup, threadgroups;
  gcm_u32 total;
  gcm_u64 deadline;  // by the monotonic clock; 0: none
  std::atomic<gcm_u32> next{0};
  std::atomic<bool> stopped{false};
  std::atomic<gcm_u64> switches{0}, collectives{0};
};

struct Variable {
  const void* id;
  char* address;
  gcm_u64 bytes, granule;
  const char* name;
  void* shadow;  // the checker's
};

struct Worker {
  gcm_simdgroup groups[most_simdgroups];
  gcm_fiber root;  // the OS thread itself
  char* region;    // fibers and stacks
  gcm_u32 guarded; // stacks that have a guard page already
  char* arena;     // threadgroup memory
  gcm_u64 arena_used, declared;
  Variable variables[most_variables];
  gcm_u32 n_variables;

  Launch* launch;
  gcm_u3 shape;  // of the threadgroup that `groups` are laid out for
  gcm_u32 threads, n_groups, live, current, at_barrier, group_index;
  gcm_u32 barrier_site, barrier_flags;
  gcm_u64 barrier_stamp, random;
  bool barrier_uneven;
  long steps;  // until the next look at the clock
  gcm_u32 fruitless;  // turns given up by spinning threads since any thread got further
  gcm_u64 switches, collectives;
};

inline gcm_u64 now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (gcm_u64)t.tv_sec * 1'000'000'000 + (gcm_u64)t.tv_nsec;
}
inline bool out_of_time(const Launch& launch) { return launch.deadline && now() >= launch.deadline; }

inline gcm_fiber* fiber_at(const Worker& w, gcm_u32 thread) { return (gcm_fiber*)(w.region + (GCM_FIRST_SLOT + thread) * GCM_FIBER_BYTES); }
inline char* stack_at(const Worker& w, gcm_u32 thread) { return w.region + (GCM_FIRST_SLOT + thread) * GCM_STACK_BYTES; }
inline Worker& worker_of(gcm_simdgroup* group) { return *(Worker*)(group - group->index); }
static_assert(offsetof(Worker, groups) == 0, "worker_of relies on it");

// fibers.cpp
Worker* make_worker();
void prepare_stacks(Worker& w, gcm_u32 threads);
void start_fiber(Worker& w, gcm_fiber* fiber, gcm_u32 thread);

// schedule.cpp
void run_threadgroup(Worker& w, gcm_u32 index);
gcm_u32 threadgroup_in_turn(const Launch& launch, gcm_u32 i);
[[noreturn]] void stop(Worker& w, gcm_fiber* self);  // gives the launch up
void finish(gcm_fiber* self);
void run_another(Worker& w, gcm_fiber* self);  // lets some other thread run that can

// findings.cpp
gcm_report finding(gcm_u32 kind, const Worker* w, const gcm_fiber* fiber);
void name_finding(gcm_report& report, const char* name);
__attribute__((format(printf, 2, 3))) void detail_finding(gcm_report& report, const char* format, ...);
gcm_report late(const Worker& w, const gcm_fiber* fiber);  // a launch that is out of time
void record(const gcm_report& report);
void clear_findings();
void take_findings(gcm_result& result);

// faults.cpp
struct FaultHandlers { FaultHandlers(); ~FaultHandlers(); };
bool run_guarded(Worker& w, void (*work)(Worker&));  // false when a signal ended it

// shadow.cpp: nothing of it happens unless the launch is checked
void begin_checking(Worker& w);
void end_checking(Worker& w);
void check_threadgroup_begins(Worker& w);
void check_barrier(Worker& w, gcm_u32 flags, gcm_u32 site);
void check_variable(Worker& w, Variable& variable);
