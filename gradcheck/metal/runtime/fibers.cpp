// Where fibers live, and how one begins.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "runtime.h"

extern "C" void gcm_fiber_start();
extern "C" __attribute__((visibility("hidden"))) void gcm_fiber_main(gcm_fiber* self) {
  Worker& w = worker_of(self->group);
  w.launch->call->entry(w.launch->pointers, &self->place);
  finish(self);
}

// The switch leaves the new fiber in rdx or x1.
#if defined(__x86_64__)
asm(".text\n.hidden gcm_fiber_start\n.globl gcm_fiber_start\ngcm_fiber_start:\n\tmovq %rdx, %rdi\n\txorl %ebp, %ebp\n\tcall gcm_fiber_main\n\tud2\n");
#else
asm(".text\n.hidden gcm_fiber_start\n.globl gcm_fiber_start\ngcm_fiber_start:\n\tmov x0, x1\n\tmov x29, xzr\n\tbl gcm_fiber_main\n\tbrk #1\n");
#endif

// The rest of the region stays reserved: what lies in it is taken for a stack.
static char* reserve_aligned(size_t bytes, size_t used) {
  char* all = (char*)mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* region = (char*)(((uintptr_t)all + bytes - 1) & ~(uintptr_t)(bytes - 1));
  if (region > all) munmap(all, region - all);
  if (region + bytes < all + 2 * bytes) munmap(region + bytes, all + bytes - region);
  if (mprotect(region, used, PROT_READ | PROT_WRITE)) return nullptr;
  madvise(region, used, MADV_NOHUGEPAGE);  // a stack uses a page or two of its slot
  return region;
}

Worker* make_worker() {
  char* region = reserve_aligned(GCM_REGION_BYTES, (GCM_FIRST_SLOT + GCM_MOST_THREADS) * GCM_STACK_BYTES);
  char* arena = (char*)mmap(nullptr, arena_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!region || arena == MAP_FAILED || mprotect(arena + page, arena_bytes, PROT_READ | PROT_WRITE)) return nullptr;
  void* memory = mmap(nullptr, sizeof(Worker), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  Worker* w = new (memory) Worker();
  w->region = region;
  w->arena = arena + page;
  return w;
}

void prepare_stacks(Worker& w, gcm_u32 threads) {
  for (; w.guarded < threads; w.guarded++) mprotect(stack_at(w, w.guarded), page, PROT_NONE);
}

void start_fiber(Worker& w, gcm_fiber* fiber, gcm_u32 thread) {
  // Stacks are a power of two apart: without the shift their tops would all compete for the same few cache lines.
  const gcm_u64 shift = thread % GCM_LANES * 192;
  fiber->stack = stack_at(w, thread) + GCM_STACK_BYTES - 64 - shift;
  fiber->resume = (void*)&gcm_fiber_start;
  fiber->stamp = 0;
  fiber->loops = nullptr;
}
