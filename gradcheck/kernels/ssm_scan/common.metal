// Shared by forward.metal and backward.metal. All arithmetic is float32, whatever the dtypes of the arrays.
//
// One simdgroup walks one row of the state, N numbers of head h and channel p: state n is in lane n % LANES, where each lane holds
// STATES = ceil(N / LANES) of them. Lanes past the end hold zeros, and so add nothing to a sum.
//
// No function here takes an array of the caller's: MLX passes arrays of fewer than 8 elements in the constant address space.

constexpr constant int LANES = 32; // of a simdgroup
constexpr constant float SOFTPLUS_LINEAR_ABOVE = 20.0f; // ggml's threshold

// log(1 + e^z), and z itself above 20.
inline float softplus(float z) {
  return z > SOFTPLUS_LINEAR_ABOVE ? z : metal::max(z, 0.0f) + log1p(metal::precise::exp(-metal::abs(z)));
}

// Its derivative.
inline float softplus_slope(float z) {
  return z > SOFTPLUS_LINEAR_ABOVE ? 1.0f : 1.0f / (1.0f + metal::precise::exp(-z));
}

// S_t = a_t S_{t-1} + input B_t. The fma is spelt out, so that a state made again in the backward has the bits of the forward's.
inline float next_state(float state, float decay, float input, float B) {
  return metal::fma(decay, state, input * B);
}

// Where a row lies: sequence b, group g, head h = g H/G + …, channel p.
struct Row {
  int b, g, h, p;
};

// Row `row` of the H/G * P rows that one group of one sequence has; `sequence_group` counts groups within sequences.
inline Row row_at(int row, int sequence_group, int H, int P, int G) {
  const int g = sequence_group % G;
  return {sequence_group / G, g, g * (H / G) + row / P, row % P};
}

// Round to the dtype of the output.
template <typename T>
inline void store(device T* out, size_t index, float value) {
  out[index] = static_cast<T>(value);
}
