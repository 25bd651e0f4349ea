// What was found, each kind at each pair of places once, with how often.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "runtime.h"
#include "threads.h"

static constexpr gcm_u32 most_findings = sizeof(gcm_result::reports) / sizeof(gcm_report);
static gcm_report found[most_findings];
static gcm_u32 n_found, n_dropped;
static Mutex guard;

gcm_report finding(gcm_u32 kind, const Worker* w, const gcm_fiber* fiber) {
  gcm_report report{};
  report.kind = kind;
  report.buffer = GCM_NO_BUFFER;
  if (w) report.group = w->group_index;
  if (fiber) report.thread = fiber->place.index_in_threadgroup;
  return report;
}

void name_finding(gcm_report& report, const char* name) { snprintf(report.name, sizeof report.name, "%s", name); }

void detail_finding(gcm_report& report, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report.detail, sizeof report.detail, format, arguments);
  va_end(arguments);
}

gcm_report late(const Worker& w, const gcm_fiber* fiber) {
  gcm_report report = finding(GCM_TIMEOUT, &w, fiber);
  detail_finding(report, "still running after %.3g s", (double)w.launch->call->budget * 1e-9);
  return report;
}

void record(const gcm_report& report) {
  Lock lock(guard);
  for (gcm_u32 i = 0; i < n_found; i++) {
    gcm_report& other = found[i];
    if (other.kind == report.kind && other.pc == report.pc && other.pc2 == report.pc2 && other.line == report.line && other.column == report.column) {
      other.count++;
      return;
    }
  }
  if (n_found == most_findings) {
    n_dropped++;
    return;
  }
  found[n_found] = report;
  found[n_found++].count = 1;
}

void clear_findings() { n_found = n_dropped = 0; }

void take_findings(gcm_result& result) {
  result.n_reports = n_found;
  memcpy(result.reports, found, n_found * sizeof(gcm_report));
  if (n_dropped) {
    gcm_report& last = result.reports[most_findings - 1];
    const size_t length = strlen(last.detail);
    snprintf(last.detail + length, sizeof last.detail - length, "%s(and %u more findings beyond the first %u places)", length ? " " : "", n_dropped,
             most_findings);
  }
}
