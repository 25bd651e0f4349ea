// Shared by forward.metal and backward.metal. All arithmetic is float32, whatever the dtypes of the arrays.
//
// A simdgroup walks ROWS rows of one head's state, Dk numbers each: column n is in lane n % LANES, and each lane holds
// COLUMNS = ceil(Dk / LANES) of every row. Lanes past the end of a row, and rows past the end of a head, hold zeros, and so add
// nothing to a sum.
//
// A grid is whole threadgroups. No function here takes an array of the caller's: MLX passes arrays of fewer than 8 elements in the
// constant address space.

constexpr constant int LANES = 32; // of a simdgroup

// S_t = S~ + beta e k^T, one number of it. The fma is spelt out, so that a state made again in the backward has the bits of the
// forward's.
inline float next_state(float decayed, float written, float k) {
  return metal::fma(written, k, decayed);
}

// Where a head lies: sequence b, value head v, and key head k = v // (Hv / Hk).
struct Head {
  int b, v, k;
};

// Head `number` of the B * Hv that there are.
inline Head head_at(int number, int Hk, int Hv) {
  const int v = number % Hv;
  return {number / Hv, v, v / (Hv / Hk)};
}

// Round to the dtype of the output.
template <typename T>
inline void store(device T* out, size_t index, float value) {
  out[index] = static_cast<T>(value);
}
