// The rule of shadow.h, applied, and the memory that a launch may touch.
#include "shadow.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

Checker checker;
static constexpr long accesses_of_look = 1 << 20;  // between two looks at the clock

namespace {

struct Group { gcm_u32 clock, index; };

std::vector<Memory> buffers;
Memory variables[most_variables];
gcm_u32 n_variables;
std::vector<Cell> arena_cells;  // one per byte of threadgroup memory
std::vector<Group> groups;      // when each threadgroup began
Memory library;

// A race of a write is judged once the value is there: a write that changes nothing is of its own, benign kind.
struct Pending {
  gcm_u32 n;
  gcm_report reports[4];
  char* address;
  gcm_u64 bytes;
  unsigned char before[16];
  long fuel;
} pending;

Touch misaligned_last;

void forget_places() { memset((void*)checker.recent, 0, sizeof checker.recent); }

gcm_u32 threadgroup_at(gcm_u32 clock) {
  auto after = std::upper_bound(groups.begin(), groups.end(), clock, [](gcm_u32 value, const Group& g) { return value < g.clock; });
  return after == groups.begin() ? 0 : (after - 1)->index;
}

gcm_report finding_at(gcm_u32 kind, const Touch& touch, const Memory* memory) {
  gcm_report report = finding(kind, checker.worker, touch.self);
  report.pc = touch.place;
  report.size = (gcm_u32)touch.bytes;
  report.write = touch.write;
  if (memory) {
    report.buffer = memory->buffer;
    report.offset = (gcm_u64)(touch.address - memory->low);
    name_finding(report, memory->name);
  }
  return report;
}

void settle() {
  if (!pending.n) return;
  const bool same = !memcmp(pending.before, pending.address, std::min<gcm_u64>(pending.bytes, sizeof pending.before));
  for (gcm_u32 i = 0; i < pending.n; i++) {
    gcm_report& report = pending.reports[i];
    if (same && report.kind == GCM_RACE) report.kind = GCM_RACE_SAME_VALUE;
    record(report);
  }
  pending.n = 0;
  checker.fuel = pending.fuel;
}

// Distance of an address from a memory: negative before it, from 0 on behind it.
long distance_of(const char* address, const Memory& memory) {
  if (address < memory.low) return address - memory.low;
  return std::max(0l, (long)(address - memory.low - (long)memory.bytes));
}

[[noreturn]] void out_of_bounds(const Touch& touch) {
  const Memory* nearest = nullptr;
  long closest = 0;
  auto look = [&](const Memory& memory) {
    const long distance = distance_of(touch.address, memory);
    if (nearest && labs(distance) >= labs(closest)) return;
    nearest = &memory;
    closest = distance;
  };
  for (const Memory& memory : buffers) look(memory);
  for (gcm_u32 i = 0; i < n_variables; i++) look(variables[i]);
  gcm_report report = finding_at(GCM_OUT_OF_BOUNDS, touch, nullptr);
  if (nearest) {
    report.buffer = nearest->buffer;
    report.offset = (gcm_u64)closest;
    name_finding(report, nearest->name);
    detail_finding(report, "%s has %lu bytes", nearest->name, nearest->bytes);
  }
  record(report);
  stop(*checker.worker, touch.self);
}

[[noreturn]] void in_another_stack(const Touch& touch) {
  const gcm_u64 mine = ((gcm_u64)__builtin_frame_address(0) - checker.region) / GCM_STACK_BYTES;
  const gcm_u64 theirs = ((gcm_u64)touch.address - checker.region) / GCM_STACK_BYTES;
  gcm_report report = finding_at(theirs + 1 == mine ? GCM_STACK_OVERFLOW : GCM_OUT_OF_BOUNDS, touch, nullptr);
  name_finding(report, "private memory");
  if (theirs + 1 == mine) detail_finding(report, "private memory and calls of a thread need more than %lu bytes", GCM_STACK_BYTES);
  else detail_finding(report, "the private memory of thread %lu", theirs - GCM_FIRST_SLOT);
  record(report);
  stop(*checker.worker, touch.self);
}

Memory* memory_of(const Touch& touch) {
  auto holds = [&](const Memory& memory) {
    const gcm_u64 offset = (gcm_u64)(touch.address - memory.low);
    return offset < memory.bytes && memory.bytes - offset >= touch.bytes;
  };
  for (gcm_u32 i = 0; i < n_variables; i++)
    if (holds(variables[i])) return &variables[i];
  for (Memory& memory : buffers)
    if (holds(memory)) return &memory;
  return holds(library) ? &library : nullptr;
}

// Something smaller than a cell, or across two, was touched: from now on there is a cell for every byte.
void split(Memory& memory) {
  if (!memory.shift) return;
  const gcm_u64 each = 1ul << memory.shift;
  // Threadgroup variables have a cell per byte to grow into.
  Cell* cells = memory.flag == flag_threadgroup ? memory.cells : (Cell*)calloc(memory.bytes, sizeof(Cell));
  for (gcm_u64 i = memory.bytes; i-- > 0;) cells[i] = memory.cells[i / each];
  if (cells != memory.cells) free(memory.cells);
  memory.cells = cells;
  memory.shift = 0;
  forget_places();
}

// How much there is to lose in forgetting a read: 0 if it is ordered before all to come.
gcm_u32 worth(const Access& a, gcm_u32 me, gcm_u32 flag) {
  if (a.clock < checker.group_start) return flag == flag_device && a.clock ? 3 : 0;
  if (a.clock < checker.barrier[flag]) return 0;
  return thread_of(a) / GCM_LANES == me / GCM_LANES ? 1 : 2;
}

void check_read(const Touch& touch, const Memory& memory, Cell& cell, const Access& now, gcm_u32 me) {
  const gcm_u32 flag = memory.flag;
  const Access wrote = cell.write;
  if (flag == flag_threadgroup ? wrote.clock < checker.group_start : !wrote.clock) {
    if (!memory.initialised) record(finding_at(GCM_UNINITIALISED_READ, touch, &memory));
  } else if (!ordered(wrote, me, flag, touch.self->group) && !(wrote.where & now.where & atomic_bit)) {
    race(touch, memory, wrote, true);
  }
  const Access read = cell.read;
  if (read.clock && (thread_of(read) != me || read.clock < checker.group_start) && worth(read, me, flag) >= worth(cell.other_read, me, flag))
    cell.other_read = read;
  cell.read = now;
}

void check_write(const Touch& touch, const Memory& memory, Cell& cell, const Access& now, gcm_u32 me) {
  bool clean = true;
  auto check = [&](const Access& other, bool writes) {
    if (!other.clock || ordered(other, me, memory.flag, touch.self->group) || (other.where & now.where & atomic_bit)) return;
    race(touch, memory, other, writes);
    clean = false;
  };
  check(cell.write, true);
  check(cell.read, false);
  if (clean) check(cell.other_read, false);
  cell.write = now;
  if (clean) cell.read = cell.other_read = {};  // whoever races with them races with this write
}

}  // namespace

void race(const Touch& touch, const Memory& memory, const Access& other, bool other_writes) {
  const gcm_simdgroup& group = *touch.self->group;
  const gcm_u32 me = touch.self->place.index_in_threadgroup;
  const bool here = other.clock >= checker.group_start;
  const bool by_barrier = here && other.clock < checker.any_barrier;
  const bool by_simdgroup = here && thread_of(other) / GCM_LANES == me / GCM_LANES && other.clock < group.clock_any;
  gcm_report report = finding_at(by_barrier || by_simdgroup ? GCM_WEAK_BARRIER : GCM_RACE, touch, &memory);
  const gcm_u32 offset = other.where & ((1u << place_bits) - 1);
  report.pc2 = offset ? checker.library + offset : 0;
  report.thread2 = thread_of(other);
  report.group2 = threadgroup_at(other.clock);
  report.write2 = other_writes;
  if (report.kind == GCM_WEAK_BARRIER) {
    const gcm_u32 site = by_barrier ? checker.barrier_site : group.barrier_site;
    report.line = gcm::site_line(site);
    report.column = gcm::site_column(site);
    detail_finding(report, "the %s between them does not name mem_flags::%s", by_barrier ? "threadgroup_barrier" : "simdgroup_barrier",
                   memory.flag == flag_device ? "mem_device" : "mem_threadgroup");
  }
  if (!touch.write || touch.atomic) return record(report);
  if (!pending.n) {
    pending.address = touch.address;
    pending.bytes = touch.bytes;
    memcpy(pending.before, touch.address, std::min<gcm_u64>(touch.bytes, sizeof pending.before));
    pending.fuel = checker.fuel;
    checker.fuel = 0;
  }
  if (pending.n < sizeof pending.reports / sizeof *pending.reports) pending.reports[pending.n++] = report;
}

void touch_cells(const Touch& touch, Memory& memory) {
  const gcm_u64 offset = (gcm_u64)(touch.address - memory.low), each = 1ul << memory.shift;
  if ((offset | touch.bytes) & (each - 1)) {
    split(memory);
    return touch_cells(touch, memory);
  }
  const gcm_u32 me = touch.self->place.index_in_threadgroup;
  const Access now = {checker.clock, word_of(touch.place - checker.library, me) | (touch.atomic ? atomic_bit : 0)};
  Cell* cell = memory.cells + (offset >> memory.shift);
  for (gcm_u64 n = touch.bytes >> memory.shift; n; n--, cell++) {
    if (touch.write) check_write(touch, memory, *cell, now, me);
    else check_read(touch, memory, *cell, now, me);
  }
}

Memory* look_up(const Touch& touch, bool may_be_private) {
  const gcm_u64 in_region = (gcm_u64)touch.address - checker.region;
  if (in_region < GCM_REGION_BYTES) {
    if (in_region < GCM_FIRST_SLOT * GCM_STACK_BYTES) return nullptr;
    if (may_be_private && !((in_region ^ ((gcm_u64)__builtin_frame_address(0) - checker.region)) / GCM_STACK_BYTES)) return nullptr;
    in_another_stack(touch);
  }
  Memory* memory = memory_of(touch);
  if (!memory) out_of_bounds(touch);
  const bool plain_size = touch.bytes <= 16 && !(touch.bytes & (touch.bytes - 1));
  if (plain_size) recent_of(touch.bytes, touch.place) = {memory->low, memory->bytes - touch.bytes + 1, memory->cells, memory->shift, memory->flag};
  return memory;
}

void misaligned(const Touch& touch) {
  // Seen by the check of the pointer's type, and then again by that of the access.
  if (misaligned_last.address == touch.address && misaligned_last.self == touch.self) return;
  misaligned_last = touch;
  const Memory* memory = memory_of(touch);
  gcm_report report = finding_at(GCM_MISALIGNED, touch, memory);
  detail_finding(report, "the address is %lu past a multiple of %lu", (gcm_u64)touch.address % touch.bytes, touch.bytes);
  record(report);
}

void deadlock(const Touch& touch) {
  const Memory* memory = memory_of(touch);
  gcm_report report = finding_at(GCM_DEADLOCK, touch, memory);
  detail_finding(report, "this thread waits for an atomic that no thread of its threadgroup is going to change");
  record(report);
  stop(*checker.worker, touch.self);
}

void written_to_input(const Touch& touch, const Memory& memory) {
  if (!memory.ours) record(finding_at(GCM_WRITE_TO_INPUT, touch, &memory));
}

void touch_slowly(const Touch& touch) {
  if (!touch.bytes) return;
  Memory* memory = look_up(touch, true);
  if (!memory) return;
  if (memory->cells) touch_cells(touch, *memory);
  else if (touch.write) written_to_input(touch, *memory);
}

void tick(const Touch& touch) {
  if (pending.n) return settle();
  checker.fuel = accesses_of_look;
  if (!out_of_time(*checker.worker->launch)) return;
  gcm_report report = late(*checker.worker, touch.self);
  report.pc = touch.place;
  record(report);
  stop(*checker.worker, touch.self);
}

static gcm_u32 advance() {
  if (!++checker.clock) {  // after four thousand million barriers
    gcm_report report = finding(GCM_TIMEOUT, checker.worker, nullptr);
    detail_finding(report, "more barriers than can be counted");
    record(report);
    stop(*checker.worker, nullptr);
  }
  return checker.clock;
}

void begin_checking(Worker& w) {
  const gcm_call& call = *w.launch->call;
  buffers.clear();
  groups.clear();
  n_variables = 0;
  arena_cells.resize(arena_bytes);
  memset((void*)arena_cells.data(), 0, arena_bytes * sizeof(Cell));
  for (gcm_u32 i = 0; i < call.n_buffers; i++) {
    const gcm_buffer& b = call.buffers[i];
    const bool output = b.kind == GCM_OUTPUT;
    const gcm_u32 shift = b.element % 4 == 0 ? 2 : b.element % 2 == 0 ? 1 : 0;
    Cell* cells = output ? (Cell*)calloc((b.bytes >> shift) + 1, sizeof(Cell)) : nullptr;
    buffers.push_back({(char*)b.data, b.bytes, cells, shift, flag_device, i, output, b.initialised || !output, false, b.name});
  }
  library = {(char*)call.library_low, (gcm_u64)(call.library_high - call.library_low), nullptr, 0, flag_device, GCM_NO_BUFFER, false, true, true, "the kernel library"};
  pending.n = 0;
  misaligned_last = {};
  checker = {};
  checker.library = (gcm_u64)call.library_low;
  checker.fuel = accesses_of_look;
  checker.worker = &w;
  checker.region = (gcm_u64)w.region;
}

void end_checking(Worker& w) {
  settle();
  for (const Memory& memory : buffers) {
    if (!memory.cells) continue;
    const gcm_u64 cells = memory.bytes >> memory.shift, element = w.launch->call->buffers[memory.buffer].element >> memory.shift;
    gcm_u64 missing = 0, first = 0;
    for (gcm_u64 i = 0; i < cells && !memory.initialised && !w.launch->stopped; i++)
      if (!memory.cells[i].write.clock && !missing++) first = i;
    if (missing) {
      gcm_report report = finding(GCM_UNWRITTEN_OUTPUT, nullptr, nullptr);
      report.buffer = memory.buffer;
      report.offset = first << memory.shift;
      name_finding(report, memory.name);
      const gcm_u64 each = std::max<gcm_u64>(element, 1);
      detail_finding(report, "%lu of %lu elements are never written", (missing + each - 1) / each, cells / each);
      report.line = 0;
      record(report);
    }
    free(memory.cells);
  }
  buffers.clear();
  checker.region = 0;
}

void check_threadgroup_begins(Worker& w) {
  settle();
  checker.group_start = checker.any_barrier = checker.barrier[flag_device] = checker.barrier[flag_threadgroup] = advance();
  groups.push_back({checker.clock, w.group_index});
  if (n_variables) forget_places();
  n_variables = 0;
}

void check_barrier(Worker&, gcm_u32 flags, gcm_u32 site) {
  checker.any_barrier = advance();
  for (const gcm_u32 flag : {flag_device, flag_threadgroup})
    if (flags & flag) checker.barrier[flag] = checker.clock;
  checker.barrier_site = site;
}

void check_variable(Worker& w, Variable& v) {
  const gcm_u32 shift = v.granule >= 4 ? 2 : v.granule >= 2 ? 1 : 0;
  variables[n_variables++] = {v.address, v.bytes, arena_cells.data() + (v.address - w.arena), shift, flag_threadgroup, GCM_NO_BUFFER, true, false, false, v.name};
}

// The resolver of simdgroup_barrier.
GCM_EXPORT void gcm_order_simdgroup(gcm_simdgroup* group, gcm_u32 mask) {
  if (!worker_of(group).launch->call->checked) return;
  gcm_u32 flags = ~0u;
  for (gcm_u32 rest = mask; rest; rest &= rest - 1) flags &= group->lanes[__builtin_ctz(rest)].argument;
  group->clock_any = advance();
  if (flags & flag_device) group->clock_device = checker.clock;
  if (flags & flag_threadgroup) group->clock_threadgroup = checker.clock;
  group->barrier_site = group->site;
}
