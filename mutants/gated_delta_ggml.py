"""Mistakes people make in ggml's gated delta rule beside mlx-lm's: in the order of its heads, in its log gate and in its scale."""

from gradcheck import Edit, Mutant

GATE = "mx.exp(g.astype(mx.float32))"
SCALE = "v.shape[3] ** -0.5"
STATE = "_in_runs(state, 1, heads)"


def tiled(find: str, replace: str) -> dict[str, Edit]:
    """An edit of the kernel in matrix products, where it puts heads into order and makes gate and scale."""
    return {"chunkwise": Edit("tiled.py", find, replace)}


heads_in_runs = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="value head h reads key head h // (Hv / Hk), as mlx-lm has it, instead of h mod Hk",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other; ggml.h, TAG_GGML_GDN_BCAST",
    edits=tiled(
        """_in_runs(v, 2, heads),
        _in_runs(decay, 2, heads),
        _in_runs(beta, 2, heads),
        _in_runs(state, 1, heads),
        chunk=chunk,
    )
    return _in_tiles(y, 2, heads).astype(q.dtype), _in_tiles(last, 1, heads)""",
        "v, decay, beta, state, chunk=chunk)\n    return y.astype(q.dtype), last",
    ),
)

order_of_heads_undone_twice = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="value heads are put from runs into tiles, not from tiles into runs: right where there are as many tiles as key heads",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("heads = k.shape[2]\n    decay", "heads = v.shape[2] // k.shape[2]\n    decay"),
)

values_in_tiles = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="values stay in tiles where gates, betas and states are put into runs",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("_in_runs(v, 2, heads)", "v"),
)

gates_in_tiles = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="gates stay in tiles where values are put into runs: a head decays by the gate of another",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("_in_runs(decay, 2, heads)", "decay"),
)

betas_in_tiles = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="betas stay in tiles where values are put into runs: a head is weighed by the beta of another",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("_in_runs(beta, 2, heads)", "beta"),
)

states_in_tiles = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="a head goes on from the state of another: initial states stay in tiles, unseen where they are zeros",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled(STATE, "state"),
)

outputs_in_runs = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="y is returned in runs of heads, in the order in which it was made",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("_in_tiles(y, 2, heads)", "y"),
)

final_states_in_runs = Mutant(
    op="gated_delta_ggml",
    defect="head-map",
    why="final states are returned in runs of heads, in the order in which they were made: the next call goes on from those of other heads",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): tiles and runs taken for each other",
    edits=tiled("_in_tiles(last, 1, heads)", "last"),
)

gate_in_linear_space = Mutant(
    op="gated_delta_ggml",
    defect="wrong-formula",
    why="the gate is taken for the decay itself, as mlx-lm has it, not for its logarithm",
    seen_in="mlx-lm's gate in linear space beside ggml's, a logarithm; ml-explore/mlx d76b0e95d (branch gated-delta-update): the other way round",
    edits=tiled(GATE, "g.astype(mx.float32)"),
)

gate_inverted = Mutant(
    op="gated_delta_ggml",
    defect="wrong-sign",
    why="the decay is exp(-g), for a caller who gives -log g",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): a plus for a minus",
    edits=tiled(GATE, "mx.exp(-g.astype(mx.float32))"),
)

gate_from_below = Mutant(
    op="gated_delta_ggml",
    defect="missing-clamp",
    why="gates below e^-5 are clipped up to it, and have no gradient",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a wrong lower clamp",
    edits=tiled(GATE, "mx.exp(mx.maximum(g.astype(mx.float32), -5))"),
)

gate_from_above = Mutant(
    op="gated_delta_ggml",
    defect="missing-clamp",
    why="gates above 1 are clipped to it, which ggml does not",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a wrong clamp",
    edits=tiled(GATE, "mx.exp(mx.minimum(g.astype(mx.float32), 0))"),
)

dg_of_the_decay = Mutant(
    op="gated_delta_ggml",
    defect="dropped-term",
    why="dg is that of the decay: the factor e^g, by which the exponential sends it back, is missing",
    seen_in="fla-org/flash-linear-attention 85992884 (#47): a factor of the forward missing in the backward",
    edits=tiled(GATE, "mx.exp(mx.stop_gradient(g).astype(mx.float32)) + (g - mx.stop_gradient(g)).astype(mx.float32)"),
)

dg_twice_through_the_gate = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="dg has the factor e^g twice: once from the exponential, once by hand",
    seen_in="fla-org/flash-linear-attention c3f16354: counted at two places",
    edits=tiled(
        GATE,
        "mx.exp(mx.stop_gradient(g).astype(mx.float32)) "
        "+ mx.exp(2 * mx.stop_gradient(g).astype(mx.float32)) * (g - mx.stop_gradient(g)).astype(mx.float32)",
    ),
)

gate_detached = Mutant(
    op="gated_delta_ggml",
    defect="autodiff-glue",
    why="the gate is detached where it is exponentiated: dg is 0",
    seen_in="fla-org/flash-linear-attention f0156a75: a path detached",
    edits=tiled(GATE, "mx.exp(mx.stop_gradient(g).astype(mx.float32))"),
)

channels_share_a_gate = Mutant(
    op="gated_delta_ggml",
    defect="wrong-axis",
    why="all key channels decay by the gate of the first",
    seen_in="fla-org/flash-linear-attention#851 (12e2a700): reduced along the wrong axis",
    edits=tiled("_in_runs(decay, 2, heads)", "_in_runs(mx.broadcast_to(decay[..., :1], decay.shape), 2, heads)"),
    variants=("vector",),
)

bf16_gate = Mutant(
    op="gated_delta_ggml",
    defect="precision-downcast",
    why="the decay is rounded to bfloat16",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=tiled(GATE, f"{GATE}.astype(mx.bfloat16).astype(mx.float32)"),
    dtypes=("f32",),
)

bf16_log_gate = Mutant(
    op="gated_delta_ggml",
    defect="precision-downcast",
    why="the logarithm of the gate is rounded to bfloat16 before it is exponentiated",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): the gate rounded to bf16",
    edits=tiled(GATE, "mx.exp(g.astype(mx.bfloat16).astype(mx.float32))"),
    dtypes=("f32",),
)

no_scale = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="y is not scaled, as mlx-lm's is not, whose callers scale the query",
    seen_in="ml-explore/mlx-lm#1798: a port of ggml's model that lacks the scale of its op",
    edits=tiled(f" * {SCALE}", ""),
)

scale_twice = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="y is scaled by 1 / Dv: the caller's scale and the op's",
    seen_in="fla-org/flash-linear-attention 9f8eb945: queries scaled twice",
    edits=tiled(SCALE, "v.shape[3] ** -1.0"),
)

scale_of_key_channels = Mutant(
    op="gated_delta_ggml",
    defect="wrong-variable",
    why="y is scaled by 1 / sqrt(Dk), the default of fla, which is another number once the two sizes differ",
    seen_in="fla-org/flash-linear-attention, chunk_gated_delta_rule: scale = K^-0.5, where ggml's text has S_v",
    edits=tiled(SCALE, "q.shape[3] ** -0.5"),
)

scaled_keys = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="keys are scaled like queries",
    seen_in="fla-org/flash-linear-attention#87 (505809bf): an extra scale passed to a helper",
    edits=tiled("        k,\n", f"        k * {SCALE},\n"),
)

dq_without_scale = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="dq lacks the scale; y, and what flows into the state, have it",
    seen_in="fla-org/flash-linear-attention 9f8eb945: the scale on the path of dq; 85992884 (#47): a scale ignored in the backward",
    edits=tiled(
        f"q.astype(mx.float32) * {SCALE}",
        f"mx.stop_gradient(q).astype(mx.float32) * {SCALE} + (q - mx.stop_gradient(q)).astype(mx.float32)",
    ),
)

no_scale_in_the_backward = Mutant(
    op="gated_delta_ggml",
    defect="wrong-scaling",
    why="the cotangent of y enters the backward without the scale: dq is too large, and so is all that flows back through the state",
    seen_in="fla-org/flash-linear-attention 85992884 (#47): the scale ignored in the backward",
    edits=tiled("_in_tiles(y, 2, heads)", "_in_tiles(y + (v.shape[3] ** 0.5 - 1) * (y - mx.stop_gradient(y)), 2, heads)"),
)

state_by_key_channels = Mutant(
    op="gated_delta_ggml",
    defect="wrong-index/stride",
    why="the initial state is read as [Dk, Dv], the transpose",
    seen_in="fla-org/flash-linear-attention keeps its states [K, V], ggml and mlx-lm [V, K]: a conversion that forgets it",
    edits=tiled(STATE, "_in_runs(state.reshape(*state.shape[:2], *state.shape[:1:-1]).swapaxes(-1, -2), 1, heads)"),
)

state_of_the_first_sequence = Mutant(
    op="gated_delta_ggml",
    defect="state-leak-across-sequences",
    why="every sequence goes on from the state of the first",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=tiled(STATE, "_in_runs(mx.broadcast_to(state[:1], state.shape), 1, heads)"),
)

state_detached = Mutant(
    op="gated_delta_ggml",
    defect="autodiff-glue",
    why="the initial state is detached: its gradient is 0",
    seen_in="fla-org/flash-linear-attention f0156a75: the initial state detached",
    edits=tiled(STATE, "_in_runs(mx.stop_gradient(state), 1, heads)"),
)

final_state_detached = Mutant(
    op="gated_delta_ggml",
    defect="wrong-seed",
    why="the cotangent of the final state is ignored: the reverse recurrence starts at 0",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=tiled("_in_tiles(last, 1, heads)", "_in_tiles(mx.stop_gradient(last), 1, heads)"),
)
