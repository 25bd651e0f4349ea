// What kernel code sees of the machine that runs it: where a thread stands, barriers, threadgroup memory, collectives, atomics.
#pragma once
#include "gcm/atomic.h"
#include "gcm/simdgroup.h"
#include "gcm/vector.h"

// [[attribute]] of the thread that `self`, a gcm_thread*, describes. 
#define GCM_VECTOR(v) (metal::vec<unsigned int, 3>{(v).x, (v).y, (v).z})
#define GCM_VOLUME(v) ((v).x * (v).y * (v).z)
#define GCM_ATTR_dispatch_quadgroups_per_threadgroup(self) ((GCM_VOLUME((self)->dispatched_threadgroup) + 3) / 4)
#define GCM_ATTR_dispatch_simdgroups_per_threadgroup(self) ((GCM_VOLUME((self)->dispatched_threadgroup) + 31) / 32)
#define GCM_ATTR_dispatch_threads_per_threadgroup(self) GCM_VECTOR((self)->dispatched_threadgroup)
#define GCM_ATTR_grid_origin(self) (metal::vec<unsigned int, 3>{0u, 0u, 0u})
#define GCM_ATTR_grid_size(self) GCM_VECTOR((self)->grid)
#define GCM_ATTR_quadgroup_index_in_threadgroup(self) ((self)->index_in_threadgroup / 4)
#define GCM_ATTR_quadgroups_per_threadgroup(self) ((GCM_VOLUME((self)->threadgroup_size) + 3) / 4)
#define GCM_ATTR_simdgroup_index_in_threadgroup(self) ((self)->simdgroup)
#define GCM_ATTR_simdgroups_per_threadgroup(self) ((self)->simdgroups)
#define GCM_ATTR_thread_execution_width(self) (GCM_LANES)
#define GCM_ATTR_thread_index_in_quadgroup(self) ((self)->index_in_threadgroup % 4)
#define GCM_ATTR_thread_index_in_simdgroup(self) ((self)->lane)
#define GCM_ATTR_thread_index_in_threadgroup(self) ((self)->index_in_threadgroup)
#define GCM_ATTR_thread_position_in_grid(self) GCM_VECTOR((self)->position_in_grid)
#define GCM_ATTR_thread_position_in_threadgroup(self) GCM_VECTOR((self)->position_in_threadgroup)
#define GCM_ATTR_threadgroup_position_in_grid(self) GCM_VECTOR((self)->threadgroup_position)
#define GCM_ATTR_threadgroups_per_grid(self) GCM_VECTOR((self)->threadgroups)
#define GCM_ATTR_threads_per_grid(self) GCM_VECTOR((self)->grid)
#define GCM_ATTR_threads_per_simdgroup(self) (GCM_LANES)
#define GCM_ATTR_threads_per_threadgroup(self) GCM_VECTOR((self)->threadgroup_size)

namespace gcm {

template <class Tag> struct variable { static constexpr char id = 0; };
template <class T> struct element_of { typedef T type; };
template <class T, unsigned long N> struct element_of<T[N]> : element_of<T> {};

// A threadgroup variable of this thread's threadgroup. `Tag` tells declarations of one name apart.
template <class T, class Tag>
GCM_RUNTIME T* threadgroup_variable(const char* name, GCM_HERE) {
  return (T*)gcm_threadgroup_memory(self(), &variable<Tag>::id, sizeof(T), alignof(typename element_of<T>::type), name, at.site);
}

}  // namespace gcm

namespace metal {

GCM_RUNTIME void threadgroup_barrier(mem_flags flags, GCM_HERE) { gcm_wait_barrier(gcm::self(), (gcm_u32)flags, at.site); }
GCM_RUNTIME void simdgroup_barrier(mem_flags flags, GCM_HERE) {
  gcm_fiber* fiber = gcm::self();
  fiber->argument = (gcm_u32)flags;
  gcm::arrive(fiber, at.site, &gcm_order_simdgroup);
}

}  // namespace metal
