"""Mistakes that only a Metal kernel of the scan can make: barriers, lanes, threadgroups, partial sums, memory that was never written.

`killed` is by numbers, or by the checker of `gradcheck.metal` where the numbers are right by luck: a race that no schedule met, a
fence that this machine does not need.
"""

from gradcheck import Edit, Mutant

from ._ssm_scan import chunked, metal

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SCRATCH = "before[(t - begin) * all_states + row_states + n] = S[i];"

barrier_deleted = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="terms of dB and dC are summed before the other simdgroups have written theirs",
    seen_in="ml-explore/mlx#2591 (6ccfa603c), #1188 (496315fe1): a threadgroup barrier missing in a scan",
    edits=metal("backward.metal", BARRIER, ""),
)

barrier_of_a_simdgroup = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the barrier waits for the lanes of a simdgroup, where the terms come from all simdgroups",
    seen_in="ml-explore/mlx#2591 (6ccfa603c): a barrier of too small a scope where simdgroups share memory",
    edits=metal("backward.metal", BARRIER, "simdgroup_barrier(mem_flags::mem_threadgroup);"),
)

barrier_fences_device_memory = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the barrier orders device memory, but the terms are in threadgroup memory",
    seen_in="mlx-lm 0.32.2, mlx_lm/tuner/losses.py, kl_forward: flags of a barrier that do not cover the memory read after it",
    edits=metal("backward.metal", BARRIER, "threadgroup_barrier(mem_flags::mem_device);"),
)

barrier_fences_nothing = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the barrier waits, and orders no memory",
    seen_in="mlx-lm 0.32.2, mlx_lm/tuner/losses.py, kl_forward: shared memory read after threadgroup_barrier(mem_none)",
    edits=metal("backward.metal", BARRIER, "threadgroup_barrier(mem_flags::mem_none);"),
)

barrier_of_the_first_simdgroups = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="only the simdgroups that sum reach the barrier: the others run ahead",
    seen_in="ml-explore/mlx#2591 (6ccfa603c): a barrier missing on one way through a scan",
    edits=metal("backward.metal", BARRIER, "if (me < 2) {\n        threadgroup_barrier(mem_flags::mem_threadgroup);\n      }"),
)

one_buffer_of_terms = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="one buffer and one barrier: a simdgroup writes its next terms while another still reads the last ones",
    seen_in="mlx-lm 0.32.2, mlx_lm/tuner/losses.py: shared[] written anew by one simdgroup while another still reads it",
    edits=metal("backward.metal", "      buffer = 1 - buffer;\n", ""),
)

lanes_assumed_full = Mutant(
    op="ssm_scan",
    defect="mask-ignored-tail",
    why="32 is taken to divide N: the lanes past the end read the next group's C, and add it to y",
    seen_in="fla-org/flash-linear-attention#1135 (b67113b4): no lane mask for sizes that are no multiple of the vector",
    edits=metal(
        "forward.metal",
        "    const float B_n = n < N ? static_cast<float>(B[projections + n]) : 0.0f;\n"
        "    const float C_n = n < N ? static_cast<float>(C[projections + n]) : 0.0f;\n",
        "    const float B_n = static_cast<float>(B[projections + n]);\n    const float C_n = static_cast<float>(C[projections + n]);\n",
    ),
)

stores_past_the_last_state = Mutant(
    op="ssm_scan",
    defect="mask-ignored-tail",
    why="32 is taken to divide N: the lanes past the end store their zeros on the next row of ds",
    seen_in="unslothai/unsloth-zoo#754: a head size that is no multiple of the tile",
    edits=metal(
        "backward.metal", "  if (n < N) {\n    store(ds, row_states + n, adjoint[i]);\n  }", "  store(ds, row_states + n, adjoint[i]);"
    ),
)

one_state_per_lane = Mutant(
    op="ssm_scan",
    defect="warp-size",
    why="N / 32 states per lane, rounded down: those past the last full column are in no lane",
    seen_in="state-spaces/mamba#831 (9babf40): a number of lanes assumed",
    edits=metal("metal.py", '("STATES", -(-N // LANES))', '("STATES", max(N // LANES, 1))'),
)

lanes_of_64 = Mutant(
    op="ssm_scan",
    defect="warp-size",
    why="64 lanes are assumed in a simdgroup: the second half of a column is in no lane",
    seen_in="state-spaces/mamba#831 (9babf40): 32 lanes assumed where there were 64",
    edits=metal("common.metal", "int LANES = 32;", "int LANES = 64;"),
)

first_lane_for_the_simdgroup = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="u is that of the first lane: the sum over the simdgroup was lost",
    seen_in="fla-org/flash-linear-attention#941 (e4c7f880): a tiled dimension without a reduction",
    edits=metal("backward.metal", "    u = simd_sum(u);\n", ""),
)

scan_for_a_sum = Mutant(
    op="ssm_scan",
    defect="wrong-variable",
    why="a prefix sum over the simdgroup, of which the first lane has only its own term",
    seen_in="ml-explore/mlx#1188 (496315fe1): the wrong collective's identity in a scan",
    edits=metal("forward.metal", "read = simd_sum(read);", "read = simd_prefix_inclusive_sum(read);"),
)

threadgroup_off_by_one = Mutant(
    op="ssm_scan",
    defect="wrong-index-stride",
    why="partial sums are stored by the number of the threadgroup plus one: the first is never written, the last lies outside",
    seen_in="fla-org/flash-linear-attention#19 (b16c81e1): a block one off",
    edits=metal("backward.metal", "tile = threadgroup_position_in_grid.y;", "tile = threadgroup_position_in_grid.y + 1;"),
)

threadgroups_share_a_partial = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="every threadgroup of a group stores its partial sums in one place: the last one stays, in whatever order they run",
    seen_in="fla-org/flash-linear-attention commit 0a83fd3f: a partial buffer whose index lacks one tile axis",
    edits=metal("backward.metal", "tile = threadgroup_position_in_grid.y;", "tile = 0;"),
)

last_threadgroup_is_full = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="the last threadgroup of a group sums the terms of 16 rows too, of which it wrote fewer",
    seen_in="unslothai/unsloth-zoo#754: a partial last tile adds what shared memory held before",
    edits=metal("backward.metal", "for (int k = 0; k < rows; ++k)", "for (int k = 0; k < ROWS; ++k)"),
)

rows_by_the_last_threadgroup = Mutant(
    op="ssm_scan",
    defect="thread-partition",
    why="a row is numbered by the size of its own threadgroup, which is smaller in the last one",
    seen_in="ggml-org/llama.cpp#21226 (ggml 9695adb0): the split of rows among threads skips or repeats the last ones",
    edits=metal("backward.metal", "row_at(thread_position_in_grid.y,", "row_at(tile * rows + me,"),
)

grid_in_threadgroups = Mutant(
    op="ssm_scan",
    defect="thread-partition",
    why="the grid is given in threadgroups, where MLX takes threads: most rows are not run",
    seen_in="ml-explore/mlx, docs of metal_kernel: the grid counts threads, not threadgroups as CUDA's does",
    edits=metal("metal.py", "(LANES, heads // groups * P, batch * groups)", "(LANES, -(-(heads // groups * P) // ROWS), batch * groups)"),
)

first_partial_alone = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="of the partial sums of dB only the first is taken",
    seen_in="fla-org/flash-linear-attention commit 7d808a33: per-tile partials overwrote one another",
    edits=metal("metal.py", "_sum(dB_partial.reshape(1, tiles, B.size), B)", "dB_partial[0].astype(B.dtype)"),
)

last_partial_alone = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="partial sums are stored where they should be added: the last one stays",
    seen_in="fla-org/flash-linear-attention commit 7d808a33: per-tile partials overwrote one another",
    edits=metal("sum.metal", "sum += partial[", "sum = partial["),
)

last_partial_forgotten = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="the sum of the partial sums ends one before the last",
    seen_in="ggml-org/llama.cpp#21226 (ggml 9695adb0): the last part of a split skipped",
    edits=metal("sum.metal", "k < count;", "k < metal::max(count - 1, 1);"),
)

first_row_in_threadgroup_memory = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="every simdgroup writes its terms on the first one's row",
    seen_in="unslothai/unsloth-zoo#754: rows of a threadgroup that share their slots",
    edits=metal("backward.metal", "terms[buffer][0][me][lane] =", "terms[buffer][0][0][lane] ="),
)

last_step_not_stored = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="d(dt) of the last step is not stored: its memory was thought to be zero",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): an output buffer that is written in part and was not zeroed",
    edits=metal("backward.metal", "      ddt_rows[here] =", "      if (t + 1 < T) ddt_rows[here] ="),
)

zeros_not_stored = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="a dx that is zero is not stored: its memory was thought to be zero",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): an output buffer that is written in part and was not zeroed",
    edits=metal("backward.metal", "      store(dx, here, q * u);", "      if (u != 0.0f) store(dx, here, q * u);"),
)

added_to_the_output = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="dA is added to what its memory held before",
    seen_in="fla-org/flash-linear-attention#1070 (0f0f0c97): sums into an output that was not initialised",
    edits=metal(
        "sum.metal",
        "store(total, size_t(thread_position_in_grid.y) * inner + thread_position_in_grid.x, sum);",
        "const size_t at = size_t(thread_position_in_grid.y) * inner + thread_position_in_grid.x;\n"
        "store(total, at, static_cast<float>(total[at]) + sum);",
    ),
)

scratch_shared_by_rows = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the states of a chunk are stored without the row's offset: rows write over each other",
    seen_in="state-spaces/mamba commit b43b177: rows overwrite each other's carry between chunks",
    edits=chunked("backward.metal", SCRATCH, "before[(t - begin) * all_states + n] = S[i];"),
)

scratch_by_step = Mutant(
    op="ssm_scan",
    defect="wrong-index-stride",
    why="the states of a chunk are stored by the step in the sequence, where there is room for one chunk",
    seen_in="ml-explore/mlx-lm#546 (a4e32ef5): chunk-local and global time mixed up",
    edits=chunked("backward.metal", SCRATCH, "before[t * all_states + row_states + n] = S[i];"),
)

scratch_of_one_state = Mutant(
    op="ssm_scan",
    defect="stale-buffer",
    why="every step of a chunk reads the state before its first",
    seen_in="ggml-org/llama.cpp#29092: recurrent state carried over from an earlier use",
    edits=chunked(
        "backward.metal", "n < N ? before[(t - begin) * all_states + row_states + n] : 0.0f", "n < N ? before[row_states + n] : 0.0f"
    ),
)

control_every_lane_stores = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="all lanes store y, which is the same in all of them",
    seen_in="fla-org/flash-linear-attention#1018 (5659576e): several programs store one value at one address",
    edits=metal("forward.metal", "  if (lane == 0) {\n    store(y, here, read);\n  }", "  store(y, here, read);"),
    expect="equivalent",
    reason="simd_sum gives every lane the same bits, and a store of the bits that are stored is none",
)

control_wider_fence = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the barrier orders device memory too, which nobody shares here",
    seen_in="ml-explore/mlx, gated delta kernels: barriers with both flags where one is enough",
    edits=metal("backward.metal", BARRIER, "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);"),
    expect="equivalent",
    reason="a fence orders memory and changes no number",
)

control_smaller_threadgroups = Mutant(
    op="ssm_scan",
    defect="thread-partition",
    why="a threadgroup holds 4 rows: more partial sums, of fewer rows each",
    seen_in="state-spaces/mamba#997 (e9594ce): another choice of the kernel's configuration",
    edits={"metal": Edit("metal.py", "ROWS = 16", "ROWS = 4")},
    expect="harmless",
    reason="another order of a correct sum moves the result by roundings, which is what the noise is made of",
)
