// total [outer, inner] = the sum of partial [outer, count, inner] over its middle axis, always from first to last.
//
// Grid: inner x outer.

const int count = partial_shape[1], inner = partial_shape[2];
const size_t first = size_t(thread_position_in_grid.y) * count * inner + thread_position_in_grid.x;
float sum = 0.0f;
for (int k = 0; k < count; ++k) {
  sum += partial[first + size_t(k) * inner];
}
store(total, size_t(thread_position_in_grid.y) * inner + thread_position_in_grid.x, sum);
