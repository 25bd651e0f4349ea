#include "runtime_kernels.h"

// ---- collectives, where lanes part and meet

KERNEL(both_branches) {
  if (lane < 16) out[gid] = simd_sum(1.0f);
  else out[gid] = simd_sum(2.0f);
  out[gid] += 100 * simd_sum(1.0f);
}
KERNEL(as_often_as_lane) {
  float sum = 0;
  LOOP(m, for (uint i = 0; i < lane; i++)) sum += simd_sum(1.0f); END
  out[gid] = sum + 1000 * simd_sum(1.0f);
}
KERNEL(every_other_iteration) {
  float sum = 0;
  LOOP(m, for (uint i = 0; i < 4; i++)) if ((lane + i) % 2) sum += simd_sum(1.0f); END
  out[gid] = sum + 1000 * simd_sum(1.0f);
}
KERNEL(nested) {
  float sum = 0;
  LOOP(m, for (uint i = 0; i < 2; i++))
    LOOP(n, for (uint j = 0; j < lane % 3; j++)) sum += simd_sum(1.0f); END
  END
  out[gid] = sum + 1000 * simd_sum(1.0f);
}
KERNEL(with_continue) {
  float sum = 0;
  LOOP(m, for (uint i = 0; i < 3; i++)) if (lane == i) continue; sum += simd_sum(1.0f); END
  out[gid] = sum + 1000 * simd_sum(1.0f);
}
KERNEL(with_break) {
  float sum = 0;
  LOOP(m, for (uint i = 0; i < 4; i++)) if (lane == i) break; sum += simd_sum(1.0f); END
  out[gid] = sum + 1000 * simd_sum(1.0f);
}
KERNEL(some_return) {
  if (lane >= 20) {
    out[gid] = -1;
    return;
  }
  out[gid] = simd_sum(1.0f);
}
// Half of the lanes are two collectives ahead, in one that is of another type.
KERNEL(mixed_types) {
  if (lane % 2) {
    const float4 v = simd_shuffle_xor(float4(lane), ushort(2));
    const half h = simd_sum(half(v[3]));
    out[gid] = float(h);
  } else {
    out[gid] = float(simd_max(ushort(lane))) + float(simd_max(long(lane) << 40) >> 40);
  }
}
KERNEL(barrier_after_branch) {
  SHARED(float[128], shared);
  shared[tid] = 0;
  if (lane < 8) shared[tid] = simd_sum(1.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[127 - tid];
}

// ---- values of the collectives

KERNEL(sum) { out[gid] = simd_sum(in[gid]); }
KERNEL(half_sum) { out[gid] = float(simd_sum(half(in[gid]))); }
KERNEL(every_collective) {
  const float x = in[gid];
  float* o = out + gid * 40;
  uint n = 0;
  o[n++] = simd_sum(x), o[n++] = simd_max(x), o[n++] = simd_min(x), o[n++] = simd_product(x / 8 + 1);
  o[n++] = float(simd_and(lane | 8)), o[n++] = float(simd_or(lane & 5)), o[n++] = float(simd_xor(lane * 3));
  o[n++] = simd_prefix_inclusive_sum(x), o[n++] = simd_prefix_exclusive_sum(x), o[n++] = simd_prefix_exclusive_product(x / 8 + 1);
  o[n++] = simd_shuffle(x, ushort(lane / 2)), o[n++] = simd_broadcast(x, 3), o[n++] = simd_broadcast_first(x), o[n++] = simd_shuffle_xor(x, 5);
  o[n++] = simd_shuffle_down(x, 3), o[n++] = simd_shuffle_up(x, 3), o[n++] = simd_shuffle_rotate_down(x, 3), o[n++] = simd_shuffle_rotate_up(x, 3);
  o[n++] = simd_shuffle_and_fill_down(x, -x, 3), o[n++] = simd_shuffle_and_fill_up(x, -x, 3);
  o[n++] = simd_shuffle_and_fill_down(x, -x, 1, 8), o[n++] = simd_shuffle_and_fill_up(x, -x, 1, 8);
  o[n++] = float(ulong(simd_ballot(lane % 3 == 0)) % 65536), o[n++] = simd_any(lane == 7), o[n++] = simd_all(lane != 7), o[n++] = simd_is_first();
  o[n++] = quad_sum(x), o[n++] = quad_max(x), o[n++] = quad_broadcast(x, 2), o[n++] = quad_shuffle_xor(x, 3), o[n++] = quad_shuffle_down(x, 1), o[n++] = quad_shuffle_up(x, 1);
  o[n++] = quad_prefix_inclusive_sum(x), o[n++] = float(ulong(quad_ballot(lane % 2))), o[n++] = quad_all(lane < 5), o[n++] = quad_is_first();
  o[n++] = quad_shuffle_rotate_up(x, 1), o[n++] = simd_active_threads_mask().all(), o[n++] = simd_sum(float2(x, 2 * x)).y, o[n++] = simd_max(int(lane) - 40);
}
// A state that stays on the stack across many waits, through a function that is not inlined.
__attribute__((noinline)) static float deep(float x) { return simd_sum(x) + simd_shuffle_xor(x, 1); }
KERNEL(long_lived) {
  float state[4] = {in[gid], 1, 2, 3};
  LOOP(m, for (int t = 0; t < 50; t++))
    float s = 0;
    for (int i = 0; i < 4; i++) s += state[i] * 0.01f;
    const float all = deep(s);
    for (int i = 0; i < 4; i++) state[i] = 0.9f * state[i] + 0.01f * all * (i + 1);
  END
  out[gid] = state[0] + state[1] + state[2] + state[3];
}
KERNEL(positions) {
  const gcm_thread& t = gcm::self()->place;
  uint* o = (uint*)out + (t.position_in_grid.x + t.grid.x * (t.position_in_grid.y + t.grid.y * t.position_in_grid.z)) * 8;
  o[0] = t.position_in_threadgroup.x + 10 * t.position_in_threadgroup.y + 100 * t.position_in_threadgroup.z;
  o[1] = t.threadgroup_position.x + 10 * t.threadgroup_position.y + 100 * t.threadgroup_position.z;
  o[2] = t.threadgroup_size.x + 10 * t.threadgroup_size.y + 100 * t.threadgroup_size.z;
  o[3] = t.threadgroups.x + 10 * t.threadgroups.y + 100 * t.threadgroups.z;
  o[4] = t.index_in_threadgroup, o[5] = t.lane, o[6] = t.simdgroup, o[7] = t.simdgroups;
}
extern "C" __attribute__((visibility("default"))) void doubled_loop(void* const* buffers, const gcm_thread* shape, gcm_u32 first, gcm_u32 last) {
  for (gcm_u32 i = first * shape->dispatched_threadgroup.x; i < last * shape->dispatched_threadgroup.x && i < shape->grid.x; i++)
    ((float*)buffers[1])[i] = 2 * ((const float*)buffers[0])[i];
}
KERNEL(doubled) { out[gid] = 2 * in[gid]; }

// ---- one defect each; `_right` is the same without it

template <int how>
__attribute__((always_inline)) inline void reverse_in_threadgroup(const float* in, float* out, uint tid, uint gid) {
  SHARED(float[128], shared);
  shared[tid] = in[gid];
  if (how == 1) threadgroup_barrier(mem_flags::mem_threadgroup);
  if (how == 2) threadgroup_barrier(mem_flags::mem_device);
  if (how == 3) simdgroup_barrier(mem_flags::mem_threadgroup);
  if (how == 4) threadgroup_barrier(mem_flags::mem_none);
  out[gid] = shared[127 - tid];
}
KERNEL(exchange_right) { reverse_in_threadgroup<1>(in, out, tid, gid); }
KERNEL(exchange_without_barrier) { reverse_in_threadgroup<0>(in, out, tid, gid); }
KERNEL(exchange_wrong_flags) { reverse_in_threadgroup<2>(in, out, tid, gid); }
KERNEL(exchange_simdgroup_barrier) { reverse_in_threadgroup<3>(in, out, tid, gid); }
KERNEL(exchange_no_flags) { reverse_in_threadgroup<4>(in, out, tid, gid); }

template <int how>
__attribute__((always_inline)) inline void swap_in_simdgroup(const float* in, float* out, uint tid, uint gid) {
  SHARED(float[128], shared);
  shared[tid] = in[gid];
  if (how == 1) simdgroup_barrier(mem_flags::mem_threadgroup);
  if (how == 2) simdgroup_barrier(mem_flags::mem_none);
  out[gid] = shared[tid ^ 1];
}
KERNEL(swap_right) { swap_in_simdgroup<1>(in, out, tid, gid); }
KERNEL(swap_without_barrier) { swap_in_simdgroup<0>(in, out, tid, gid); }
KERNEL(swap_no_flags) { swap_in_simdgroup<2>(in, out, tid, gid); }

// What mlx-lm's loss kernels do: the cells are written again while another simdgroup may still have to read them.
template <bool right>
__attribute__((always_inline)) inline void reused(const float* in, float* out, uint tid, uint gid, uint lane) {
  SHARED(float[4], shared);
  const float most = simd_max(in[gid]);
  if (lane == 0) shared[tid / 32] = most;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float all = larger(larger(shared[0], shared[1]), larger(shared[2], shared[3]));
  if (right) threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = simd_sum(in[gid] / all);
  if (lane == 0) shared[tid / 32] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[0] + shared[1] + shared[2] + shared[3];
}
KERNEL(reuse_right) { reused<true>(in, out, tid, gid, lane); }
KERNEL(reuse_without_barrier) { reused<false>(in, out, tid, gid, lane); }

KERNEL(add_across_groups) { out[0] += in[gid]; }
KERNEL(add_across_groups_right) { atomic_fetch_add_explicit((device atomic<float>*)out, in[gid], memory_order_relaxed); }
KERNEL(add_half_atomic) {
  if (gid == 0) out[0] += in[gid];
  else atomic_fetch_add_explicit((device atomic<float>*)out, in[gid], memory_order_relaxed);
}
KERNEL(read_across_groups) {
  out[gid] = in[gid];
  threadgroup_barrier(mem_flags::mem_device);
  if (gid == 0) out[gid] = out[255];
}
KERNEL(read_across_groups_right) {
  out[gid] = in[gid];
  threadgroup_barrier(mem_flags::mem_device);
  if (tid == 0) out[gid] = out[gid + 127];
}
KERNEL(device_exchange_wrong_flags) {
  out[gid] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) out[gid] = out[gid + 127];
}
KERNEL(all_write_same) { out[group] = 7; (void)lane; }
KERNEL(all_write_same_right) { if (tid == 0) out[group] = 7; }
KERNEL(all_write_own) { out[group] = float(gid); }
// One reads what all write alike, and what it reads is the same before and after.
KERNEL(writes_what_is_there) {
  if (tid == 0) out[group] = 7;
  threadgroup_barrier(mem_flags::mem_device);
  if (tid == 1 && out[group] != 7) out[group] = 9;
  if (tid == 2) out[group] = 7;
}
KERNEL(neighbouring_halves) { ((half*)out)[gid] = half(in[gid]); }
KERNEL(neighbouring_bytes) { ((uchar*)out)[gid] = uchar(gid); }
KERNEL(overlapping_bytes) { ((uchar*)out)[gid / 2 * 2] = uchar(gid); if (gid % 2) ((uchar*)out)[gid] = 1; }

KERNEL(read_behind) { out[gid] = in[gid + 1]; }
KERNEL(read_before) { out[gid] = in[int(gid) - 1]; }
KERNEL(write_behind) { out[gid + 1] = in[gid]; }
KERNEL(write_far) { out[gid + (1ul << 40)] = in[gid]; }
KERNEL(read_behind_shared) {
  SHARED(float[128], shared);
  shared[tid] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[tid + 1];
}
KERNEL(in_bounds_right) { out[gid] = in[gid]; }
KERNEL(uninitialised) {
  SHARED(float[128], shared);
  if (tid < 100) shared[tid] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[127 - tid];
}
KERNEL(uninitialised_right) {
  SHARED(float[128], shared);
  shared[tid] = tid < 100 ? in[gid] : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[127 - tid];
}
KERNEL(reads_output) { out[gid] += in[gid]; }
KERNEL(writes_input) { ((float*)in)[gid] = 1; out[gid] = in[gid]; }
KERNEL(leaves_gaps) { if (gid % 2) out[gid] = in[gid]; }
KERNEL(misaligned_vector) { const device float4& v = *(const device float4*)(in + gid / 4 * 4 + 1 - (gid >= 252)); out[gid] = v.x + v.y; }
KERNEL(misaligned_pair) { const device float2& v = *(const device float2*)(in + gid / 2 * 2 + (gid < 128)); out[gid] = v.x + v.y; }
KERNEL(aligned_right) { const device float4& v = *(const device float4*)(in + gid / 4 * 4); out[gid] = v.x + v.y; }

KERNEL(barrier_after_return) {
  out[gid] = in[gid];
  if (tid >= 96) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
KERNEL(two_barriers) {
  out[gid] = in[gid];
  if (tid < 32) threadgroup_barrier(mem_flags::mem_threadgroup);
  else threadgroup_barrier(mem_flags::mem_threadgroup);
}
KERNEL(barrier_out_of_step) {
  out[gid] = in[gid];
  LOOP(m, for (uint i = 0; i < 2; i++)) if (i == 0 && tid < 32) continue; threadgroup_barrier(mem_flags::mem_threadgroup); END
}
KERNEL(loops_alike) {
  out[gid] = in[gid];
  LOOP(m, for (uint i = 0; i < 3; i++)) threadgroup_barrier(mem_flags::mem_threadgroup); END
}
KERNEL(barrier_right) {
  out[gid] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
KERNEL(asks_absent_lane) { out[gid] = lane < 16 ? simd_shuffle(in[gid], ushort(lane + 16)) : in[gid]; }
KERNEL(asks_absent_lane_right) { const float x = simd_shuffle(in[gid], ushort((lane + 16) % 32)); out[gid] = lane < 16 ? x : in[gid]; }
// Many places, each with a finding of its own.
template <int k>
__attribute__((noinline)) static void one_place(float* out) { ((volatile float*)out)[k] = 1; }
template <int... k>
static void many_places(float* out, int_list<k...>) { (one_place<k>(out), ...); }
KERNEL(many_findings) { many_places(out, typename int_range<80>::type()); (void)lane; }
KERNEL(shifts_too_far) { out[gid] = float(1u << (uint(in[gid]) * 0 + 40)); }
KERNEL(divides_by_zero) { out[gid] = float(7 / (int(in[gid]) * 0)); }
KERNEL(index_outside) { float a[4] = {1, 2, 3, 4}; volatile int i = 4; const int k = i; if (k < 4) a[0] = 5; out[gid] = k < 8 ? a[k] : 0; }

KERNEL(spins) {
  threadgroup_barrier(mem_flags::mem_none);
  if (tid == 0) while (atomic_load_explicit((device atomic<uint>*)out, memory_order_relaxed) == 0) {}
  threadgroup_barrier(mem_flags::mem_none);
}
KERNEL(spins_right) {
  if (tid == 0) while (atomic_load_explicit((device atomic<uint>*)out, memory_order_relaxed) == 0) {}
  if (tid == 64) atomic_store_explicit((device atomic<uint>*)out, 1u, memory_order_relaxed);
}
KERNEL(much_threadgroup_memory) {
  SHARED(float[8192], most);
  SHARED(float[1], more);
  most[tid] = in[gid], more[0] = 0;
  out[gid] = most[tid];
}
KERNEL(much_threadgroup_memory_right) {
  SHARED(float[8192], most);
  most[tid] = in[gid];
  out[gid] = most[tid];
}
KERNEL(never_ends_waiting) {
  float x = in[gid];
  LOOP(m, while (x > -1)) x = simd_max(x); END
  out[gid] = x;
}
KERNEL(never_ends_reading) {
  while (((const volatile float*)in)[gid] > -1) {}
  out[gid] = 1;
}
__attribute__((noinline, optnone)) static float recurse(float x, int depth) {
  volatile float a[256];
  a[depth & 255] = x;
  return depth ? recurse(x + 1, depth - 1) + a[depth & 255] : x;
}
KERNEL(recurses_deeply) { out[gid] = recurse(in[gid], 1000); }
KERNEL(recurses_right) { out[gid] = recurse(in[gid], 20); }
KERNEL(stray_pointer) { *(volatile float*)(ulong(in[gid]) * 0 + 64) = 1; out[gid] = 0; }
