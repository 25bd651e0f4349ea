// The gated delta rule, for value head h and key head h // (Hv / Hk):
//
//   S~  = g_t S_{t-1}              state, state_T [B,Hv,Dv,Dk]; g [B,T,Hv], or [B,T,Hv,Dk] if VECTOR
//   e_t = v_t - S~ k_t             q, k [B,T,Hk,Dk]; v, error [B,T,Hv,Dv]
//   S_t = S~ + beta_t e_t k_t^T    beta [B,T,Hv]
//   y_t = S_t q_t                  y [B,T,Hv,Dv]
//
// If MASKED, a step that mask [B,T] leaves out keeps the state, and its y is 0. The state before steps 0, chunk, 2 chunk, … is
// written to kept [chunks,B,Hv,Dv,Dk].
//
// Grid: LANES x (blocks simdgroups) x (B Hv). A simdgroup is ROWS rows of one head, and simdgroups do not meet here.

const int T = q_shape[1], Hk = q_shape[2], Dk = q_shape[3], Hv = v_shape[2], Dv = v_shape[3];
const int lane = thread_index_in_simdgroup;
const Head head = head_at(thread_position_in_grid.z, Hk, Hv);
const int first_row = thread_position_in_grid.y * ROWS;
const size_t first_state = (size_t(thread_position_in_grid.z) * Dv + first_row) * Dk;
const size_t all_states = size_t(q_shape[0]) * Hv * Dv * Dk;

float S[ROWS][COLUMNS];
for (int r = 0; r < ROWS; ++r) {
  for (int i = 0; i < COLUMNS; ++i) {
    const int n = i * LANES + lane;
    S[r][i] = first_row + r < Dv && n < Dk ? static_cast<float>(state[first_state + r * Dk + n]) : 0.0f;
  }
}

for (int t = 0; t < T; ++t) {
  if (t % chunk == 0) {
    for (int r = 0; r < ROWS; ++r) {
      for (int i = 0; i < COLUMNS; ++i) {
        const int n = i * LANES + lane;
        if (first_row + r < Dv && n < Dk) {
          kept[(t / chunk) * all_states + first_state + r * Dk + n] = S[r][i];
        }
      }
    }
  }
  const size_t step = size_t(head.b) * T + t;
  const size_t head_step = step * Hv + head.v;
  const size_t keys = (step * Hk + head.k) * Dk;
  const size_t values = head_step * Dv + first_row;

  if (MASKED && !mask[step]) {
    for (int r = 0; r < ROWS; ++r) {
      if (lane == 0 && first_row + r < Dv) {
        store(y, values + r, 0.0f);
        error[values + r] = 0.0f;
      }
    }
    continue;
  }

  float k_t[COLUMNS], q_t[COLUMNS], g_t[COLUMNS];
  for (int i = 0; i < COLUMNS; ++i) {
    const int n = i * LANES + lane;
    k_t[i] = n < Dk ? static_cast<float>(k[keys + n]) : 0.0f;
    q_t[i] = n < Dk ? static_cast<float>(q[keys + n]) : 0.0f;
    g_t[i] = n < Dk ? static_cast<float>(g[VECTOR ? head_step * Dk + n : head_step]) : 0.0f;
  }
  const float beta_t = static_cast<float>(beta[head_step]);

  // Row by row within each loop: the sums over the simdgroup do not wait for one another.
  float e_t[ROWS], read[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    float held = 0.0f;
    for (int i = 0; i < COLUMNS; ++i) {
      S[r][i] *= g_t[i];
      held += S[r][i] * k_t[i];
    }
    e_t[r] = held;
  }
  for (int r = 0; r < ROWS; ++r) {
    const float v_t = first_row + r < Dv ? static_cast<float>(v[values + r]) : 0.0f;
    e_t[r] = v_t - simd_sum(e_t[r]);
  }
  for (int r = 0; r < ROWS; ++r) {
    read[r] = 0.0f;
    for (int i = 0; i < COLUMNS; ++i) {
      S[r][i] = next_state(S[r][i], beta_t * e_t[r], k_t[i]);
      read[r] += S[r][i] * q_t[i];
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    read[r] = simd_sum(read[r]);
    if (lane == 0 && first_row + r < Dv) {
      store(y, values + r, read[r]);
      error[values + r] = e_t[r];
    }
  }
}

for (int r = 0; r < ROWS; ++r) {
  for (int i = 0; i < COLUMNS; ++i) {
    const int n = i * LANES + lane;
    if (first_row + r < Dv && n < Dk) {
      store(state_T, first_state + r * Dk + n, S[r][i]);
    }
  }
}
