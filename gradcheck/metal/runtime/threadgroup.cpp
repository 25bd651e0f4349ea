// Threadgroup variables: handed out at their first use in a threadgroup, filled with bytes that are a NaN in every float format.
#include <cstring>

#include "runtime.h"

static constexpr gcm_u64 between = 512;  // in checked mode: nothing lies there, so what touches it is out of bounds

GCM_EXPORT void* gcm_threadgroup_memory(gcm_fiber* self, const void* id, gcm_u64 bytes, gcm_u64 align, const char* name, gcm_u32 site) {
  Worker& w = worker_of(self->group);
  for (gcm_u32 i = 0; i < w.n_variables; i++)
    if (w.variables[i].id == id) return w.variables[i].address;

  const gcm_u64 boundary = align < 16 ? 16 : align;  // for any vector that a kernel casts to
  w.declared = (w.declared + boundary - 1) / boundary * boundary + bytes;
  if (w.declared > threadgroup_bytes || w.n_variables == most_variables) {
    gcm_report report = finding(GCM_THREADGROUP_MEMORY, &w, self);
    name_finding(report, name);
    report.size = (gcm_u32)w.declared;
    report.line = gcm::site_line(site);
    report.column = gcm::site_column(site);
    if (w.n_variables == most_variables) detail_finding(report, "more than %u threadgroup variables", most_variables);
    else detail_finding(report, "%lu bytes of threadgroup memory with this variable; the limit is %lu", w.declared, threadgroup_bytes);
    record(report);
    stop(w, self);
  }
  const gcm_u64 gap = w.launch->call->checked ? between : 0;
  w.arena_used = (w.arena_used + gap + boundary - 1) / boundary * boundary;
  Variable& variable = w.variables[w.n_variables];
  variable = {id, w.arena + w.arena_used, bytes, align >= 4 ? 4 : align, name, nullptr};
  w.arena_used += bytes;
  memset(variable.address, 0xFF, bytes);
  if (w.launch->call->checked) check_variable(w, variable);
  w.n_variables++;
  return variable.address;
}
