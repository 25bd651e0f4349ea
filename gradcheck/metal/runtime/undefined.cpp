// What code compiled with -fsanitize=undefined calls when it is about to do something undefined. It goes on with what the processor gives.
#include "runtime.h"
#include "shadow.h"

struct Place {
  const char* file;
  gcm_u32 line, column;
};

static void undefined(const char* what, const Place* place, gcm_u64 pc) {
  const bool running = in_launch();
  gcm_report report = finding(GCM_UNDEFINED, running ? checker.worker : nullptr, running ? gcm::self() : nullptr);
  report.pc = pc;
  report.line = place->line;
  report.column = place->column;
  detail_finding(report, "%s", what);
  record(report);
}

// Which arguments follow the place does not matter here, save for the index.
#define HANDLER(name, what) \
  GCM_EXPORT void __ubsan_handle_##name(const Place* place) { undefined(what, place, (gcm_u64)__builtin_return_address(0)); }
HANDLER(shift_out_of_bounds, "a shift by more than the type has bits, or of a negative number")
HANDLER(divrem_overflow, "integer division by zero, or of the least number by -1")
HANDLER(float_cast_overflow, "a floating-point number that the integer type cannot hold")
HANDLER(add_overflow, "a signed sum that overflows")
HANDLER(sub_overflow, "a signed difference that overflows")
HANDLER(mul_overflow, "a signed product that overflows")
HANDLER(negate_overflow, "the negative of the least number")
HANDLER(missing_return, "a function that must return a value ends without one")
HANDLER(builtin_unreachable, "a place that is said to be unreachable")
HANDLER(load_invalid_value, "a bool or enum that holds no value of its type")
HANDLER(pointer_overflow, "a pointer that wraps around")
HANDLER(vla_bound_not_positive, "an array of no positive length")

GCM_EXPORT void __ubsan_handle_out_of_bounds(const Place* place, gcm_u64 index) {
  char what[64];
  __builtin_snprintf(what, sizeof what, "index %ld is outside its array", (long)index);
  undefined(what, place, (gcm_u64)__builtin_return_address(0));
}

struct TypeMismatch {
  Place place;
  const void* type;
  unsigned char log_alignment, kind;
};
GCM_EXPORT void __ubsan_handle_type_mismatch_v1(const TypeMismatch* what, gcm_u64 address) {
  const gcm_u64 pc = (gcm_u64)__builtin_return_address(0), alignment = 1ul << what->log_alignment;
  if (!address) return undefined("a null pointer", &what->place, pc);
  if (address % alignment == 0) return undefined("an object that is too small for its type", &what->place, pc);
  if (!in_launch()) return;
  constexpr unsigned char stores = 1;  // of clang's list of what a pointer is used for
  misaligned({(char*)address, alignment, pc, gcm::self(), what->kind == stores, false});
}
