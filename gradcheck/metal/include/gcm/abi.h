// What a compiled kernel, the runtime and launch.py agree on. Plain C layout: launch.py mirrors these structs with ctypes.
#pragma once

typedef unsigned int gcm_u32;
typedef unsigned long gcm_u64;

// Two names below are macros wherever a kernel is compiled.
#pragma push_macro("thread")
#pragma push_macro("threadgroup")
#undef thread
#undef threadgroup

#define GCM_ABI 2 // raised with any change below; the runtime exports it as `gcm_abi`

struct gcm_u3 { gcm_u32 x, y, z; };

// Where one GPU thread stands; what the [[thread_position_in_grid]] family of attributes is read from. The runtime's own part follows it.
struct gcm_thread {
  gcm_u3 position_in_grid, position_in_threadgroup, threadgroup_position;
  gcm_u3 grid;
  union {
    gcm_u3 threadgroup;  // smaller than dispatched at a ragged edge
    gcm_u3 threadgroup_size;  // the same, under a name that is no macro
  };
  gcm_u3 dispatched_threadgroup, threadgroups;  // size of a threadgroup, number of them
  gcm_u32 index_in_threadgroup, lane, simdgroup, simdgroups;
};

// A kernel library exports one of these under the name `gcm_entry`: the body of the kernel for one thread.
typedef void (*gcm_entry_fn)(void* const* buffers, gcm_thread* self);
// …and, when its text names no barrier, collective, atomic or threadgroup memory, also `gcm_loop`: all threads of threadgroups
// [first, last) in one plain loop, which clang can vectorise.
typedef void (*gcm_loop_fn)(void* const* buffers, const gcm_thread* shape, gcm_u32 first, gcm_u32 last);

enum gcm_buffer_kind { GCM_INPUT = 0, GCM_OUTPUT = 1, GCM_META = 2 };  // META: a _shape, _strides or _ndim argument
struct gcm_buffer {
  void* data;
  gcm_u64 bytes;
  gcm_u32 kind;
  gcm_u32 initialised;  // an output that was given init_value may be read before it is written
  gcm_u64 element;      // bytes of one element
  const char* name;
};

enum gcm_schedule { GCM_IN_ORDER = 0, GCM_LOCK_STEP = 1, GCM_REVERSE = 2, GCM_RANDOM = 3 };  // RANDOM: a random priority per simdgroup, by seed

enum gcm_kind {
  GCM_OUT_OF_BOUNDS = 1, GCM_RACE = 2, GCM_RACE_SAME_VALUE = 3, GCM_UNINITIALISED_READ = 4, GCM_WRITE_TO_INPUT = 5, GCM_BARRIER_DIVERGENCE = 6,
  GCM_SIMD_DIVERGENCE = 7 /* reads a lane that is not there */, GCM_FAULT = 8 /* a signal */, GCM_UNDEFINED = 9 /* shift, division, cast, index */,
  GCM_DEADLOCK = 10, GCM_THREADGROUP_MEMORY = 11, GCM_UNWRITTEN_OUTPUT = 12, GCM_MISALIGNED = 13, GCM_TIMEOUT = 14,
  GCM_WEAK_BARRIER = 15 /* a race that a barrier would order if its mem_flags covered this memory */, GCM_STACK_OVERFLOW = 16
};

// One finding, as found. `pc` are addresses inside the kernel library (0 for none); launch.py turns them into file:line:column.
struct gcm_report {
  gcm_u32 kind;
  gcm_u32 buffer;           // index into gcm_call.buffers, or GCM_NO_BUFFER: then `name` says what it is (a threadgroup variable)
  gcm_u64 pc, pc2;          // here, and the other party of a race
  gcm_u64 offset;           // byte offset into the buffer or variable; for OUT_OF_BOUNDS signed distance past its end or before its start
  gcm_u32 size, write;      // bytes of the access, 1 when it writes
  gcm_u32 group, thread;    // linear threadgroup, thread in it
  gcm_u32 group2, thread2, write2;
  gcm_u32 line, column;     // where the runtime knows them itself (barriers, collectives, undefined behaviour); else 0
  gcm_u32 count;            // how often this same pair of places was seen
  char name[64];
  char detail[192];
};
#define GCM_NO_BUFFER 0xffffffffu

struct gcm_call {
  gcm_entry_fn entry;
  gcm_loop_fn loop;               // or null
  const gcm_buffer* buffers;
  gcm_u32 n_buffers;
  gcm_u32 checked;                // 1: the library was compiled in checked mode; watch it
  gcm_u32 grid[3], threadgroup[3];
  gcm_u32 schedule;
  gcm_u32 threads;                // OS threads over threadgroups; checked mode uses one
  gcm_u64 seed;
  gcm_u64 budget;                 // nanoseconds after which the launch is given up as GCM_TIMEOUT, at the next look; 0: none
  const char* library_low;        // address range of the kernel library, to tell its own constants from stray pointers
  const char* library_high;
};
struct gcm_result {
  gcm_u32 n_reports, status;      // status 0: ran to the end; 1: stopped by a report that leaves nothing to go on with
  gcm_u64 switches, collectives;
  gcm_report reports[64];
};
// int gcm_launch(const gcm_call*, gcm_result*);  // 0, or 1 when status != 0

#pragma pop_macro("thread")
#pragma pop_macro("threadgroup")
