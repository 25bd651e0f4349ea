// simd_* and quad_* functions: the lanes of a simdgroup meet, the last to arrive computes every lane's result, each goes on with its own.
#pragma once
#include "gcm/fiber.h"
#include "gcm/vector.h"

#define GCM_EXPORTED __attribute__((visibility("default")))

namespace gcm {

#define GCM_HERE gcm::here at = gcm::here()

// Puts the lane's value and argument down and waits until its simdgroup is served. Where all lanes do the same, which is nearly always,
// this is a handful of instructions and one switch to the next lane; everything else is left to the runtime.
GCM_INNER gcm_fiber* arrive(gcm_fiber* fiber, gcm_u32 site, gcm_resolver resolve) {
  gcm_simdgroup* group = fiber->group;
  const gcm_u64 key = fiber->stamp + site_key(site) + (gcm_u64)resolve;
  const gcm_u64 before = group->waiting;
  if (before == 0) {
    group->key = key;
    group->resolve = resolve;
    group->site = site;
  } else if (__builtin_expect(group->key != key, 0)) {
    gcm_wait(fiber, key, site, resolve);
    return fiber;
  }
  const gcm_u64 waiting = before | fiber->bit;
  group->waiting = waiting;
  if (waiting == group->live) {
    group->waiting = 0;
    resolve(group, (gcm_u32)waiting);
    if (__builtin_expect(--group->fuel < 0, 0)) {
      gcm_served(fiber);
      return fiber;
    }
  }
  return switch_fiber(fiber, fiber->next);
}

// A meeting of lanes: `value` in, this lane's result out. What happens in between is up to `resolve`.
template <class R, class T>
GCM_INNER R meet(T value, gcm_u32 argument, gcm_u32 site, gcm_resolver resolve) {
  static_assert(sizeof(T) <= sizeof(gcm_fiber::value) && sizeof(R) <= sizeof(gcm_fiber::value), "a lane hands over 32 bytes at most");
  gcm_fiber* fiber = self();
  __builtin_memcpy(fiber->value, &value, sizeof(T));
  fiber->argument = argument;
  fiber = arrive(fiber, site, resolve);
  R result;
  __builtin_memcpy(&result, fiber->value, sizeof(R));
  return result;
}

template <class T>
GCM_INNER T lane_value(const gcm_simdgroup* group, gcm_u32 lane) {
  T value;
  __builtin_memcpy(&value, group->lanes[lane].value, sizeof(T));
  return value;
}
template <class T>
GCM_INNER void set_lane_value(gcm_simdgroup* group, gcm_u32 lane, T value) {
  __builtin_memcpy(group->lanes[lane].value, &value, sizeof(T));
}
GCM_INNER bool has(gcm_u32 mask, gcm_u32 lane) { return mask >> lane & 1; }

enum order { ascending = 0, descending = 1, sequential = 2 };  // of a reduction; ascending: partners at distance 1, 2, 4, 8, 16

// Reduction over lanes [first, first + Width) of which those in `mask` take part; lanes that do not are skipped, not replaced by a neutral value.
// In a butterfly all lanes get the same bits, since every operation here commutes: so one of them is computed.
template <class T, class Op, gcm_u32 Width>
GCM_INNER T combine(const gcm_simdgroup* group, gcm_u32 mask, gcm_u32 first) {
  T part[Width];
  if (group->order == ascending && mask >> first == (~0u >> (32 - Width))) {
#pragma clang loop unroll(full)
    for (gcm_u32 i = 0; i < Width; i++) part[i] = lane_value<T>(group, first + i);
#pragma clang loop unroll(full)
    for (gcm_u32 distance = 1; distance < Width; distance *= 2) {
#pragma clang loop unroll(full)
      for (gcm_u32 i = 0; i < Width; i += 2 * distance) part[i] = Op::apply(part[i], part[i + distance]);
    }
    return part[0];
  }
  bool there[Width];
  for (gcm_u32 i = 0; i < Width; i++) {
    there[i] = has(mask, first + i);
    if (there[i]) part[i] = lane_value<T>(group, first + i);
  }
  auto join = [&](gcm_u32 a, gcm_u32 b) GCM_UNWATCHED {
    if (there[b]) part[a] = there[a] ? Op::apply(part[a], part[b]) : part[b];
    there[a] = there[a] || there[b];
  };
  if (group->order == descending) {
    for (gcm_u32 distance = Width / 2; distance; distance /= 2)
      for (gcm_u32 i = 0; i < distance; i++) join(i, i + distance);
  } else if (group->order == sequential) {
    for (gcm_u32 i = 1; i < Width; i++) join(0, i);
  } else {
    for (gcm_u32 distance = 1; distance < Width; distance *= 2)
      for (gcm_u32 i = 0; i < Width; i += 2 * distance) join(i, i + distance);
  }
  return part[0];
}

template <class T, class Op, gcm_u32 Width>
GCM_OUTLINED void reduce(gcm_simdgroup* group, gcm_u32 mask) {
  for (gcm_u32 first = 0; first < GCM_LANES; first += Width) {
    const gcm_u32 part = mask & (~0u >> (32 - Width)) << first;
    if (!part) continue;
    const T result = combine<T, Op, Width>(group, part, first);
    // Lanes that take no part may be waiting with a value of their own.
    if (part == ~0u) {
#pragma clang loop unroll(full)
      for (gcm_u32 i = 0; i < GCM_LANES; i++) set_lane_value(group, i, result);
    } else {
      for (gcm_u32 i = first; i < first + Width; i++)
        if (has(part, i)) set_lane_value(group, i, result);
    }
  }
}

template <class T, class Op, bool Inclusive, gcm_u32 Width>
GCM_OUTLINED void scan(gcm_simdgroup* group, gcm_u32 mask) {
  for (gcm_u32 first = 0; first < GCM_LANES; first += Width) {
    T sum = Op::template neutral<T>();
    bool some = false;
    for (gcm_u32 i = first; i < first + Width; i++) {
      if (!has(mask, i)) continue;
      const T value = lane_value<T>(group, i), next = some ? Op::apply(sum, value) : value;
      set_lane_value(group, i, Inclusive ? next : sum);
      sum = next;
      some = true;
    }
  }
}

constexpr gcm_u32 keep = ~0u;  // the argument of a lane that asks no other

// Each lane gets the value of the lane that its argument names. One that is not there leaves the value as it was, and is reported.
template <class T>
GCM_OUTLINED void shuffle(gcm_simdgroup* group, gcm_u32 mask) {
  T value[GCM_LANES];
  for (gcm_u32 i = 0; i < GCM_LANES; i++)
    if (has(mask, i)) value[i] = lane_value<T>(group, i);
  for (gcm_u32 i = 0; i < GCM_LANES; i++) {
    const gcm_u32 from = group->lanes[i].argument;
    if (!has(mask, i) || from == keep) continue;
    if (from < GCM_LANES && has(mask, from)) set_lane_value(group, i, value[from]);
    else gcm_lane_missing(group, i, from);
  }
}

template <class T>
struct filled { T data, filling; };
constexpr gcm_u32 from_filling = 1u << 8;  // added to a lane that is asked for its filling

template <class T>
GCM_OUTLINED void shuffle_filled(gcm_simdgroup* group, gcm_u32 mask) {
  filled<T> value[GCM_LANES];
  for (gcm_u32 i = 0; i < GCM_LANES; i++)
    if (has(mask, i)) value[i] = lane_value<filled<T>>(group, i);
  for (gcm_u32 i = 0; i < GCM_LANES; i++) {
    if (!has(mask, i)) continue;
    const gcm_u32 from = group->lanes[i].argument, lane = from & ~from_filling;
    const bool there = lane < GCM_LANES && has(mask, lane);
    if (!there) gcm_lane_missing(group, i, lane);
    set_lane_value(group, i, !there ? value[i].data : from & from_filling ? value[lane].filling : value[lane].data);
  }
}

template <gcm_u32 Width, class T>
GCM_OUTLINED void first_lane(gcm_simdgroup* group, gcm_u32 mask) {
  for (gcm_u32 first = 0; first < GCM_LANES; first += Width) {
    const gcm_u32 part = mask & (~0u >> (32 - Width)) << first;
    for (gcm_u32 i = first; i < first + Width; i++)
      if (has(part, i)) set_lane_value(group, i, lane_value<T>(group, (gcm_u32)__builtin_ctz(part)));
  }
}

// Every lane gets the mask of its simdgroup or quad (from bit 0 on) in which a true value stood, and the mask of those that take part.
struct votes { gcm_u32 yes, all; };
template <gcm_u32 Width>
GCM_OUTLINED void vote(gcm_simdgroup* group, gcm_u32 mask) {
  gcm_u32 yes = 0;
  for (gcm_u32 i = 0; i < GCM_LANES; i++)
    if (has(mask, i) && lane_value<gcm_u32>(group, i)) yes |= 1u << i;
  for (gcm_u32 i = 0; i < GCM_LANES; i++) {
    const gcm_u32 shift = i / Width * Width, width = ~0u >> (32 - Width);
    if (has(mask, i)) set_lane_value(group, i, votes{yes >> shift & width, mask >> shift & width});
  }
}

GCM_INNER gcm_u32 lane() { return self()->place.lane; }

// NaN gives way to a number, as in fmax and fmin. Vectors reduce by component.
struct larger {
  template <class T> GCM_INNER static T apply(T a, T b) { return map([](auto x, auto y) GCM_UNWATCHED { return y > x || x != x ? y : x; }, a, b); }
};
struct smaller {
  template <class T> GCM_INNER static T apply(T a, T b) { return map([](auto x, auto y) GCM_UNWATCHED { return y < x || x != x ? y : x; }, a, b); }
};
struct plus {
  template <class T> GCM_INNER static T apply(T a, T b) { return T(a + b); }
  template <class T> GCM_INNER static T neutral() { return T(0.0f); }
};
struct times {
  template <class T> GCM_INNER static T apply(T a, T b) { return T(a * b); }
  template <class T> GCM_INNER static T neutral() { return T(1.0f); }
};
struct bits_and { template <class T> GCM_INNER static T apply(T a, T b) { return T(a & b); } };
struct bits_or { template <class T> GCM_INNER static T apply(T a, T b) { return T(a | b); } };
struct bits_xor { template <class T> GCM_INNER static T apply(T a, T b) { return T(a ^ b); } };

// The runtime has these; a kernel does not compile its own.
#ifdef GCM_DEFINE_COMMON
#define GCM_COMMON template GCM_EXPORTED
#else
#define GCM_COMMON extern template GCM_EXPORTED
#endif
GCM_COMMON void reduce<float, plus, 32>(gcm_simdgroup*, gcm_u32);
GCM_COMMON void reduce<float, larger, 32>(gcm_simdgroup*, gcm_u32);
GCM_COMMON void reduce<float, smaller, 32>(gcm_simdgroup*, gcm_u32);
GCM_COMMON void shuffle<float>(gcm_simdgroup*, gcm_u32);
#undef GCM_COMMON

}  // namespace gcm

namespace metal {

#define GCM_REDUCTION(name, op) \
  template <class T> GCM_RUNTIME T simd_##name(T value, GCM_HERE) { return gcm::meet<T>(value, 0, at.site, &gcm::reduce<T, gcm::op, 32>); } \
  template <class T> GCM_RUNTIME T quad_##name(T value, GCM_HERE) { return gcm::meet<T>(value, 0, at.site, &gcm::reduce<T, gcm::op, 4>); }
GCM_REDUCTION(sum, plus)
GCM_REDUCTION(product, times)
GCM_REDUCTION(max, larger)
GCM_REDUCTION(min, smaller)
GCM_REDUCTION(and, bits_and)
GCM_REDUCTION(or, bits_or)
GCM_REDUCTION(xor, bits_xor)
#undef GCM_REDUCTION

#define GCM_PREFIX(name, op, inclusive) \
  template <class T> GCM_RUNTIME T simd_prefix_##name(T value, GCM_HERE) { return gcm::meet<T>(value, 0, at.site, &gcm::scan<T, gcm::op, inclusive, 32>); } \
  template <class T> GCM_RUNTIME T quad_prefix_##name(T value, GCM_HERE) { return gcm::meet<T>(value, 0, at.site, &gcm::scan<T, gcm::op, inclusive, 4>); }
GCM_PREFIX(inclusive_sum, plus, true)
GCM_PREFIX(exclusive_sum, plus, false)
GCM_PREFIX(inclusive_product, times, true)
GCM_PREFIX(exclusive_product, times, false)
#undef GCM_PREFIX

// Shuffles. `width` lanes form a group: 32 for a simdgroup, 4 for a quad. A lane that would be asked for beyond the group's end leaves the value
// as it is in _up and _down, and wraps in the rotations.
#define GCM_SHUFFLES(prefix, width) \
  template <class T> GCM_RUNTIME T prefix##_shuffle(T value, unsigned short lane, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(); \
    return gcm::meet<T>(value, lane < width ? me / width * width + lane : lane + GCM_LANES, at.site, &gcm::shuffle<T>); \
  } \
  template <class T> GCM_RUNTIME T prefix##_broadcast(T value, unsigned short lane, GCM_HERE) { return prefix##_shuffle(value, lane, at); } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_xor(T value, unsigned short mask, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(); \
    return prefix##_shuffle(value, (unsigned short)(me % width ^ mask), at); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_down(T value, unsigned short delta, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(); \
    return gcm::meet<T>(value, me % width + delta < width ? me + delta : gcm::keep, at.site, &gcm::shuffle<T>); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_up(T value, unsigned short delta, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(); \
    return gcm::meet<T>(value, me % width >= delta ? me - delta : gcm::keep, at.site, &gcm::shuffle<T>); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_rotate_down(T value, unsigned short delta, GCM_HERE) { \
    return prefix##_shuffle(value, (unsigned short)((gcm::lane() + delta) % width), at); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_rotate_up(T value, unsigned short delta, GCM_HERE) { \
    return prefix##_shuffle(value, (unsigned short)((gcm::lane() - delta) % width), at); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_and_fill_down(T value, T filling, unsigned short delta, unsigned short modulo, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(), base = me / modulo * modulo, to = me % modulo + delta; \
    const gcm_u32 from = to < modulo ? base + to : (base + to - modulo) | gcm::from_filling; \
    return gcm::meet<T>(gcm::filled<T>{value, filling}, from, at.site, &gcm::shuffle_filled<T>); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_and_fill_up(T value, T filling, unsigned short delta, unsigned short modulo, GCM_HERE) { \
    const gcm_u32 me = gcm::lane(), base = me / modulo * modulo, in = me % modulo; \
    const gcm_u32 from = in >= delta ? base + in - delta : (base + in + modulo - delta) | gcm::from_filling; \
    return gcm::meet<T>(gcm::filled<T>{value, filling}, from, at.site, &gcm::shuffle_filled<T>); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_and_fill_down(T value, T filling, unsigned short delta, GCM_HERE) { \
    return prefix##_shuffle_and_fill_down(value, filling, delta, (unsigned short)width, at); \
  } \
  template <class T> GCM_RUNTIME T prefix##_shuffle_and_fill_up(T value, T filling, unsigned short delta, GCM_HERE) { \
    return prefix##_shuffle_and_fill_up(value, filling, delta, (unsigned short)width, at); \
  } \
  template <class T> GCM_RUNTIME T prefix##_broadcast_first(T value, GCM_HERE) { return gcm::meet<T>(value, 0, at.site, &gcm::first_lane<width, T>); } \
  GCM_INNER gcm::votes prefix##_votes(bool value, gcm_u32 site) { return gcm::meet<gcm::votes>((gcm_u32)value, 0, site, &gcm::vote<width>); } \
  GCM_RUNTIME bool prefix##_any(bool value, GCM_HERE) { return prefix##_votes(value, at.site).yes != 0; } \
  GCM_RUNTIME bool prefix##_all(bool value, GCM_HERE) { \
    const gcm::votes votes = prefix##_votes(value, at.site); \
    return votes.yes == votes.all; \
  } \
  GCM_RUNTIME bool prefix##_is_first(GCM_HERE) { return (gcm_u32)__builtin_ctz(prefix##_votes(true, at.site).all) == gcm::lane() % width; } \
  struct prefix##_vote { \
    typedef unsigned long vote_t; \
    vote_t value; \
    constexpr explicit prefix##_vote(vote_t v = 0) : value(v) {} \
    constexpr explicit operator vote_t() const { return value; } \
    constexpr bool all() const { return value == (~0ul >> (64 - width)); } \
    constexpr bool any() const { return value != 0; } \
  }; \
  GCM_RUNTIME prefix##_vote prefix##_ballot(bool value, GCM_HERE) { return prefix##_vote(prefix##_votes(value, at.site).yes); } \
  GCM_RUNTIME prefix##_vote prefix##_active_threads_mask(GCM_HERE) { return prefix##_vote(prefix##_votes(true, at.site).all); }
GCM_SHUFFLES(simd, 32u)
GCM_SHUFFLES(quad, 4u)
#undef GCM_SHUFFLES

}  // namespace metal
