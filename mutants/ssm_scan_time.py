"""Mistakes of order and boundary in the scan's backward: one step off, the wrong way round, the first or the last step, chunks."""
# ruff: noqa: N816 - dA, dB and dS are the symbols of the literature

from gradcheck import Edit, Mutant

from ._ssm_scan import chunked, metal, shared

state_after_in_dA = Mutant(
    op="ssm_scan",
    defect="off-by-one-time",
    why="the gradient through the decay reads the state after the step, but the decay multiplies the state before it",
    seen_in="fla-org/flash-linear-attention#77 (0c1c0b65): the reference position of a decay one step off",
    edits=shared("(G * S_before)", "(G * S_after)") | metal("backward.metal", "M = decay * G_t * S_before;", "M = decay * G_t * S[i];"),
)

decay_before_use = Mutant(
    op="ssm_scan",
    defect="off-by-one-time",
    why="dB, dx and d(dt) read the adjoint after the decay of their step instead of before",
    seen_in="fla-org/flash-linear-attention commit 9d148e32: decay anchors one step off in the backward",
    edits=shared("        G_reversed.append(G)\n        carried = a * G", "        carried = a * G\n        G_reversed.append(carried)")
    | metal(
        "backward.metal",
        "G_t = adjoint[i] + dy_t * C_n;\n      adjoint[i] = decay * G_t;",
        "G_t = decay * (adjoint[i] + dy_t * C_n);\n      adjoint[i] = G_t;",
    ),
)

decays_in_forward_order = Mutant(
    op="ssm_scan",
    defect="reverse-scan",
    why="the loop walks back in time and reads the decays from the front",
    seen_in="triton-lang/triton#1517: a descending loop silently ran wrong",
    edits=shared("zip(_each(steps.decay[..., None, :])[::-1],", "zip(_each(steps.decay[..., None, :]),")
    | metal(
        "backward.metal",
        "adjoint[i] = decay * G_t;",
        "adjoint[i] = metal::precise::exp(softplus(static_cast<float>(dt[(size_t(row.b) * T + T - 1 - t) * H + row.h])) * rate[i]) * G_t;",
    ),
)

loop_ascends = Mutant(
    op="ssm_scan",
    defect="reverse-scan",
    why="the adjoint is carried from the first step to the last",
    seen_in="huggingface/transformers#47475: the recurrence between chunks contracted in the wrong direction",
    edits=shared(
        "zip(_each(steps.decay[..., None, :])[::-1], _each(from_y)[::-1], strict=True)",
        "zip(_each(steps.decay[..., None, :]), _each(from_y), strict=True)",
    )
    | metal(
        "backward.metal", "for (int chunk = (T - 1) / every; chunk >= 0; --chunk)", "for (int chunk = 0; chunk <= (T - 1) / every; ++chunk)"
    ),
)

state_minus_one = Mutant(
    op="ssm_scan",
    defect="off-by-one-time",
    why="the first step reads the state at index -1 instead of the initial state",
    seen_in="fla-org/flash-linear-attention#19 (b16c81e1): a row loaded at index -1 for the first block",
    edits=shared("S_before, S_after = S[:-1], S[1:]", "S_before, S_after = mx.concatenate([S[-1:], S[1:-1]]), S[1:]")
    | metal("backward.metal", "kept[chunk * all_states", "kept[(chunk > 0 ? chunk : (T - 1) / every) * all_states"),
)

skip_ds_of_one_step = Mutant(
    op="ssm_scan",
    defect="short-T",
    why="a sequence of one step takes a short way that forgets the cotangent of the final state",
    seen_in="state-spaces/mamba commit fc80874: state handling assumed more steps than there are",
    edits=shared("carried = ds_T[None]", "carried = ds_T[None] if dy.shape[0] > 1 else mx.zeros_like(ds_T[None])")
    | metal("backward.metal", "n < N ? static_cast<float>(ds_T", "n < N && T > 1 ? static_cast<float>(ds_T"),
)

one_step_too_many = Mutant(
    op="ssm_scan",
    defect="off-by-one-time",
    why="the loop runs once more at the end, so that ds is decayed twice by the first step",
    seen_in="state-spaces/mamba#393 (a71bb5a): extra positions run",
    edits=shared("return mx.concatenate(G_reversed[::-1]), carried[0]", "return mx.concatenate(G_reversed[::-1]), (a * carried)[0]")
    | metal(
        "backward.metal",
        "store(ds, row_states + n, adjoint[i])",
        "store(ds, row_states + n, adjoint[i] * metal::precise::exp(softplus(static_cast<float>(dt[size_t(row.b) * T * H + row.h])) * rate[i]))",
    ),
)

slope_of_the_first_step = Mutant(
    op="ssm_scan",
    defect="dropped-term",
    why="every step takes the softplus slope of the first",
    seen_in="huggingface/transformers#46084 (#46032): only token 0 used",
    edits=shared("softplus_slope(time_first(dt))", "softplus_slope(time_first(dt)[:1])")
    | metal("backward.metal", "softplus_slope(z)", "softplus_slope(static_cast<float>(dt[size_t(row.b) * T * H + row.h]))"),
)

step_counter_wraps_at_128 = Mutant(
    op="ssm_scan",
    defect="long-T",
    why="dC reads dy at the step modulo 128: the counter of steps is too narrow",
    seen_in="ggml-org/llama.cpp#29167: long prompts give garbage",
    edits={"mlx": Edit("mlx.py", "dC = (dy[..., None] * S_after)", "dC = (dy[mx.arange(dy.shape[0]) % 128][..., None] * S_after)")}
    | metal(
        "backward.metal", "= dy_t * S[i];", "= static_cast<float>(dy[((size_t(row.b) * T + t % 128) * H + row.h) * P + row.p]) * S[i];"
    ),
)

carry_of_the_last_sequence = Mutant(
    op="ssm_scan",
    defect="chunk-boundary-state",
    why="what is carried from chunk to chunk is stored without the row's offset: the last sequence's stays",
    seen_in="state-spaces/mamba commit b43b177: rows overwrite each other's carry between chunks",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py",
            "adjoints(carried, dy[begin:end], chunk)",
            "adjoints(mx.broadcast_to(carried[-1:], carried.shape), dy[begin:end], chunk)",
        )
    },
)

carry_dropped_between_chunks = Mutant(
    op="ssm_scan",
    defect="chunk-boundary-state",
    why="each chunk but the last begins its way back at zero",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py",
            "adjoints(carried, dy[begin:end], chunk)",
            "adjoints(carried if end == dy.shape[0] else mx.zeros_like(carried), dy[begin:end], chunk)",
        )
    }
    | chunked(
        "backward.metal",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;\n    adjoint[i] = end == T ? adjoint[i] : 0.0f;",
    ),
)

next_checkpoint = Mutant(
    op="ssm_scan",
    defect="chunk-boundary-state",
    why="a chunk is recomputed from the state at its end",
    seen_in="fla-org/flash-linear-attention commits 1fb4e97b, e18aedf2: states[c] for states[c + 1]",
    edits={"mlx-checkpoint": Edit("checkpoint.py", "states(kept[number], chunk)", "states(kept[min(number + 1, len(kept) - 1)], chunk)")}
    | chunked("backward.metal", "kept[chunk * all_states", "kept[metal::min(chunk + 1, (T - 1) / every) * all_states"),
)

checkpoint_by_step = Mutant(
    op="ssm_scan",
    defect="chunk-boundary-state",
    why="the checkpoint is looked up by the number of the step instead of the chunk",
    seen_in="sgl-project/sglang#31833: snapshot index assumes that each request starts on a chunk boundary",
    edits={"mlx-checkpoint": Edit("checkpoint.py", "states(kept[number], chunk)", "states(kept[min(begin, len(kept) - 1)], chunk)")}
    | chunked("backward.metal", "kept[chunk * all_states", "kept[metal::min(begin, (T - 1) / every) * all_states"),
)

always_the_first_checkpoint = Mutant(
    op="ssm_scan",
    defect="stale-buffer",
    why="every chunk is recomputed from the initial state: the buffer is not set anew",
    seen_in="ggml-org/llama.cpp#29092: recurrent state carried over from an earlier use",
    edits={"mlx-checkpoint": Edit("checkpoint.py", "states(kept[number], chunk)", "states(kept[0], chunk)")}
    | chunked("backward.metal", "kept[chunk * all_states + row_states + n]", "kept[row_states + n]"),
)

chunk_lengths_differ = Mutant(
    op="ssm_scan",
    defect="chunk-const-mismatch",
    why="the backward walks in chunks of one step more than the forward",
    seen_in="fla-org/flash-linear-attention#876 (769035e9): chunk length hard-coded in one kernel",
    edits={"mlx-checkpoint": Edit("checkpoint.py", "enumerate(_chunks(dy.shape[0], every))", "enumerate(_chunks(dy.shape[0], every + 1))")}
    | chunked("metal.py", 'strict=True)), "every": mx.array(every)}', 'strict=True)), "every": mx.array(every + 1)}'),
)

decays_of_the_first_chunk = Mutant(
    op="ssm_scan",
    defect="mask-ignored-tail",
    why="decays are read at the step within the chunk, so that every chunk is recomputed with those of the first",
    seen_in="ml-explore/mlx-lm#546 (a4e32ef5); unslothai/unsloth-zoo commit e9c2d064: a time-indexed input read at chunk-local time",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py", "states(kept[number], chunk)", "states(kept[number], chunk._replace(decay=steps.decay[: end - begin]))"
        )
    }
    | chunked(
        "backward.metal", "dt[step * H + row.h]));\n    const float input", "dt[(step - begin) * H + row.h]));\n    const float input"
    ),
)

padded_tail_decays = Mutant(
    op="ssm_scan",
    defect="mask-ignored-tail",
    why="a last chunk that is not full is padded with dt = 0, and the padding decays the adjoint by exp(softplus(0) A)",
    seen_in="state-spaces/mamba#368: out-of-range tail items treated as real",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py",
            "adjoints(carried, dy[begin:end], chunk)",
            "adjoints(carried * mx.exp((end - begin < every) * math.log(2) * rate)[:, None, :], dy[begin:end], chunk)",
        )
    }
    | chunked(
        "backward.metal",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;\n    adjoint[i] *= end - begin < every ? metal::precise::exp(softplus(0.0f) * rate[i]) : 1.0f;",
    ),
)

chunks_in_order_of_the_walk = Mutant(
    op="ssm_scan",
    defect="reverse-scan",
    why="the gradients of the chunks are stored in the order in which they were made, the last chunk first",
    seen_in="triton-lang/triton#1517: a descending loop silently ran wrong",
    edits={"mlx-checkpoint": Edit("checkpoint.py", "zip(*found[::-1], strict=True)", "zip(*found, strict=True)")}
    | metal("backward.metal", "(size_t(tile) * batch * T + step) * G", "(size_t(tile) * batch * T + row.b * T + T - 1 - t) * G"),
)
