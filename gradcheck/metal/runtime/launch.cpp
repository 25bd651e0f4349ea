// One call of a kernel: its threadgroups over OS threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime.h"
#include "threads.h"

GCM_EXPORT const int gcm_abi;
const int gcm_abi = GCM_ABI;

// Order of the partners in a reduction over lanes: 0 ascending (1, 2, 4, 8, 16), 1 descending, 2 one lane after another.
extern "C" {
int gcm_simd_order = 0;
}
GCM_EXPORT void gcm_set_simd_order(int order) { gcm_simd_order = order; }

static void run_fibers(Worker& w) {
  Launch& launch = *w.launch;
  for (gcm_u32 i; !launch.stopped && (i = launch.next++) < launch.total;) run_threadgroup(w, threadgroup_in_turn(launch, i));
}

static void run_loop(Worker& w) {
  Launch& launch = *w.launch;
  gcm_thread shape{};
  shape.grid = launch.grid;
  shape.threadgroup_size = shape.dispatched_threadgroup = launch.threadgroup;
  shape.threadgroups = launch.threadgroups;
  const gcm_u32 share = std::max(1u, launch.total / (8 * std::max(1u, launch.call->threads)));
  for (gcm_u32 first; !launch.stopped && (first = launch.next.fetch_add(share)) < launch.total;)
    launch.call->loop(launch.pointers, &shape, first, std::min(launch.total, first + share));
}

static void work(Worker& w, Launch& launch) {
  w.launch = &launch;
  w.switches = w.collectives = 0;
  w.steps = 0;
  if (!run_guarded(w, launch.call->loop && !launch.call->checked ? run_loop : run_fibers)) launch.stopped = true;
  launch.switches += w.switches + w.collectives * GCM_LANES;
  launch.collectives += w.collectives;
}

// Kept from launch to launch: their stacks are mapped and warm. Null where there is no address space for them.
static Worker* worker(gcm_u32 i) {
  static std::vector<Worker*> workers;
  while (workers.size() <= i) {
    Worker* made = make_worker();
    if (!made) return nullptr;
    workers.push_back(made);
  }
  return workers[i];
}

// A launch that cannot begin.
static int refuse(gcm_result* result, const char* why) {
  gcm_report report = finding(GCM_FAULT, nullptr, nullptr);
  detail_finding(report, "%s", why);
  clear_findings();
  record(report);
  take_findings(*result);
  result->status = 1;
  return 2;
}

// 0: ran to the end; 1: given up because of a finding; 2: it could not begin, and the finding says why.
GCM_EXPORT int gcm_launch(const gcm_call* call, gcm_result* result) {
  static Mutex one;  // signal handlers, findings and the checker are the process's
  Lock lock(one);
  memset(result, 0, offsetof(gcm_result, reports));
  Launch launch;
  launch.call = call;
  launch.grid = {call->grid[0], call->grid[1], call->grid[2]};
  launch.threadgroup = {std::min(call->threadgroup[0], call->grid[0]), std::min(call->threadgroup[1], call->grid[1]), std::min(call->threadgroup[2], call->grid[2])};
  const gcm_u64 size = (gcm_u64)launch.threadgroup.x * launch.threadgroup.y * launch.threadgroup.z;
  if (!size) return refuse(result, "the grid or the threadgroup is empty");
  if (size > GCM_MOST_THREADS) return refuse(result, "more than 1024 threads in a threadgroup");
  auto parts = [](gcm_u32 whole, gcm_u32 part) { return (whole + part - 1) / part; };
  launch.threadgroups = {parts(launch.grid.x, launch.threadgroup.x), parts(launch.grid.y, launch.threadgroup.y), parts(launch.grid.z, launch.threadgroup.z)};
  launch.total = launch.threadgroups.x * launch.threadgroups.y * launch.threadgroups.z;
  launch.deadline = call->budget ? now() + call->budget : 0;
  std::vector<void*> pointers;
  for (gcm_u32 i = 0; i < call->n_buffers; i++) pointers.push_back(call->buffers[i].data);
  launch.pointers = pointers.data();

  clear_findings();
  const gcm_u32 threads = call->checked ? 1 : std::max(1u, std::min(call->threads, launch.total));
  for (gcm_u32 i = 0; i < threads; i++)
    if (!worker(i)) return refuse(result, "no address space is left for the stacks of the threads");
  {
    FaultHandlers handlers;
    if (call->checked) {
      worker(0)->launch = &launch;
      begin_checking(*worker(0));
    }
    std::vector<pthread_t> others;
    for (gcm_u32 i = 1; i < threads; i++) {
      worker(i)->launch = &launch;
      pthread_t other;
      if (pthread_create(&other, nullptr, [](void* w) -> void* { return work(*(Worker*)w, *((Worker*)w)->launch), nullptr; }, worker(i))) break;
      others.push_back(other);  // with fewer threads than wanted the rest do more
    }
    work(*worker(0), launch);
    for (pthread_t other : others) pthread_join(other, nullptr);
    if (call->checked) end_checking(*worker(0));
  }
  result->status = launch.stopped;
  result->switches = launch.switches;
  result->collectives = launch.collectives;
  take_findings(*result);
  return (int)result->status;
}
