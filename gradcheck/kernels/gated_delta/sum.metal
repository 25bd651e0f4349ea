// total [outer, inner] = the sum of partial [outer, count, inner] over its middle axis, always from first to last.
//
// Grid: outer inner, made up to whole threadgroups.

const size_t count = partial_shape[1], inner = partial_shape[2];
const size_t at = thread_position_in_grid.x;
if (at < partial_shape[0] * inner) {
  const size_t first = at / inner * count * inner + at % inner;
  float sum = 0.0f;
  for (size_t j = 0; j < count; ++j) {
    sum += partial[first + j * inner];
  }
  store(total, at, sum);
}
