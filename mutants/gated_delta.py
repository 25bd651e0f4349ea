"""Mistakes people make in a gated delta rule that works a chunk at a time, and in one that goes step by step."""

from gradcheck import Edit, Mutant

MASKED = ("scalar-masked", "vector-masked")
SCALAR = ("scalar", "scalar-masked")
VECTOR = ("vector", "vector-masked")


def _chunkwise(find: str, replace: str) -> dict[str, Edit]:
    return {"chunkwise": Edit("chunkwise.py", find, replace)}


def _autodiff(find: str, replace: str) -> dict[str, Edit]:
    return {"autodiff": Edit("autodiff.py", find, replace)}


state_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the state is carried from chunk to chunk, or from step to step, without its decay",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay is missing in the recurrence",
    edits=_chunkwise("S = S * decay + ", "S = S + ") | _autodiff("decayed = S * gs[:, t]", "decayed = S"),
)

error_before_decay = Mutant(
    op="gated_delta",
    defect="wrong-formula",
    why="the error of a step is taken against the state before its decay",
    seen_in="ooples/AiDotNet.Tensors#895: RWKV-7 built in the form of RWKV-6",
    edits=_autodiff("(decayed * key).sum(-1)", "(S * key).sum(-1)"),
)

no_delta_correction = Mutant(
    op="gated_delta",
    defect="wrong-branch",
    why="what the state holds under a key is not taken off the value: gated linear attention without the delta",
    seen_in="fla-org/flash-linear-attention f636f5a1: the delta update was nested in a branch and skipped",
    edits=_chunkwise("D = u - w @ across", "D = u") | _autodiff("(vs[:, t] - (decayed * key).sum(-1))", "vs[:, t]"),
)

read_before_update = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="y of a step is read before the step writes its own value",
    seen_in="RWKV-6 reads before the update where others read after it; fla-org/flash-linear-attention 0c1c0b65",
    edits=_chunkwise("+ m @ D", "+ mx.tril(m, -1) @ D") | _autodiff("y = (new * qs", "y = (decayed * qs"),
)

heads_in_tiles = Mutant(
    op="gated_delta",
    defect="head-map",
    why="value head h reads key head h mod Hk instead of h // (Hv / Hk)",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): a modulo where the model repeats",
    edits=_chunkwise("mx.repeat(a, heads_per_key, axis=2)", "mx.tile(a, (1, 1, heads_per_key, 1))")
    | _autodiff("mx.repeat(a.astype(mx.float32), heads_per_key, axis=2)", "mx.tile(a.astype(mx.float32), (1, 1, heads_per_key, 1))"),
)

beta_once = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="beta weighs the values that are written, but not what is taken off for the state before the chunk",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=_chunkwise("T @ (beta * k_in)", "T @ k_in"),
)

beta_twice = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="values are weighed by beta squared",
    seen_in="fla-org/flash-linear-attention#87 (505809bf): an extra scale passed to the helper of dv",
    edits=_chunkwise("T @ (beta * v)", "T @ (beta * beta * v)"),
)

no_system = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the steps of a chunk do not see each other's corrections: the triangular system is taken for the identity",
    seen_in="ml-explore/mlx 7c112e4ac: a wrong term of the triangular inverse",
    edits=_chunkwise("T = unit_inverse(beta * kk)", "T = unit_inverse(0 * beta * kk)"),
)

plus_in_the_inverse = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="a plus for the minus of the corner in the triangular inverse",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): plus in the first Neumann term",
    edits=_chunkwise("corner = -(lower @ below @ upper)", "corner = lower @ below @ upper"),
)

inverse_gradient_sign = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="the gradient of the triangular inverse has the other sign",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): plus in the first Neumann term",
    edits=_chunkwise("return -mx.tril(across @ cotangent @ across, -1)", "return mx.tril(across @ cotangent @ across, -1)"),
)

inverse_gradient_without_transpose = Mutant(
    op="gated_delta",
    defect="transposed-layout",
    why="the gradient of the triangular inverse is taken with the inverse where its transpose belongs",
    seen_in="fla-org/flash-linear-attention da1970a6: an accumulator laid out transposed",
    edits=_chunkwise("across = out.swapaxes(-1, -2)\n    return", "across = out\n    return"),
)

inverse_gradient_unmasked = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the gradient of the inverse is not masked to the lower triangle",
    seen_in="fla-org/flash-linear-attention#794 (91d870f8): blocks without their boundary mask",
    edits=_chunkwise("return -mx.tril(across @ cotangent @ across, -1)", "return -(across @ cotangent @ across)"),
    expect="equivalent",
    reason="what L is made of is masked below the diagonal itself, and its gradient passes through that mask",
)

decay_gradient_late = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="dg of a step uses the decay up to that step where it should be up to the one before",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77): S_t for S_{t-1} in the gradient of the decay",
    edits=_chunkwise("ahead[..., :, :-1]", "ahead[..., :, 1:]"),
)

decay_gradient_divides = Mutant(
    op="gated_delta",
    defect="div-by-small",
    why="the gradient of the decay products is divided by the gate, which may be 0",
    seen_in="ml-explore/mlx#1167 (fd1c08137); ml-explore/mlx-lm#1389: a chunked backward divides by the gate",
    edits=_chunkwise(
        "return (out[..., :, 1:] * ahead[..., :, :-1]).sum(-2)",
        "return mx.stack([(cotangent * out)[..., i:, :i].sum((-2, -1)) / _[..., i - 1] for i in range(1, ahead.shape[-1])], -1)",
    ),
)

decay_by_logarithms = Mutant(
    op="gated_delta",
    defect="nan-overflow-exp",
    why="decays as exponentials of differences of summed logarithms: -inf less -inf for a gate of 0",
    seen_in="ml-explore/mlx d76b0e95d (branch gated-delta-update): log of a gate without a clamp",
    edits=_chunkwise(
        "return mx.tril(mx.cumprod(mx.where(later, steps, 1), axis=-2))",
        "sums = mx.cumsum(mx.log(steps), axis=-2)\n    return mx.tril(mx.exp(sums - sums.swapaxes(-1, -2)))",
    ),
)

diagonal_of_the_system = Mutant(
    op="gated_delta",
    defect="boundary-compare",
    why="the system keeps its diagonal: <= for < between steps",
    seen_in="fla-org/flash-linear-attention c57e6c29: a wrong strictness at the boundary",
    edits=_chunkwise("mx.tril(within * (k @ keys), -1),", "mx.tril(within * (k @ keys)),"),
    expect="equivalent",
    reason="the inverse reads blocks below the diagonal only, and its gradient is masked below the diagonal",
)

keys_decay_from_the_start = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="what a step writes reaches the end of its chunk decayed from the start of the chunk, not from that step",
    seen_in="fla-org/flash-linear-attention 9d148e32: decay anchored at the wrong edge of a block",
    edits=_chunkwise("        k * to_end,", "        k * from_start,"),
    variants=SCALAR,
)

queries_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="y reads the state before the chunk without its decay since",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): a missing decay",
    edits=_chunkwise("q * from_start,\n        k * to_end,", "q,\n        k * to_end,"),
    variants=SCALAR,
)

sub_chunk_too_many = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="between two sub-chunks the decay of the earlier one is counted too",
    seen_in="fla-org/flash-linear-attention c3f16354: counted at two places; 9d148e32: decay anchored off by one block",
    edits=_chunkwise("between[..., a, b + 1, None, :]", "between[..., a, b, None, :]"),
    variants=VECTOR,
)

sub_chunk_shifted_at_the_end = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="the decay to the end of a chunk starts one sub-chunk early",
    seen_in="fla-org/flash-linear-attention 1fb4e97b: states[c] for states[c + 1]",
    edits=_chunkwise("between[..., -1, 1:, None, :]", "between[..., -1, :-1, None, :]"),
    variants=VECTOR,
)

channels_share_a_gate = Mutant(
    op="gated_delta",
    defect="wrong-axis",
    why="within a sub-chunk all key channels decay by the gate of the first",
    seen_in="fla-org/flash-linear-attention#851 (12e2a700): reduced along the wrong axis",
    edits=_chunkwise("within, from_start, to_end = sub[..., 1:, 1:],", "within, from_start, to_end = sub[..., :1, 1:, 1:],"),
    variants=VECTOR,
)

first_chunk_mask_for_all = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="every chunk is masked by the mask of the first",
    seen_in="unslothai/unsloth-zoo e9c2d064; ml-explore/mlx-lm#546 (a4e32ef5): a mask indexed by the step within the chunk",
    edits=_chunkwise("kept = mask[:, :, None]", "kept = mask[:, mx.arange(length) % chunk][:, :, None]"),
    variants=MASKED,
)

masked_steps_write = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="a masked step still writes into the state",
    seen_in="ml-explore/mlx-lm#690 (43082fea); huggingface/transformers#32677: padding enters the state",
    edits=_chunkwise("beta = mx.where(kept, beta, 0)", "beta = mx.where(kept, beta, beta)")
    | _autodiff("mx.where(kept[..., None], new, S)", "mx.where(kept[..., None], new, new)"),
    variants=MASKED,
)

masked_steps_decay = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="a masked step still decays the state",
    seen_in="state-spaces/mamba#368: the decay of steps that are not there",
    edits=_chunkwise("kept[..., None], g, 1)", "kept[..., None], g, g)")
    | _autodiff("new, S), mx.where(kept", "new, decayed), mx.where(kept"),
    variants=MASKED,
)

masked_steps_read = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="y of a masked step is what the state gives, not 0, and its cotangent flows back",
    seen_in="mlx-lm's ops path (gated_delta_ops), beside its kernels, which write 0",
    edits=_chunkwise("y = mx.where(mask[:, :, None, None], y, 0)", "y = 1 * y") | _autodiff("mx.where(kept, y, 0)", "mx.where(kept, y, y)"),
    variants=MASKED,
)

tail_decays_to_nothing = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the steps that fill up the last chunk have a gate of 0: the final state is lost where T is no multiple of the chunk",
    seen_in="state-spaces/mamba#368: padded steps with a decay that is not 1",
    edits=_chunkwise("_chunks(g[..., None], chunk, 1)[..., 0]", "_chunks(g[..., None], chunk)[..., 0]"),
    variants=SCALAR,
)

bf16_state_between_chunks = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 between chunks",
    seen_in="fla-org/flash-linear-attention#740 (99db89bf): state transitions rounded to bf16 between chunks",
    edits=_chunkwise("S = S * decay + D", "S = (S * decay).astype(mx.bfloat16).astype(mx.float32) + D"),
    dtypes=("f32",),
)

bf16_state = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 after every step",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=_autodiff("S = new\n", "S = new.astype(mx.bfloat16).astype(mx.float32)\n"),
    dtypes=("f32",),
)

bf16_gate = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the gate is rounded to bfloat16",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=_chunkwise("length = q.shape[1]", "length, g = q.shape[1], g.astype(mx.bfloat16).astype(g.dtype)")
    | _autodiff("decayed = S * gs[:, t]", "decayed = S * gs[:, t].astype(mx.bfloat16)"),
    dtypes=("f32",),
)

bf16_beta = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="beta is rounded to bfloat16 and back",
    seen_in="vllm-project/vllm#53877: beta rounded to bf16 and back",
    edits=_chunkwise("length = q.shape[1]", "length, beta = q.shape[1], beta.astype(mx.bfloat16).astype(beta.dtype)")
    | _autodiff("betas[:, t, :, None] *", "betas[:, t, :, None].astype(mx.bfloat16) *"),
    dtypes=("f32",),
)

state_detached = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="the initial state is detached: its gradient is 0",
    seen_in="fla-org/flash-linear-attention f0156a75: the initial state detached",
    edits=_chunkwise("state.astype(mx.float32))\n", "mx.stop_gradient(state.astype(mx.float32)))\n")
    | _autodiff("S = state.astype(mx.float32)", "S = mx.stop_gradient(state.astype(mx.float32))"),
)

final_state_detached = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the cotangent of the final state is ignored: the reverse recurrence starts at 0",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=_chunkwise("last.astype(state.dtype)", "mx.stop_gradient(last.astype(state.dtype))")
    | _autodiff("S.astype(state.dtype)", "mx.stop_gradient(S.astype(state.dtype))"),
)

state_dropped_for_one_sequence = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="a batch of one starts from a state of zeros",
    seen_in="vllm-project/vllm#22034: the initial state dropped when the batch is 1",
    edits=_chunkwise("state.astype(mx.float32))\n", "state.astype(mx.float32) * (q.shape[0] > 1))\n")
    | _autodiff("S = state.astype(mx.float32)", "S = state.astype(mx.float32) * (q.shape[0] > 1)"),
)

gate_of_the_first_step = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="every step decays by the gate of the first",
    seen_in="huggingface/transformers#46084 (#46032): only the first token used",
    edits=_autodiff("decayed = S * gs[:, t]", "decayed = S * gs[:, 0]"),
)

state_of_the_first_sequence = Mutant(
    op="gated_delta",
    defect="state-leak-across-sequences",
    why="every sequence goes on from the state of the first",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=_chunkwise("across = S.swapaxes(-1, -2)", "across = mx.broadcast_to(S[:1], S.shape).swapaxes(-1, -2)")
    | _autodiff("S = state.astype(mx.float32)", "S = mx.broadcast_to(state[:1], state.shape).astype(mx.float32)"),
)

queries_for_keys = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="the value is written under the query instead of the key",
    seen_in="fla-org/flash-linear-attention#623 (3ddba2a0): one array taken for another",
    edits=_autodiff("delta[..., None] * key", "delta[..., None] * qs[:, t, :, None]"),
)

scaled_queries = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="y is scaled by 1 / sqrt(Dk), which the caller has done already",
    seen_in="fla-org/flash-linear-attention 9f8eb945: queries scaled twice; ggml's op scales where mlx-lm's does not",
    edits=_chunkwise("return y.astype(q.dtype), last", "return (y * q.shape[-1] ** -0.5).astype(q.dtype), last")
    | _autodiff("mx.stack(ys, axis=1)", "(mx.stack(ys, axis=1) * q.shape[-1] ** -0.5)"),
)
