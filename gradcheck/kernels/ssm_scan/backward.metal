// The reverse of forward.metal. With a_t = exp(q_t A), G_t the adjoint of S_t with everything after step t in it, and G_T = ds_T
// before y_T has its say, for t = T … 1:
//
//   G_t    += dy_t C_t
//   dC_t    = sum_{h in g, p} dy_t S_t           dB_t = sum_{h in g, p} q_t x_t G_t
//   u_t     = sum_n G_t B_t                      dx_t = q_t u_t
//   M_t     = a_t G_t S_{t-1}                    dA  += q_t M_t                      (M: the adjoint of q A)
//   ddt_t   = sum_p (x_t u_t + sum_n M_t A) softplus'(dt_t)
//   G_{t-1} = a_t G_t                            ds   = G_0
//
// Chunk by chunk from the last, `every` steps each: from the state that was kept at the begin of a chunk, the states before each of
// its steps are made again into `before` [every,B,H,P,N]. A thread reads there what it has written itself, and nothing else.
//
// Grid: LANES x (H/G P) x (B G), in threadgroups of at most ROWS rows of one group of one sequence. The sums over n are within a
// simdgroup. Those over rows go through threadgroup memory, one column of states at a time: dB and dC come out as one partial sum
// per threadgroup. What is summed over p, or over sequences, comes out per row. sum.metal adds up both. No sum depends on timing.

threadgroup float terms[2][2][ROWS][LANES]; // two buffers of the terms of dB and dC

const int batch = x_shape[0], T = x_shape[1], H = x_shape[2], P = x_shape[3], G = B_shape[2], N = B_shape[3];
const int lane = thread_index_in_simdgroup;
const int me = simdgroup_index_in_threadgroup;
const int rows = threads_per_threadgroup.y; // fewer in the last threadgroup of a group
const int tile = threadgroup_position_in_grid.y;
const Row row = row_at(thread_position_in_grid.y, thread_position_in_grid.z, H, P, G);
const size_t row_states = ((size_t(row.b) * H + row.h) * P + row.p) * N;
const size_t all_states = size_t(batch) * H * P * N;

float rate[STATES], S[STATES], adjoint[STATES], dA[STATES];
for (int i = 0; i < STATES; ++i) {
  const int n = i * LANES + lane;
  rate[i] = n < N ? static_cast<float>(A[PER_STATE ? row.h * N + n : row.h]) : 0.0f;
  adjoint[i] = n < N ? static_cast<float>(ds_T[row_states + n]) : 0.0f;
  dA[i] = 0.0f;
}

int buffer = 0;
for (int chunk = (T - 1) / every; chunk >= 0; --chunk) {
  const int begin = chunk * every;
  const int end = metal::min(begin + every, T);

  // The states before each step of this chunk; S ends as the state after its last.
  for (int i = 0; i < STATES; ++i) {
    const int n = i * LANES + lane;
    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;
  }
  for (int t = begin; t < end; ++t) {
    const size_t step = size_t(row.b) * T + t;
    const size_t projections = (step * G + row.g) * N;
    const float q = softplus(static_cast<float>(dt[step * H + row.h]));
    const float input = q * static_cast<float>(x[(step * H + row.h) * P + row.p]);
    for (int i = 0; i < STATES; ++i) {
      const int n = i * LANES + lane;
      if (n < N) {
        before[(t - begin) * all_states + row_states + n] = S[i];
        S[i] = next_state(S[i], metal::precise::exp(q * rate[i]), input, static_cast<float>(B[projections + n]));
      }
    }
  }

  for (int t = end - 1; t >= begin; --t) {
    const size_t step = size_t(row.b) * T + t;
    const size_t here = (step * H + row.h) * P + row.p;
    const size_t projections = (step * G + row.g) * N;
    const size_t partials = ((size_t(tile) * batch * T + step) * G + row.g) * N;
    const float z = static_cast<float>(dt[step * H + row.h]);
    const float q = softplus(z);
    const float x_t = static_cast<float>(x[here]);
    const float dy_t = static_cast<float>(dy[here]);
    float u = 0.0f, through_decay = 0.0f;
    for (int i = 0; i < STATES; ++i) {
      const int n = i * LANES + lane;
      const float B_n = n < N ? static_cast<float>(B[projections + n]) : 0.0f;
      const float C_n = n < N ? static_cast<float>(C[projections + n]) : 0.0f;
      const float decay = metal::precise::exp(q * rate[i]);
      const float S_before = n < N ? before[(t - begin) * all_states + row_states + n] : 0.0f;

      const float G_t = adjoint[i] + dy_t * C_n;
      adjoint[i] = decay * G_t;
      terms[buffer][0][me][lane] = q * x_t * G_t;
      terms[buffer][1][me][lane] = dy_t * S[i];
      u += G_t * B_n;
      const float M = decay * G_t * S_before;
      through_decay += M * rate[i];
      dA[i] += q * M;
      S[i] = S_before;

      // One barrier is enough: these terms are overwritten the time after next, and by then every simdgroup has come through
      // the next barrier, so that it is done with reading them.
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int which = me; which < 2; which += rows) {
        float sum = 0.0f;
        for (int k = 0; k < rows; ++k) {
          sum += terms[buffer][which][k][lane];
        }
        if (n < N) {
          (which == 0 ? dB_partial : dC_partial)[partials + n] = sum;
        }
      }
      buffer = 1 - buffer;
    }
    u = simd_sum(u);
    through_decay = simd_sum(through_decay);
    if (lane == 0) {
      store(dx, here, q * u);
      ddt_rows[here] = (x_t * u + through_decay) * softplus_slope(z);
    }
  }
}

for (int i = 0; i < STATES; ++i) {
  const int n = i * LANES + lane;
  if (n < N) {
    store(ds, row_states + n, adjoint[i]);
  }
}

// dA_rows [B P,H] or [B P,H,N]: of each row, summed over its steps.
const size_t dA_row = (size_t(row.b) * P + row.p) * H + row.h;
if (PER_STATE) {
  for (int i = 0; i < STATES; ++i) {
    const int n = i * LANES + lane;
    if (n < N) {
      dA_rows[dA_row * N + n] = dA[i];
    }
  }
} else {
  float total = 0.0f;
  for (int i = 0; i < STATES; ++i) {
    total += dA[i];
  }
  total = simd_sum(total);
  if (lane == 0) {
    dA_rows[dA_row] = total;
  }
}
