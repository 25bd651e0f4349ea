// The selective scan, for head h, channel p, state n and group g = h / (H / G):
//
//   q_t = softplus(dt_t)
//   S_t = exp(q_t A) S_{t-1} + q_t x_t B_t       s, s_T [B,H,P,N]; x [B,T,H,P]; dt [B,T,H]; B, C [B,T,G,N]
//   y_t = sum_n S_t C_t                          y [B,T,H,P]
//
// A is [H], or [H,N] if PER_STATE. The state before steps 0, every, 2 every, … is written to kept [chunks,B,H,P,N].
//
// Grid: LANES x (H/G P) x (B G). A simdgroup is a row, and rows do not meet here.

const int batch = x_shape[0], T = x_shape[1], H = x_shape[2], P = x_shape[3], G = B_shape[2], N = B_shape[3];
const int lane = thread_index_in_simdgroup;
const Row row = row_at(thread_position_in_grid.y, thread_position_in_grid.z, H, P, G);
const size_t row_states = ((size_t(row.b) * H + row.h) * P + row.p) * N;
const size_t all_states = size_t(batch) * H * P * N;

float rate[STATES], S[STATES];
for (int i = 0; i < STATES; ++i) {
  const int n = i * LANES + lane;
  rate[i] = n < N ? static_cast<float>(A[PER_STATE ? row.h * N + n : row.h]) : 0.0f;
  S[i] = n < N ? static_cast<float>(s[row_states + n]) : 0.0f;
}

for (int t = 0; t < T; ++t) {
  if (t % every == 0) {
    for (int i = 0; i < STATES; ++i) {
      const int n = i * LANES + lane;
      if (n < N) {
        kept[(t / every) * all_states + row_states + n] = S[i];
      }
    }
  }
  const size_t step = size_t(row.b) * T + t;
  const size_t here = (step * H + row.h) * P + row.p;
  const size_t projections = (step * G + row.g) * N;
  const float q = softplus(static_cast<float>(dt[step * H + row.h]));
  const float input = q * static_cast<float>(x[here]);
  float read = 0.0f;
  for (int i = 0; i < STATES; ++i) {
    const int n = i * LANES + lane;
    const float B_n = n < N ? static_cast<float>(B[projections + n]) : 0.0f;
    const float C_n = n < N ? static_cast<float>(C[projections + n]) : 0.0f;
    S[i] = next_state(S[i], metal::precise::exp(q * rate[i]), input, B_n);
    read += S[i] * C_n;
  }
  read = simd_sum(read);
  if (lane == 0) {
    store(y, here, read);
  }
}

for (int i = 0; i < STATES; ++i) {
  const int n = i * LANES + lane;
  if (n < N) {
    store(s_T, row_states + n, S[i]);
  }
}
