// The reverse of forward.metal. With G_t the adjoint of S_t with everything after step t in it, and G_T = dstate_T before y_T has its
// say, for t = T … 1:
//
//   G_t    += dy_t q_t^T
//   dq_t    = sum_{h, row} dy_t S_t                       over the value heads h of a key head
//   p_t     = G_t k_t                                     dv_t = beta_t p_t          dbeta_t = sum_row p_t e_t
//   m_t     = -beta_t p_t                                 the adjoint of S~ k_t
//   dk_t    = sum_{h, row} (G_t beta_t e_t + S~ m_t)
//   G~      = G_t + m_t k_t^T                             the adjoint of S~
//   dg_t    = sum_row G~ S_{t-1}                          and over the columns, unless VECTOR
//   G_{t-1} = g_t G~                                      dstate = G_0
//
// A masked step passes G on; all its gradients are 0.
//
// Chunk by chunk from the last: from the state that was kept at the begin of a chunk, and the errors e that the forward wrote down,
// the states before each of its steps are made again into `before` [chunk,B,Hv,Dv,Dk]: no sum is needed for that. A thread reads
// there what it has written itself, and nothing else.
//
// Grid: LANES x (blocks simdgroups) x (B Hv); a block is a threadgroup's rows. Sums over columns are within a simdgroup. Sums over
// rows are within a thread, then within the threadgroup, through its memory; what is left over is written down as partial sums, by
// simdgroup for numbers per head and by block for vectors. sum.metal adds up both. No sum depends on timing.

threadgroup float terms[2][SLOTS][SIMDGROUPS][COLUMNS * LANES]; // two buffers of the terms of dq, dk and, if VECTOR, dg

const int T = q_shape[1], Hk = q_shape[2], Dk = q_shape[3], Hv = dy_shape[2], Dv = dy_shape[3];
const int lane = thread_index_in_simdgroup;
const int me = simdgroup_index_in_threadgroup, simdgroups = threads_per_threadgroup.y; // at most SIMDGROUPS
const int block = threadgroup_position_in_grid.y, blocks = threadgroups_per_grid.y;
const Head head = head_at(thread_position_in_grid.z, Hk, Hv);
const int first_row = thread_position_in_grid.y * ROWS;
const size_t first_state = (size_t(thread_position_in_grid.z) * Dv + first_row) * Dk;
const size_t all_states = size_t(q_shape[0]) * Hv * Dv * Dk;

float adjoint[ROWS][COLUMNS];
for (int r = 0; r < ROWS; ++r) {
  for (int i = 0; i < COLUMNS; ++i) {
    const int n = i * LANES + lane;
    adjoint[r][i] = first_row + r < Dv && n < Dk ? static_cast<float>(dstate_T[first_state + r * Dk + n]) : 0.0f;
  }
}

int buffer = 0;
for (int begin = (T - 1) / chunk * chunk; begin >= 0; begin -= chunk) {
  const int end = metal::min(begin + chunk, T);

  float S[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < COLUMNS; ++i) {
      const int n = i * LANES + lane;
      S[r][i] = first_row + r < Dv && n < Dk ? kept[(begin / chunk) * all_states + first_state + r * Dk + n] : 0.0f;
    }
  }
  for (int t = begin; t < end; ++t) {
    const size_t step = size_t(head.b) * T + t;
    const size_t head_step = step * Hv + head.v;
    const size_t keys = (step * Hk + head.k) * Dk;
    const bool skipped = MASKED && !mask[step];
    float k_t[COLUMNS], g_t[COLUMNS];
    for (int i = 0; i < COLUMNS; ++i) {
      const int n = i * LANES + lane;
      k_t[i] = n < Dk ? static_cast<float>(k[keys + n]) : 0.0f;
      g_t[i] = n < Dk ? static_cast<float>(g[VECTOR ? head_step * Dk + n : head_step]) : 0.0f;
    }
    const float beta_t = static_cast<float>(beta[head_step]);
    for (int r = 0; r < ROWS; ++r) {
      const float written = first_row + r < Dv ? beta_t * error[head_step * Dv + first_row + r] : 0.0f;
      for (int i = 0; i < COLUMNS; ++i) {
        const int n = i * LANES + lane;
        if (first_row + r < Dv && n < Dk) {
          before[(t - begin) * all_states + first_state + r * Dk + n] = S[r][i];
        }
        S[r][i] = skipped ? S[r][i] : next_state(S[r][i] * g_t[i], written, k_t[i]);
      }
    }
  }

  for (int t = end - 1; t >= begin; --t) {
    const size_t step = size_t(head.b) * T + t;
    const size_t head_step = step * Hv + head.v;
    const size_t keys = (step * Hk + head.k) * Dk;
    const size_t values = head_step * Dv + first_row;
    const size_t of_block = (head_step * blocks + block) * Dk;
    const size_t of_simdgroup = (head_step * blocks + block) * simdgroups + me;

    if (MASKED && !mask[step]) {
      for (int r = 0; r < ROWS; ++r) {
        if (lane == 0 && first_row + r < Dv) {
          store(dv, values + r, 0.0f);
        }
      }
      if (lane == 0) {
        dbeta_partial[of_simdgroup] = 0.0f;
        if (!VECTOR) {
          dg_partial[of_simdgroup] = 0.0f;
        }
      }
      for (int n = me * LANES + lane; n < Dk; n += simdgroups * LANES) {
        dq_partial[of_block + n] = 0.0f;
        dk_partial[of_block + n] = 0.0f;
        if (VECTOR) {
          dg_partial[of_block + n] = 0.0f;
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

    float dy_t[ROWS], e_t[ROWS], pull[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      dy_t[r] = first_row + r < Dv ? static_cast<float>(dy[values + r]) : 0.0f;
      e_t[r] = first_row + r < Dv ? error[values + r] : 0.0f;
      pull[r] = 0.0f;
      for (int i = 0; i < COLUMNS; ++i) {
        const int n = i * LANES + lane;
        S[r][i] = first_row + r < Dv && n < Dk ? before[(t - begin) * all_states + first_state + r * Dk + n] : 0.0f;
        adjoint[r][i] += dy_t[r] * q_t[i];
        pull[r] += adjoint[r][i] * k_t[i];
      }
    }
    float dbeta_t = 0.0f;
    for (int r = 0; r < ROWS; ++r) {
      pull[r] = simd_sum(pull[r]);
      dbeta_t += pull[r] * e_t[r];
      if (lane == 0 && first_row + r < Dv) {
        store(dv, values + r, beta_t * pull[r]);
      }
    }

    float dg_t = 0.0f;
    for (int i = 0; i < COLUMNS; ++i) {
      const int n = i * LANES + lane;
      float dq_n = 0.0f, dk_n = 0.0f, dg_n = 0.0f;
      for (int r = 0; r < ROWS; ++r) {
        const float decayed = S[r][i] * g_t[i];
        const float written = beta_t * e_t[r];
        const float taken = -beta_t * pull[r];
        const float past = adjoint[r][i] + taken * k_t[i];
        dq_n += dy_t[r] * next_state(decayed, written, k_t[i]);
        dk_n += adjoint[r][i] * written + decayed * taken;
        dg_n += past * S[r][i];
        adjoint[r][i] = past * g_t[i];
      }
      terms[buffer][0][me][n] = dq_n;
      terms[buffer][1][me][n] = dk_n;
      if (VECTOR) {
        terms[buffer][SLOTS - 1][me][n] = dg_n;
      } else {
        dg_t += dg_n;
      }
    }
    if (!VECTOR) {
      dg_t = simd_sum(dg_t);
    }
    if (lane == 0) {
      dbeta_partial[of_simdgroup] = dbeta_t;
      if (!VECTOR) {
        dg_partial[of_simdgroup] = dg_t;
      }
    }

    // One barrier is enough: these terms are overwritten the step after next, and by then every simdgroup has come through the next
    // barrier, so that it is done with reading them.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int n = me * LANES + lane; n < Dk; n += simdgroups * LANES) {
      for (int slot = 0; slot < SLOTS; ++slot) {
        float sum = 0.0f;
        for (int j = 0; j < simdgroups; ++j) {
          sum += terms[buffer][slot][j][n];
        }
        (slot == 0 ? dq_partial : slot == 1 ? dk_partial : dg_partial)[of_block + n] = sum;
      }
    }
    buffer = 1 - buffer;
  }
}

for (int r = 0; r < ROWS; ++r) {
  for (int i = 0; i < COLUMNS; ++i) {
    const int n = i * LANES + lane;
    if (first_row + r < Dv && n < Dk) {
      store(dstate, first_state + r * Dk + n, adjoint[r][i]);
    }
  }
}
