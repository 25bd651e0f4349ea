"""Mistakes that only a Metal kernel of the gated delta rule can make: barriers, lanes, threadgroups, chunks, memory that was never written.

`killed` is by numbers, or by the checker of `gradcheck.metal` where the numbers are right by luck: a race that no schedule met, a
fence that this machine does not need.
"""

from gradcheck import Edit, Mutant

MASKED = ("scalar-masked", "vector-masked")
SCALAR = ("scalar", "scalar-masked")

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SCRATCH = "before[(t - begin) * all_states + first_state + r * Dk + n] = S[r][i];"


def _metal(file: str, find: str, replace: str) -> dict[str, Edit]:
    return {"metal": Edit(file, find, replace)}


barrier_deleted = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="terms of dq and dk are summed before the other simdgroups have written theirs",
    seen_in="ml-explore/mlx#2591 (6ccfa603c), #1188 (496315fe1): a threadgroup barrier missing in a scan",
    edits=_metal("backward.metal", BARRIER, ""),
)

barrier_of_a_simdgroup = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="the barrier waits for the lanes of a simdgroup, where the terms come from all simdgroups",
    seen_in="ml-explore/mlx#2591 (6ccfa603c): a barrier of too small a scope where simdgroups share memory",
    edits=_metal("backward.metal", BARRIER, "simdgroup_barrier(mem_flags::mem_threadgroup);"),
)

barrier_fences_device_memory = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="the barrier orders device memory, but the terms are in threadgroup memory",
    seen_in="mlx-lm 0.32.2, mlx_lm/tuner/losses.py, kl_forward: flags of a barrier that do not cover the memory read after it",
    edits=_metal("backward.metal", BARRIER, "threadgroup_barrier(mem_flags::mem_device);"),
)

one_buffer_of_terms = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="one buffer and one barrier: a simdgroup writes its next terms while another still reads the last ones",
    seen_in="mlx-lm 0.32.2, mlx_lm/tuner/losses.py: shared[] written anew by one simdgroup while another still reads it",
    edits=_metal("backward.metal", "    buffer = 1 - buffer;\n", ""),
)

first_row_in_threadgroup_memory = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="every simdgroup writes its terms of dq over the first one's",
    seen_in="unslothai/unsloth-zoo#754: rows of a threadgroup that share their slots",
    edits=_metal("backward.metal", "terms[buffer][0][me][n] =", "terms[buffer][0][0][n] ="),
)

slots_of_absent_simdgroups = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="the terms of all simdgroups that fit are summed, of which a small head has fewer",
    seen_in="unslothai/unsloth-zoo#754: a partial last tile adds what shared memory held before",
    edits=_metal("backward.metal", "j < simdgroups;", "j < SIMDGROUPS;"),
)

lanes_assumed_full = Mutant(
    op="gated_delta",
    defect="mask-ignored-tail",
    why="32 is taken to divide Dk: the lanes past the end read the next head's key and query",
    seen_in="fla-org/flash-linear-attention#1135 (b67113b4): no lane mask for sizes that are no multiple of the vector",
    edits=_metal(
        "forward.metal",
        "    k_t[i] = n < Dk ? static_cast<float>(k[keys + n]) : 0.0f;\n    q_t[i] = n < Dk ? static_cast<float>(q[keys + n]) : 0.0f;\n",
        "    k_t[i] = static_cast<float>(k[keys + n]);\n    q_t[i] = static_cast<float>(q[keys + n]);\n",
    ),
)

gradient_stored_past_the_row = Mutant(
    op="gated_delta",
    defect="out-of-bounds-write",
    why="32 is taken to divide Dk: the lanes past the end store their zeros on the next row of dstate",
    seen_in="fla-org/flash-linear-attention#1103 (ebd4dd27): stores without a mask at the tail",
    edits=_metal(
        "backward.metal",
        "    if (first_row + r < Dv && n < Dk) {\n      store(dstate,",
        "    if (first_row + r < Dv) {\n      store(dstate,",
    ),
)

rows_assumed_full = Mutant(
    op="gated_delta",
    defect="out-of-bounds-write",
    why="the rows of a simdgroup are taken to divide Dv: those past the end store their zeros on the next head's dv",
    seen_in="unslothai/unsloth-zoo#754: a value size that is no multiple of the rows of a threadgroup",
    edits=_metal(
        "backward.metal",
        "if (lane == 0 && first_row + r < Dv) {\n        store(dv, values + r, beta_t * pull[r]);",
        "if (lane == 0) {\n        store(dv, values + r, beta_t * pull[r]);",
    ),
)

one_column_per_lane = Mutant(
    op="gated_delta",
    defect="warp-size",
    why="Dk / 32 columns per lane, rounded down: key channels past the last full one are in no lane",
    seen_in="ggml-org/llama.cpp#14196 (ggml 71568e4b): a hard-coded 32",
    edits=_metal("metal.py", "-(-q.shape[3] // LANES), g.ndim", "max(q.shape[3] // LANES, 1), g.ndim"),
)

lanes_of_64 = Mutant(
    op="gated_delta",
    defect="warp-size",
    why="64 lanes are assumed in a simdgroup: every other column of 32 is in no lane",
    seen_in="state-spaces/mamba#831 (9babf40): 32 lanes assumed where there were 64",
    edits=_metal("common.metal", "int LANES = 32;", "int LANES = 64;"),
)

first_lane_for_the_simdgroup = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="the adjoint under the key is each lane's own: the sum over the simdgroup was lost",
    seen_in="fla-org/flash-linear-attention#941 (e4c7f880): a tiled dimension without a reduction",
    edits=_metal("backward.metal", "      pull[r] = simd_sum(pull[r]);\n", ""),
)

gate_of_the_first_lane = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="the dg of a head is that of the columns of the first lane",
    seen_in="fla-org/flash-linear-attention 7d808a33: dg of one tile of key channels stands for all",
    edits=_metal("backward.metal", "      dg_t = simd_sum(dg_t);\n", ""),
    variants=SCALAR,
)

dbeta_of_the_last_row = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="the dbeta of a simdgroup is that of its last row",
    seen_in="fla-org/flash-linear-attention#941 (e4c7f880): the value axis tiled without a reduction",
    edits=_metal("backward.metal", "dbeta_t += pull[r] * e_t[r];", "dbeta_t = first_row + r < Dv ? pull[r] * e_t[r] : dbeta_t;"),
)

scan_for_a_sum = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="a prefix sum over the simdgroup, of which the first lane has only its own term",
    seen_in="ml-explore/mlx#1188 (496315fe1): the wrong collective's identity in a scan",
    edits=_metal("forward.metal", "read[r] = simd_sum(read[r]);", "read[r] = simd_prefix_inclusive_sum(read[r]);"),
)

block_off_by_one = Mutant(
    op="gated_delta",
    defect="wrong-index-stride",
    why="partial sums are stored by the number of the threadgroup plus one: the first is never written, the last lies outside",
    seen_in="fla-org/flash-linear-attention#19 (b16c81e1): a block one off",
    edits=_metal("backward.metal", "block = threadgroup_position_in_grid.y,", "block = threadgroup_position_in_grid.y + 1,"),
)

blocks_share_a_partial = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="every threadgroup of a head stores its partial sums in one place: the last one stays, in whatever order they run",
    seen_in="fla-org/flash-linear-attention#941 (e4c7f880): racing programs overwrite dq and dk",
    edits=_metal("backward.metal", "block = threadgroup_position_in_grid.y,", "block = 0,"),
)

slab_without_block = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="the partial sums of dbeta and dg are stored without the number of their block",
    seen_in="fla-org/flash-linear-attention 0a83fd3f: a partial buffer whose index lacks one tile axis",
    edits=_metal(
        "backward.metal",
        "of_simdgroup = (head_step * blocks + block) * simdgroups + me",
        "of_simdgroup = head_step * blocks * simdgroups + me",
    ),
)

rows_by_full_threadgroups = Mutant(
    op="gated_delta",
    defect="thread-partition",
    why="a threadgroup is taken to begin where a full one before it would end",
    seen_in="ggml-org/llama.cpp#21226 (ggml 9695adb0): the split of rows among threads skips or repeats the last ones",
    edits=_metal("backward.metal", "first_row = thread_position_in_grid.y * ROWS;", "first_row = (block * SIMDGROUPS + me) * ROWS;"),
)

heads_of_the_grid = Mutant(
    op="gated_delta",
    defect="thread-partition",
    why="the grid has the value heads of one sequence only",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=_metal("metal.py", "return Rows(batch * Hv,", "return Rows(Hv,"),
)

heads_in_tiles_of_the_text = Mutant(
    op="gated_delta",
    defect="head-map",
    why="value head h reads key head h mod Hk, in forward and backward alike, while the sums are as they were",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): a modulo where the model repeats",
    edits=_metal("common.metal", "v / (Hv / Hk)}", "v % Hk}"),
)

sum_heads_by_tile = Mutant(
    op="gated_delta",
    defect="head-map",
    why="dq is summed over the value heads h mod Hk, where h reads key head h // (Hv / Hk)",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): head to group map by modulo",
    edits=_metal(
        "metal.py",
        "_sum(dq, q),",
        "_sum(dq.reshape(*q.shape[:2], -1, q.shape[2], *dq.shape[3:]).swapaxes(2, 3), q),",
    ),
)

first_head_of_a_group = Mutant(
    op="gated_delta",
    defect="missing-group-reduction",
    why="of the value heads of a key head only the first is counted in dk",
    seen_in="ml-explore/mlx 05a89f285 (branch gated-delta-update): a path that knew of no repeated heads",
    edits=_metal("metal.py", "_sum(dk, k),", "_sum(dk[:, :, :: v.shape[2] // k.shape[2]], k),"),
)

first_block_alone = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="of the partial sums of dk only those of the first block of rows are taken",
    seen_in="fla-org/flash-linear-attention 7d808a33: per-tile partials overwrote one another",
    edits=_metal("metal.py", "_sum(dk, k),", "_sum(dk[:, :, :, :1], k),"),
)

last_partial_alone = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="partial sums are stored where they should be added: the last one stays",
    seen_in="fla-org/flash-linear-attention 7d808a33: per-tile partials overwrote one another",
    edits=_metal("sum.metal", "sum += partial[", "sum = partial["),
)

last_partial_forgotten = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="the sum of the partial sums ends one before the last",
    seen_in="ggml-org/llama.cpp#21226 (ggml 9695adb0): the last part of a split skipped",
    edits=_metal("sum.metal", "j < count;", "j + 1 < metal::max(count, size_t(2));"),
)

added_to_the_output = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="a sum is added to what its memory held before",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): sums into an output that was not initialised",
    edits=_metal("sum.metal", "store(total, at, sum);", "store(total, at, static_cast<float>(total[at]) + sum);"),
)

zeros_not_stored = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="a dv that is zero since beta is, is not stored: its memory was thought to be zero",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): an output buffer that is written in part and was not zeroed",
    edits=_metal(
        "backward.metal",
        "if (lane == 0 && first_row + r < Dv) {\n        store(dv, values + r, beta_t * pull[r]);",
        "if (lane == 0 && first_row + r < Dv && beta_t != 0.0f) {\n        store(dv, values + r, beta_t * pull[r]);",
    ),
)

masked_steps_not_stored = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="the dv of masked steps is not stored: its memory was thought to be zero",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): an output buffer that is written in part and was not zeroed",
    edits=_metal("backward.metal", "          store(dv, values + r, 0.0f);\n", ""),
    variants=MASKED,
)

whole_chunks_only = Mutant(
    op="gated_delta",
    defect="mask-ignored-tail",
    why="the chunk is taken to divide T: the backward leaves out the steps after the last whole chunk",
    seen_in="fla-org/flash-linear-attention#794 (91d870f8): T = 65 with chunks of 64",
    edits=_metal("backward.metal", "int begin = (T - 1) / chunk * chunk;", "int begin = (T / chunk - 1) * chunk;"),
)

last_chunk_is_full = Mutant(
    op="gated_delta",
    defect="stale-buffer",
    why="the last chunk is taken to be full: steps past T are read, of the next sequence or of nothing",
    seen_in="fla-org/flash-linear-attention#1105 (51a8c0a8), 4889a8b9: rows past T",
    edits=_metal("backward.metal", "const int end = metal::min(begin + chunk, T);", "const int end = begin + chunk;"),
)

state_of_the_next_chunk = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="a chunk begins from the state that was kept for the next",
    seen_in="fla-org/flash-linear-attention 1fb4e97b: states[c] for states[c + 1]",
    edits=_metal("backward.metal", "kept[(begin / chunk) * all_states", "kept[(begin / chunk + (end < T)) * all_states"),
)

state_of_the_first_chunk = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="every chunk begins from the initial state",
    seen_in="sgl-project/sglang#31833: the snapshot of another boundary",
    edits=_metal("backward.metal", "kept[(begin / chunk) * all_states + first_state", "kept[first_state"),
)

kept_after_the_step = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="the state is kept before the last step of a chunk instead of before its first",
    seen_in="fla-org/flash-linear-attention e18aedf2: states of another boundary than the buffer's",
    edits=_metal("forward.metal", "if (t % chunk == 0) {", "if ((t + 1) % chunk == 0 || t == T - 1) {"),
)

chunks_of_another_length = Mutant(
    op="gated_delta",
    defect="chunk-const-mismatch",
    why="the backward takes chunks of half the length in which the forward kept the states",
    seen_in="fla-org/flash-linear-attention#876 (769035e9): 64 hard-coded in one kernel where the caller uses 32",
    edits=_metal(
        "metal.py", '"dstate_T": cotangents[1], "chunk": mx.array(chunk)', '"dstate_T": cotangents[1], "chunk": mx.array(-(-chunk // 2))'
    ),
)

scratch_after_the_step = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="the states of a chunk are written down after their steps, not before",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77): S_t for S_{t-1}",
    edits=_metal(
        "backward.metal",
        "        if (first_row + r < Dv && n < Dk) {\n"
        f"          {SCRATCH}\n"
        "        }\n"
        "        S[r][i] = skipped ? S[r][i] : next_state(S[r][i] * g_t[i], written, k_t[i]);\n",
        "        S[r][i] = skipped ? S[r][i] : next_state(S[r][i] * g_t[i], written, k_t[i]);\n"
        "        if (first_row + r < Dv && n < Dk) {\n"
        f"          {SCRATCH}\n"
        "        }\n",
    ),
)

scratch_shared_by_rows = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="the states of a chunk are stored without the offset of the simdgroup's rows: they write over each other",
    seen_in="state-spaces/mamba commit b43b177: rows overwrite each other's carry between chunks",
    edits=_metal("backward.metal", SCRATCH, "before[(t - begin) * all_states + r * Dk + n] = S[r][i];"),
)

scratch_by_step = Mutant(
    op="gated_delta",
    defect="wrong-index-stride",
    why="the states of a chunk are stored by the step in the sequence, where there is room for one chunk",
    seen_in="ml-explore/mlx-lm#546 (a4e32ef5): chunk-local and global time mixed up",
    edits=_metal("backward.metal", SCRATCH, "before[t * all_states + first_state + r * Dk + n] = S[r][i];"),
)

gradients_swapped = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="dq and dk are returned in each other's place",
    seen_in="state-spaces/mamba ddce0c1: gradients one place off; fla-org/flash-linear-attention#155: one assigned to another",
    edits=_metal("metal.py", "(_sum(dq, q), _sum(dk, k), dv,", "(_sum(dk, k), _sum(dq, q), dv,"),
)

state_has_no_gradient = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="the gradient of the initial state is returned as zeros",
    seen_in="fla-org/flash-linear-attention f0156a75: the initial state detached",
    edits=_metal("metal.py", "_sum(dbeta, beta), dstate)", "_sum(dbeta, beta), mx.zeros_like(dstate))"),
)

control_every_lane_stores = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="all lanes store the partial sum of dbeta, which is the same in all of them",
    seen_in="fla-org/flash-linear-attention#1018 (5659576e): several programs store one value at one address",
    edits=_metal(
        "backward.metal",
        "    if (lane == 0) {\n      dbeta_partial[of_simdgroup] = dbeta_t;\n",
        "    dbeta_partial[of_simdgroup] = dbeta_t;\n    if (lane == 0) {\n",
    ),
    expect="equivalent",
    reason="simd_sum gives every lane the same bits, and a store of the bits that are stored is none",
)

control_wider_fence = Mutant(
    op="gated_delta",
    defect="race-barrier",
    why="the barrier orders device memory too, which nobody shares here",
    seen_in="ml-explore/mlx, gated delta kernels: barriers with both flags where one is enough",
    edits=_metal("backward.metal", BARRIER, "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);"),
    expect="equivalent",
    reason="a fence orders memory and changes no number",
)

control_fewer_rows = Mutant(
    op="gated_delta",
    defect="thread-partition",
    why="a simdgroup holds 2 rows: more partial sums, of fewer rows each",
    seen_in="state-spaces/mamba#997 (e9594ce): another choice of the kernel's configuration",
    edits=_metal("metal.py", "4 if Dv <= 64 else 8", "2 if Dv <= 64 else 4"),
    expect="harmless",
    reason="another order of a correct sum moves the result by roundings, which is what the noise is made of",
)
