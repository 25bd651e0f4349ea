// Signals that a kernel raises, as findings: the launch ends, the process goes on.
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#include "runtime.h"

static constexpr int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static constexpr size_t n_caught = sizeof caught / sizeof *caught;
static struct sigaction previous[n_caught];
static constexpr size_t signal_stack_bytes = 64 * 1024;

static thread_local Worker* running;
static thread_local sigjmp_buf out;

static gcm_u64 place(const void* context) {
#if defined(__x86_64__)
  return (gcm_u64)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] + 1;  // as a return address would be: behind the instruction
#else
  return ((const ucontext_t*)context)->uc_mcontext.pc + 1;
#endif
}

static char* stack_pointer(const void* context) {
#if defined(__x86_64__)
  return (char*)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
#else
  return (char*)((const ucontext_t*)context)->uc_mcontext.sp;
#endif
}

static bool wrote(const void* context) {
#if defined(__x86_64__)
  return ((const ucontext_t*)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
  return false;
#endif
}

static void describe(gcm_report& report, Worker& w, int signal, char* address) {
  if (signal == SIGFPE) {
    report.kind = GCM_UNDEFINED;
    detail_finding(report, "integer division by zero, or of the least number by -1");
    return;
  }
  // The processor names no address where a vector is not aligned, nor for a number that cannot be an address.
  if (signal == SIGSEGV && !address) detail_finding(report, "an address that is none, or a vector load or store that is not aligned");
  else detail_finding(report, "%s at address %p", strsignal(signal), (void*)address);
  if (signal != SIGSEGV && signal != SIGBUS) return;
  const gcm_u64 in_region = (gcm_u64)(address - w.region);
  if (in_region < GCM_REGION_BYTES) {
    report.kind = GCM_STACK_OVERFLOW;
    report.thread = (gcm_u32)(in_region / GCM_STACK_BYTES) - GCM_FIRST_SLOT;
    detail_finding(report, "private memory and calls of a thread need more than %lu bytes", GCM_STACK_BYTES);
    return;
  }
  constexpr long near = 1 << 20;  // a guard page stands behind each buffer, so what is this close was meant for the buffer
  long closest = near;
  for (gcm_u32 i = 0; i < w.launch->call->n_buffers; i++) {
    const gcm_buffer& buffer = w.launch->call->buffers[i];
    const long before = address - (char*)buffer.data, behind = before - (long)buffer.bytes;
    const long distance = before < 0 ? before : behind < 0 ? 0 : behind;
    if (labs(distance) >= closest) continue;
    closest = labs(distance);
    report.kind = distance || address == (char*)buffer.data + buffer.bytes ? GCM_OUT_OF_BOUNDS : GCM_FAULT;
    report.buffer = i;
    report.offset = (gcm_u64)distance;
    name_finding(report, buffer.name);
  }
}

static void on_signal(int signal, siginfo_t* info, void* context) {
  if (!running) {
    for (size_t i = 0; i < n_caught; i++)
      if (caught[i] == signal) sigaction(signal, &previous[i], nullptr);  // not ours: let it happen again
    return;
  }
  Worker& w = *running;
  gcm_report report = finding(GCM_FAULT, &w, nullptr);
  report.pc = place(context);
  report.write = wrote(context);
  const gcm_u64 slot = (gcm_u64)(stack_pointer(context) - w.region) / GCM_STACK_BYTES;
  if (slot >= GCM_FIRST_SLOT && slot < GCM_FIRST_SLOT + GCM_MOST_THREADS) report.thread = (gcm_u32)slot - GCM_FIRST_SLOT;
  describe(report, w, signal, (char*)info->si_addr);
  record(report);
  siglongjmp(out, 1);
}

FaultHandlers::FaultHandlers() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < n_caught; i++) sigaction(caught[i], &action, &previous[i]);
}
FaultHandlers::~FaultHandlers() {
  for (size_t i = 0; i < n_caught; i++) sigaction(caught[i], &previous[i], nullptr);
}

bool run_guarded(Worker& w, void (*work)(Worker&)) {
  char* memory = (char*)malloc(signal_stack_bytes);
  stack_t mine{}, before{};
  mine.ss_sp = memory;
  mine.ss_size = signal_stack_bytes;
  sigaltstack(&mine, &before);
  volatile bool whole = true;
  if (sigsetjmp(out, 0)) whole = false;
  else {
    running = &w;
    work(w);
  }
  running = nullptr;
  sigaltstack(&before, nullptr);
  free(memory);
  return whole;
}
