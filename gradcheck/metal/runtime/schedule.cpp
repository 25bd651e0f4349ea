// Whose turn it is. Collectives in which all lanes of a simdgroup agree are served in kernel code (gcm/simdgroup.h); the rest comes here.
#include <algorithm>

#include "runtime.h"

static constexpr long fuel_of_even = 1 << 16;  // collectives between two turns of the runtime
static constexpr long steps_of_look = 1 << 12;  // between two looks at the clock

static gcm_u64 draw(Worker& w) {
  gcm_u64 x = w.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  w.random = x;
  return x * 0x2545F4914F6CDD1Dull >> 16;
}

static gcm_u32 schedule_of(const Worker& w) { return w.launch->call->schedule; }

// ---- lanes of one simdgroup

// From "all do the same" to a state per lane.
static void unpack(gcm_simdgroup& g) {
  if (g.waiting & GCM_UNEVEN) return;
  for (gcm_u32 rest = (gcm_u32)g.waiting; rest; rest &= rest - 1) {
    gcm_fiber& lane = g.lanes[__builtin_ctz(rest)];
    lane.key = g.key;
    lane.site = g.site;
    lane.resolve = g.resolve;
  }
  g.apart = (gcm_u32)g.waiting;
  g.ready = (gcm_u32)(g.live & ~g.waiting);
  g.at_barrier = 0;
  g.waiting = GCM_UNEVEN;
  g.key = 0;
}

// The order in which the lanes of a simdgroup run, as a ring of those that live.
static void link(Worker& w, gcm_simdgroup& g) {
  unsigned char lanes[GCM_LANES];
  gcm_u32 n = 0;
  for (gcm_u32 rest = (gcm_u32)g.live; rest; rest &= rest - 1) lanes[n++] = (unsigned char)__builtin_ctz(rest);
  if (schedule_of(w) == GCM_REVERSE) std::reverse(lanes, lanes + n);
  if (schedule_of(w) == GCM_RANDOM)
    for (gcm_u32 i = n; i > 1; i--) std::swap(lanes[i - 1], lanes[draw(w) % i]);
  for (gcm_u32 i = 0; i < n; i++) g.lanes[lanes[i]].next = &g.lanes[lanes[(i + 1) % n]];
  g.first = n ? &g.lanes[lanes[0]] : nullptr;
  g.stale = 0;
}

// Back to "all do the same" once every lane that lives can run.
static void pack(Worker& w, gcm_simdgroup& g) {
  if (g.ready != (gcm_u32)g.live || !g.live) return;
  if (g.stale) link(w, g);
  g.apart = 0;
  g.waiting = 0;
}

// Which of two waiting lanes is earlier in the program, by loop and iteration from the outermost loop inwards.
static bool earlier(const gcm_fiber& a, const gcm_fiber& b) {
  constexpr gcm_u32 deepest = 32;
  gcm_u64 path[2][deepest];
  gcm_u32 n[2];
  const gcm_fiber* both[2] = {&a, &b};
  for (int i = 0; i < 2; i++) {
    gcm_u32 depth = 0;
    for (auto* m = both[i]->loops; m; m = m->outer) depth++;
    n[i] = std::min(depth, deepest - 1);
    gcm_u32 at = depth;
    for (auto* m = both[i]->loops; m; m = m->outer)
      if (--at < n[i]) path[i][at] = (gcm_u64)m->site << 32 | m->iteration;
    path[i][n[i]++] = (gcm_u64)both[i]->site << 32;
  }
  return std::lexicographical_compare(path[0], path[0] + n[0], path[1], path[1] + n[1]);
}

// No lane can run and some wait for a collective: serves those earliest in the program, and exactly those.
static void serve(Worker& w, gcm_simdgroup& g) {
  const gcm_fiber* least = nullptr;
  for (gcm_u32 rest = g.apart; rest; rest &= rest - 1) {
    const gcm_fiber& lane = g.lanes[__builtin_ctz(rest)];
    if (!least || (lane.key != least->key && earlier(lane, *least))) least = &lane;
  }
  gcm_u32 mask = 0;
  for (gcm_u32 rest = g.apart; rest; rest &= rest - 1)
    if (g.lanes[__builtin_ctz(rest)].key == least->key) mask |= rest & -rest;
  g.site = least->site;
  least->resolve(&g, mask);
  w.collectives++;
  g.apart &= ~mask;
  g.ready |= mask;
  pack(w, g);
}

static gcm_u32 can_run(const gcm_simdgroup& g) { return g.waiting & GCM_UNEVEN ? g.ready : (gcm_u32)(g.live & ~g.waiting); }
static bool can_move(const gcm_simdgroup& g) { return can_run(g) || (g.waiting & GCM_UNEVEN ? g.apart : (gcm_u32)g.waiting); }

// ---- simdgroups of one threadgroup

static gcm_simdgroup* whose_turn(Worker& w) {
  if (schedule_of(w) == GCM_RANDOM) {
    gcm_simdgroup* best = nullptr;
    for (gcm_u32 i = 0; i < w.n_groups; i++)
      if (can_move(w.groups[i]) && (!best || w.groups[i].priority > best->priority)) best = &w.groups[i];
    return best;
  }
  const gcm_u32 step = schedule_of(w) == GCM_REVERSE ? w.n_groups - 1 : 1;
  for (gcm_u32 i = 0, at = w.current; i < w.n_groups; i++, at = (at + step) % w.n_groups)
    if (can_move(w.groups[at])) return &w.groups[at];
  return nullptr;
}

// A simdgroup has passed a collective: some schedules go on elsewhere.
static void let_others(Worker& w, gcm_simdgroup& g) {
  if (schedule_of(w) == GCM_LOCK_STEP) w.current = (g.index + 1) % w.n_groups;
  if (schedule_of(w) == GCM_RANDOM && draw(w) % 8 == 0) g.priority = draw(w) >> 24;  // below all that were drawn at the start
}

static gcm_u32 first_group(const Worker& w) { return schedule_of(w) == GCM_REVERSE ? w.n_groups - 1 : 0; }

static void new_priorities(Worker& w) {
  for (gcm_u32 i = 0; i < w.n_groups; i++) w.groups[i].priority = draw(w) | 1ull << 48;
}

// Everyone that lives waits at a barrier.
static void release_barrier(Worker& w) {
  if (w.live != w.threads || w.barrier_uneven) {
    gcm_report report = finding(GCM_BARRIER_DIVERGENCE, &w, nullptr);
    report.line = gcm::site_line(w.barrier_site);
    report.column = gcm::site_column(w.barrier_site);
    for (gcm_u32 i = 0; i < w.threads; i++) {
      const gcm_fiber& fiber = *fiber_at(w, i);
      const bool gone = !(fiber.group->live & fiber.bit);
      if (!gone && fiber.site == w.barrier_site && fiber.key == w.barrier_stamp) continue;
      report.thread2 = i;
      report.group2 = w.group_index;
      if (gone) detail_finding(report, "%u of %u threads wait here; thread %u has returned", w.live, w.threads, i);
      else if (fiber.site == w.barrier_site) detail_finding(report, "thread %u waits here in another iteration", i);
      else detail_finding(report, "thread %u waits at the barrier of line %u, column %u", i, gcm::site_line(fiber.site), gcm::site_column(fiber.site));
      break;
    }
    record(report);
  }
  if (w.launch->call->checked) check_barrier(w, w.barrier_flags, w.barrier_site);
  for (gcm_u32 i = 0; i < w.n_groups; i++) {
    gcm_simdgroup& g = w.groups[i];
    g.ready = (gcm_u32)g.live;
    g.at_barrier = 0;
    pack(w, g);
  }
  w.at_barrier = 0;
  w.barrier_uneven = false;
  w.current = first_group(w);
  if (schedule_of(w) == GCM_RANDOM) new_priorities(w);
}

// Whoever is at `site` has taken some steps.
static void spend(Worker& w, gcm_fiber* self, long steps, gcm_u32 site) {
  if ((w.steps -= steps) >= 0) return;
  w.steps = steps_of_look;
  if (!out_of_time(*w.launch)) return;
  gcm_report report = late(w, self);
  report.line = gcm::site_line(site);
  report.column = gcm::site_column(site);
  record(report);
  stop(w, self);
}

// The fiber to go on with after `self`, which cannot or need not; the OS thread's own when all have returned.
static gcm_fiber* choose(Worker& w, gcm_fiber* self) {
  while (w.live) {
    gcm_simdgroup* g = whose_turn(w);
    if (!g) {
      release_barrier(w);
      self = nullptr;
      continue;
    }
    w.current = g->index;
    if (const gcm_u32 ready = can_run(*g)) {
      gcm_fiber* lane = self && self->group == g ? self->next : g->first;
      while (!(ready & lane->bit)) lane = lane->next;
      return lane;
    }
    unpack(*g);
    serve(w, *g);
    let_others(w, *g);
    self = nullptr;
  }
  return &w.root;
}

static void go_on(Worker& w, gcm_fiber* self) {
  // Its simdgroup keeps its turn while a lane can run: no schedule parts the lanes of one.
  const gcm_u32 ready = self->group->ready;
  gcm_fiber* next = self->next;
  if (ready)
    while (!(ready & next->bit)) next = next->next;
  else next = choose(w, self);
  if (next == self) return;
  w.switches++;
  gcm::switch_fiber(self, next);
}

// ---- what fibers call

GCM_EXPORT void gcm_wait(gcm_fiber* self, gcm_u64 key, gcm_u32 site, gcm_resolver resolve) {
  gcm_simdgroup& g = *self->group;
  Worker& w = worker_of(&g);
  spend(w, self, 1, site);
  w.fruitless = 0;
  unpack(g);
  self->key = key;
  self->site = site;
  self->resolve = resolve;
  g.apart |= self->bit;
  g.ready &= ~self->bit;
  go_on(w, self);
}

GCM_EXPORT void gcm_served(gcm_fiber* self) {
  gcm_simdgroup& g = *self->group;
  Worker& w = worker_of(&g);
  const long spent = g.fuelled - g.fuel;
  w.collectives += spent;
  spend(w, self, spent, g.site);
  g.fuel = g.fuelled;
  let_others(w, g);
  gcm_fiber* next = choose(w, self);
  if (next == self) return;
  w.switches++;
  gcm::switch_fiber(self, next);
}

GCM_EXPORT void gcm_wait_barrier(gcm_fiber* self, gcm_u32 flags, gcm_u32 site) {
  gcm_simdgroup& g = *self->group;
  Worker& w = worker_of(&g);
  spend(w, self, 1, site);
  w.fruitless = 0;
  unpack(g);
  self->site = site;
  self->key = self->stamp;
  if (w.at_barrier++ == 0) {
    w.barrier_site = site;
    w.barrier_flags = flags;
    w.barrier_stamp = self->stamp;
  } else if (w.barrier_site != site || w.barrier_stamp != self->stamp) {
    w.barrier_uneven = true;
    w.barrier_flags &= flags;
  }
  g.at_barrier |= self->bit;
  g.ready &= ~self->bit;
  go_on(w, self);
}

void finish(gcm_fiber* self) {
  gcm_simdgroup& g = *self->group;
  Worker& w = worker_of(&g);
  w.fruitless = 0;
  unpack(g);
  g.live &= ~(gcm_u64)self->bit;
  g.ready &= ~self->bit;
  g.stale = 1;
  w.live--;
  go_on(w, self);
  __builtin_unreachable();
}

void run_another(Worker& w, gcm_fiber* self) {
  unpack(*self->group);
  for (gcm_u32 i = 0, at = self->group->index; i < w.n_groups; i++, at = (at + 1) % w.n_groups) {
    gcm_simdgroup& g = w.groups[at];
    if (!can_run(g) && can_move(g)) {
      unpack(g);
      serve(w, g);
    }
    const gcm_u32 others = can_run(g) & ~(&g == self->group ? self->bit : 0);
    if (!others) continue;
    gcm_fiber* lane = &g == self->group ? self->next : g.first;
    while (!(others & lane->bit)) lane = lane->next;
    w.switches++;
    w.current = at;
    gcm::switch_fiber(self, lane);
    return;
  }
}

void stop(Worker& w, gcm_fiber* self) {
  w.launch->stopped = true;
  gcm_fiber nowhere;
  gcm::switch_fiber(self ? self : &nowhere, &w.root);
  __builtin_unreachable();
}

// ---- a threadgroup from beginning to end

static gcm_u32 ragged(gcm_u32 size, gcm_u32 at, gcm_u32 whole) { return std::min(size, whole - at * size); }

static void lay_out(Worker& w, gcm_u3 group, gcm_u3 shape) {
  const Launch& launch = *w.launch;
  w.threads = shape.x * shape.y * shape.z;
  w.n_groups = (w.threads + GCM_LANES - 1) / GCM_LANES;
  prepare_stacks(w, w.threads);
  gcm_thread thread{};
  thread.threadgroup_position = group;
  thread.grid = launch.grid;
  thread.threadgroup_size = shape;
  thread.dispatched_threadgroup = launch.threadgroup;
  thread.threadgroups = launch.threadgroups;
  thread.simdgroups = w.n_groups;
  gcm_u32 i = 0;
  for (gcm_u32 z = 0; z < shape.z; z++)
    for (gcm_u32 y = 0; y < shape.y; y++)
      for (gcm_u32 x = 0; x < shape.x; x++, i++) {
        gcm_fiber* fiber = fiber_at(w, i);
        thread.position_in_threadgroup = {x, y, z};
        thread.position_in_grid = {group.x * launch.threadgroup.x + x, group.y * launch.threadgroup.y + y, group.z * launch.threadgroup.z + z};
        thread.index_in_threadgroup = i;
        thread.lane = i % GCM_LANES;
        thread.simdgroup = i / GCM_LANES;
        fiber->place = thread;
        fiber->group = &w.groups[i / GCM_LANES];
        fiber->bit = 1u << i % GCM_LANES;
        start_fiber(w, fiber, i);
      }
}

extern "C" int gcm_simd_order;

void run_threadgroup(Worker& w, gcm_u32 index) {
  const Launch& launch = *w.launch;
  const gcm_u3 n = launch.threadgroups;
  const gcm_u3 at = {index % n.x, index / n.x % n.y, index / n.x / n.y};
  w.group_index = index;
  w.random = (launch.call->seed + 1) * 0x9E3779B97F4A7C15ull ^ (index + 1) * 0xD1B54A32D192ED03ull;
  lay_out(w, at, {ragged(launch.threadgroup.x, at.x, launch.grid.x), ragged(launch.threadgroup.y, at.y, launch.grid.y), ragged(launch.threadgroup.z, at.z, launch.grid.z)});
  const bool even = launch.call->schedule == GCM_IN_ORDER || launch.call->schedule == GCM_REVERSE;
  for (gcm_u32 i = 0; i < w.n_groups; i++) {
    gcm_simdgroup& g = w.groups[i];
    const gcm_u32 lanes = std::min(GCM_LANES, w.threads - i * GCM_LANES);
    g = {};
    g.live = g.members = ~0u >> (GCM_LANES - lanes);
    g.lanes = fiber_at(w, i * GCM_LANES);
    g.fuel = g.fuelled = even ? fuel_of_even : 0;
    g.order = (gcm_u32)gcm_simd_order;
    g.index = i;
    link(w, g);
  }
  w.live = w.threads;
  w.at_barrier = 0;
  w.barrier_uneven = false;
  w.fruitless = 0;
  w.n_variables = 0;
  w.arena_used = w.declared = 0;
  w.current = first_group(w);
  if (launch.call->schedule == GCM_RANDOM) new_priorities(w);
  if (launch.call->checked) check_threadgroup_begins(w);
  gcm::switch_fiber(&w.root, choose(w, nullptr));
  for (gcm_u32 i = 0; i < w.n_groups; i++) w.collectives += w.groups[i].fuelled - w.groups[i].fuel;
}

// In which order threadgroups are run.
gcm_u32 threadgroup_in_turn(const Launch& launch, gcm_u32 i) {
  if (launch.call->schedule == GCM_REVERSE) return launch.total - 1 - i;
  if (launch.call->schedule != GCM_RANDOM) return i;
  // i -> a i + b mod total runs through all of them if a and total have no common factor.
  gcm_u64 a = (launch.call->seed * 0x9E3779B97F4A7C15ull >> 33) % launch.total | 1;
  for (;; a += 2) {
    gcm_u64 x = a, y = launch.total;
    while (y) {
      const gcm_u64 rest = x % y;
      x = y;
      y = rest;
    }
    if (x == 1) break;
  }
  return (gcm_u32)((a * i + launch.call->seed) % launch.total);
}

// ---- reports of collectives

GCM_EXPORT void gcm_lane_missing(gcm_simdgroup* group, gcm_u32 lane, gcm_u32 wanted) {
  Worker& w = worker_of(group);
  gcm_report report = finding(GCM_SIMD_DIVERGENCE, &w, &group->lanes[lane]);
  report.line = gcm::site_line(group->site);
  report.column = gcm::site_column(group->site);
  if (wanted >= GCM_LANES) detail_finding(report, "lane %u reads a lane beyond the end of its group", lane);
  else {
    report.thread2 = group->index * GCM_LANES + wanted;
    report.group2 = w.group_index;
    const char* why = group->members >> wanted & 1 ? "takes no part" : "does not exist: the simdgroup is not full";
    detail_finding(report, "lane %u reads lane %u, which %s", lane, wanted, why);
  }
  record(report);
}
