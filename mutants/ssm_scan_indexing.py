"""Mistakes of index, stride and reduction in the scan's backward: heads and groups, sequences, tiles, layouts."""
# ruff: noqa: N816 - dA, dB and dS are the symbols of the literature

from gradcheck import Edit, Mutant

from ._ssm_scan import each, metal, shared

sum_heads_by_tile = Mutant(
    op="ssm_scan",
    defect="group-head-map",
    why="dB and dC are summed over heads h mod G, where head h reads group h // (H / G)",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): head to group map by modulo",
    edits=shared("groups, heads // groups, N).sum(axis=3)", "heads // groups, groups, N).sum(axis=2)")
    | metal(
        "backward.metal",
        "const Row row = row_at(thread_position_in_grid.y, thread_position_in_grid.z, H, P, G);",
        "Row row = row_at(thread_position_in_grid.y, thread_position_in_grid.z, H, P, G);\nrow.h = int(thread_position_in_grid.y) / P * G + row.g;",
    ),
)

read_heads_by_tile = Mutant(
    op="ssm_scan",
    defect="group-head-map",
    why="head h reads group h mod G in forward and backward alike, so that they agree with each other",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): head to group map by modulo",
    edits=shared(
        "mx.repeat(time_first(grouped), heads // grouped.shape[2], axis=2)",
        "mx.tile(time_first(grouped), (1, 1, heads // grouped.shape[2], 1))",
    )
    | metal("common.metal", "g * (H / G) + row / P,", "row / P * G + g,"),
)

last_head_of_a_group_wins = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="dB and dC are stored by each head of a group, not summed: the last one stays",
    seen_in="fla-org/flash-linear-attention commit 0a83fd3f: a partial buffer whose index lacks one tile axis",
    edits=shared("heads // groups, N).sum(axis=3)", "heads // groups, N)[:, :, :, -1]"),
)

groups_as_one = Mutant(
    op="ssm_scan",
    defect="missing-group-reduction",
    why="dB and dC are summed over all heads, as if there were one group",
    seen_in="state-spaces/mamba#547 (3b0dde5): backward called without the group size",
    edits=shared(
        "per_head.reshape(T, batch, groups, heads // groups, N).sum(axis=3)",
        "mx.repeat(per_head.sum(axis=2, keepdims=True), groups, axis=2)",
    )
    | metal(
        "metal.py",
        "_sum(dB_partial.reshape(1, tiles, B.size), B)",
        "_sum(mx.repeat(dB_partial.sum(axis=3, keepdims=True), groups, axis=3).reshape(1, tiles, B.size), B)",
    ),
)

last_channel_tile_wins = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="dC is stored by each tile of 32 channels, not summed over tiles: the last tile stays",
    seen_in="fla-org/flash-linear-attention#941 (e4c7f880): value dimension tiled in the backward without a reduction",
    edits=shared(
        "dC = (dy[..., None] * S_after).sum(axis=-2)",
        "dC = (dy[..., None] * S_after)[..., (dy.shape[-1] - 1) // 32 * 32 :, :].sum(axis=-2)",
    ),
)

last_state_tile_wins = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="the part of d(dt) through the decay is stored by each tile of 32 states, not summed over tiles",
    seen_in="fla-org/flash-linear-attention commit 7d808a33: per-tile partials of the gate's gradient overwrote one another",
    edits=shared(
        "dA_path = (found.dlog_decay * rate).sum(axis=-1)",
        "dA_path = (found.dlog_decay * rate)[..., (found.dlog_decay.shape[-1] - 1) // 32 * 32 :].sum(axis=-1)",
    )
    | metal("backward.metal", "through_decay += M * rate[i];", "through_decay = M * rate[i];"),
)

sum_32_lanes = Mutant(
    op="ssm_scan",
    defect="warp-size",
    why="the sum over states takes the 32 lanes of one simdgroup, whatever N is",
    seen_in="state-spaces/mamba#831 (9babf40): 32 lanes assumed; ggml-org/llama.cpp#14196 (ggml 71568e4b): hard-coded 32-wide warp",
    edits=shared("u = (G * steps.B[..., None, :]).sum(axis=-1)", "u = (G * steps.B[..., None, :])[..., :32].sum(axis=-1)")
    | metal("backward.metal", "u += G_t * B_n;", "u += i == 0 ? G_t * B_n : 0.0f;"),
)

drop_vector_tail = Mutant(
    op="ssm_scan",
    defect="mask-ignored-tail",
    why="the sum over channels goes in vectors of 4 and forgets the channels left over",
    seen_in="fla-org/flash-linear-attention#1135 (b67113b4): no lane mask for sizes that are no multiple of the vector",
    edits=shared(
        "input_path = (found.u * steps.x).sum(axis=-1)", "input_path = (found.u * steps.x)[..., : steps.x.shape[-1] // 4 * 4].sum(axis=-1)"
    )
    | metal("backward.metal", "(x_t * u + through_decay)", "((row.p < P / 4 * 4 ? x_t * u : 0.0f) + through_decay)"),
)

half_the_channels = Mutant(
    op="ssm_scan",
    defect="compiler-miscompile",
    why="dB is summed over the first half of the channels",
    seen_in="fla-org/flash-linear-attention#988 (595682b8; issue #984): dk wrong by a ratio near 0.5 with 4 warps",
    edits=shared(
        "steps.step[..., None, None] * G).sum(axis=-2)",
        "steps.step[..., None, None] * G)[..., : (steps.x.shape[-1] + 1) // 2, :].sum(axis=-2)",
    )
    | metal("backward.metal", "= q * x_t * G_t;", "= row.p < (P + 1) / 2 ? q * x_t * G_t : 0.0f;"),
)

last_sequence_wins = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="dA is stored by each sequence of the batch, not summed: the last one stays",
    seen_in="huggingface/transformers#22797 (review): gradient buffer [C] where the kernel writes [B, C]",
    edits=shared(".sum(axis=(0, 1))", ".sum(axis=0)[-1]")
    | metal("metal.py", "_sum(dA_rows.reshape(1, batch * P, A.size), A)", "_sum(dA_rows.reshape(1, batch * P, A.size)[:, -P:], A)"),
)

mean_over_sequences = Mutant(
    op="ssm_scan",
    defect="missing-reduction",
    why="dA is averaged over the batch where it has to be summed",
    seen_in="fla-org/flash-linear-attention commit 31290d15: a parameter's gradient mixed over the batch",
    edits=shared(".sum(axis=(0, 1))", ".sum(axis=0).mean(axis=0)")
    | metal("metal.py", "_sum(dA_rows.reshape(1, batch * P, A.size), A)", "_sum(dA_rows.reshape(1, batch * P, A.size) / batch, A)"),
)

ds_of_the_first_sequence = Mutant(
    op="ssm_scan",
    defect="state-leak-across-seqs",
    why="every sequence begins its way back with the cotangent of the first one's final state",
    seen_in="ggml-org/llama.cpp#14211: the state offset of parallel sequences wrong",
    edits=shared("carried = ds_T[None]", "carried = mx.broadcast_to(ds_T[:1], ds_T.shape)[None]")
    | metal("backward.metal", "ds_T[row_states + n]", "ds_T[(size_t(row.h) * P + row.p) * N + n]"),
)

s_of_the_first_sequence = Mutant(
    op="ssm_scan",
    defect="stale-buffer",
    why="the backward recomputes the states of every sequence from the state of the first",
    seen_in="vllm-project/tpu-inference#2431: the initial state's slot ignored",
    edits=each(
        mlx=("    S = states(S0, steps)\n    G, ds", "    S = states(mx.broadcast_to(S0[:1], S0.shape), steps)\n    G, ds"),
        checkpoint=("S = states(kept[number], chunk)", "S = states(mx.broadcast_to(kept[number][:1], kept[number].shape), chunk)"),
    )
    | metal(
        "backward.metal", "kept[chunk * all_states + row_states + n]", "kept[chunk * all_states + (size_t(row.h) * P + row.p) * N + n]"
    ),
)

s_of_the_first_head = Mutant(
    op="ssm_scan",
    defect="wrong-shape-broadcast",
    why="the state of head 0 is broadcast over the heads when states are recomputed",
    seen_in="state-spaces/mamba#866 (70f7eaa): a cached state that lacks an axis is broadcast in silence",
    edits=each(
        mlx=("    S = states(S0, steps)\n    G, ds", "    S = states(mx.broadcast_to(S0[:, :1], S0.shape), steps)\n    G, ds"),
        checkpoint=("S = states(kept[number], chunk)", "S = states(mx.broadcast_to(kept[number][:, :1], kept[number].shape), chunk)"),
    )
    | metal(
        "backward.metal", "kept[chunk * all_states + row_states + n]", "kept[chunk * all_states + (size_t(row.b) * H * P + row.p) * N + n]"
    ),
)

s_ignored_in_a_batch_of_one = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="with one sequence the states are recomputed from zero",
    seen_in="vllm-project/vllm#22034: initial state dropped when the batch is 1",
    edits={
        "mlx": Edit(
            "mlx.py",
            "    S = states(S0, steps)\n    G, ds",
            "    S = states(S0 if S0.shape[0] > 1 else mx.zeros_like(S0), steps)\n    G, ds",
        )
    }
    | metal("backward.metal", "S[i] = n < N ? kept", "S[i] = n < N && (batch > 1 || chunk > 0) ? kept"),
)

transposed_ds = Mutant(
    op="ssm_scan",
    defect="transposed-layout",
    why="ds is written as [N, P]",
    seen_in="fla-org/flash-linear-attention commit da1970a6: gradient of the initial state written transposed",
    edits=shared("ds.astype(s.dtype)", "ds.swapaxes(-1, -2).reshape(s.shape).astype(s.dtype)")
    | metal("backward.metal", "store(ds, row_states + n,", "store(ds, ((size_t(row.b) * H + row.h) * N + n) * P + row.p,"),
)

dy_read_as_contiguous = Mutant(
    op="ssm_scan",
    defect="wrong-index-stride",
    why="dy is read in the order of its memory, whatever its strides are",
    seen_in="fla-org/flash-linear-attention#871 (71ebc498): non-contiguous incoming gradient read as contiguous",
    edits=each(
        mlx=("dy, ds_T = time_first(cotangents[0])", "dy, ds_T = cotangents[0].astype(mx.float32).reshape(steps.x.shape)"),
        checkpoint=("dy, carried = time_first(cotangents[0])", "dy, carried = cotangents[0].astype(mx.float32).reshape(steps.x.shape)"),
    )
    | metal(
        "backward.metal", "static_cast<float>(dy[here])", "static_cast<float>(dy[((size_t(t) * batch + row.b) * H + row.h) * P + row.p])"
    ),
)

rows_of_dx_shifted = Mutant(
    op="ssm_scan",
    defect="wrong-index-stride",
    why="the sequences of dx are written one row off",
    seen_in="ml-explore/mlx#3483 (ff57d875e); unslothai/unsloth-zoo#776: batch rows above 0 received shifted updates",
    edits=shared("time_second(dx).astype(x.dtype)", "time_second(mx.roll(dx, 1, axis=1)).astype(x.dtype)")
    | metal("backward.metal", "store(dx, here,", "store(dx, ((size_t((row.b + 1) % batch) * T + t) * H + row.h) * P + row.p,"),
)

last_head_skipped = Mutant(
    op="ssm_scan",
    defect="thread-partition",
    why="heads go in pairs, and an odd last one gets no dx",
    seen_in="ggml-org/llama.cpp#21226 (ggml 9695adb0): the split of heads among threads skips or repeats the last ones",
    edits=shared(
        "dx = found.u * steps.step[..., None]",
        "dx = found.u * mx.where(mx.arange(steps.step.shape[-1]) < steps.step.shape[-1] // 2 * 2, steps.step, 0.0)[..., None]",
    )
    | metal("backward.metal", "store(dx, here, q * u)", "store(dx, here, row.h < H / 2 * 2 ? q * u : 0.0f)"),
)

dA_shaped_like_dt = Mutant(
    op="ssm_scan",
    defect="autodiff-glue",
    why="the zero gradient of A is made in the shape of dt",
    seen_in="ml-explore/mlx#3231 (db487f364): zero gradient shaped like the wrong parameter",
    edits=shared("(dA if A.ndim == 2 else dA.sum(axis=-1)).astype(A.dtype)", "mx.zeros_like(dt)")
    | metal("metal.py", "_sum(dA_rows.reshape(1, batch * P, A.size), A)", "mx.zeros_like(dt)"),
)
