// The collectives that kernels use most, compiled once here rather than in every kernel: unrolled over the lanes they took longer to
// compile than a kernel's own text.
#define GCM_DEFINE_COMMON
#include "gcm/simdgroup.h"
