"""Mistakes people make in a gated delta rule: in its equations, its heads, its mask and its chunks."""

from gradcheck import Mutant

from ._gated_delta import MASKED, SCALAR, VECTOR, autodiff, checkpointed, chunkwise

state_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the state is carried from chunk to chunk, or from step to step, without its decay",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay is missing in the recurrence",
    edits=chunkwise("S = mx.addmm(decay[i] * S,", "S = mx.addmm(S,")
    | autodiff("decayed = S * gs[:, t]", "decayed = S")
    | checkpointed("new = S * gate", "new = S"),
)

error_before_decay = Mutant(
    op="gated_delta",
    defect="wrong-formula",
    why="the error of a step is taken against the state before its decay",
    seen_in="ooples/AiDotNet.Tensors#895: RWKV-7 built in the form of RWKV-6",
    edits=autodiff("(decayed * key).sum(-1)", "(S * key).sum(-1)") | checkpointed("(new * key).sum(axis=-1)", "(S * key).sum(axis=-1)"),
)

no_delta_correction = Mutant(
    op="gated_delta",
    defect="wrong-branch",
    why="what the state holds under a key is not taken off the value: gated linear attention without the delta",
    seen_in="fla-org/flash-linear-attention f636f5a1: the delta update was nested in a branch and skipped",
    edits=chunkwise("errors.append(value[i] - key[i] @ S)", "errors.append(value[i])")
    | autodiff("(vs[:, t] - (decayed * key).sum(-1))", "vs[:, t]")
    | checkpointed("(value - (new * key).sum(axis=-1))", "value"),
)

read_before_update = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="y of a step is read before the step writes its own value",
    seen_in="RWKV-6 reads before the update where others read after it; fla-org/flash-linear-attention 0c1c0b65",
    edits=chunkwise("+ qk @ D", "+ mx.tril(qk, -1) @ D")
    | autodiff("y = (new * qs", "y = (decayed * qs")
    | checkpointed("ys.append((new * query", "ys.append((S * gate * query"),
)

heads_in_tiles = Mutant(
    op="gated_delta",
    defect="head-map",
    why="value head h reads key head h mod Hk instead of h // (Hv / Hk)",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): a modulo where the model repeats",
    edits=chunkwise("_chunks(a, chunk, 1) for", "_chunks(mx.tile(a, (1, 1, heads_per_key, 1)), chunk, heads_per_key) for")
    | autodiff("mx.repeat(a.astype(mx.float32), heads_per_key, axis=2)", "mx.tile(a.astype(mx.float32), (1, 1, heads_per_key, 1))")
    | checkpointed("mx.repeat(a, heads_per_key, axis=2)", "mx.tile(a, (1, 1, heads_per_key, 1))"),
)

beta_once = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="beta weighs the values that are written, but not what is taken off for the state before the chunk",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=chunkwise("solve[i] @ errors[-1]", "T[i] @ (beta[i] * value[i] - key[i] @ S)"),
)

beta_twice = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="values are weighed by beta squared",
    seen_in="fla-org/flash-linear-attention#87 (505809bf): an extra scale passed to the helper of dv",
    edits=chunkwise("solve[i] @ errors[-1]", "solve[i] @ (beta[i] * value[i] - key[i] @ S)"),
)

no_system = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the steps of a chunk do not see each other's corrections: the triangular system is taken for the identity",
    seen_in="ml-explore/mlx 7c112e4ac: a wrong term of the triangular inverse",
    edits=chunkwise("T = unit_inverse(beta * kk)", "T = unit_inverse(0 * beta * kk)"),
)

plus_in_the_inverse = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="a plus for the minus in the triangular inverse",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): plus in the first Neumann term",
    edits=chunkwise("eye[i : i + 1] - L", "eye[i : i + 1] + L"),
)

decay_by_logarithms = Mutant(
    op="gated_delta",
    defect="nan-overflow-exp",
    why="decays as exponentials of differences of summed logarithms: -inf less -inf for a gate of 0",
    seen_in="ml-explore/mlx d76b0e95d (branch gated-delta-update): log of a gate without a clamp",
    edits=chunkwise(
        "return mx.tril(mx.cumprod(mx.where(later, steps, 1), axis=-2))",
        "sums = mx.cumsum(mx.log(steps), axis=-2)\n    return mx.tril(mx.exp(sums - sums.swapaxes(-1, -2)))",
    ),
)

diagonal_of_the_system = Mutant(
    op="gated_delta",
    defect="boundary-compare",
    why="the system keeps its diagonal: <= for < between steps",
    seen_in="fla-org/flash-linear-attention c57e6c29: a wrong strictness at the boundary",
    edits=chunkwise("mx.tril(within * dots(k, k), -1),", "mx.tril(within * dots(k, k)),"),
    expect="equivalent",
    reason="the inverse reads blocks below the diagonal only, and the cotangent of the system is masked below the diagonal",
)

keys_decay_from_the_start = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="what a step writes reaches the end of its chunk decayed from the start of the chunk, not from that step",
    seen_in="fla-org/flash-linear-attention 9d148e32: decay anchored at the wrong edge of a block",
    edits=chunkwise("        k * to_end,", "        k * from_start,"),
    variants=SCALAR,
)

queries_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="y reads the state before the chunk without its decay since",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): a missing decay",
    edits=chunkwise("q * from_start,\n        k * to_end,", "q,\n        k * to_end,"),
    variants=SCALAR,
)

sub_chunk_too_many = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="between two sub-chunks the decay of the earlier one is counted too",
    seen_in="fla-org/flash-linear-attention c3f16354: counted at two places; 9d148e32: decay anchored off by one block",
    edits=chunkwise("between[..., a, b + 1, None, :]", "between[..., a, b, None, :]"),
    variants=VECTOR,
)

sub_chunk_shifted_at_the_end = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="the decay to the end of a chunk starts one sub-chunk early",
    seen_in="fla-org/flash-linear-attention 1fb4e97b: states[c] for states[c + 1]",
    edits=chunkwise("between[..., -1, 1:, None, :]", "between[..., -1, :-1, None, :]"),
    variants=VECTOR,
)

channels_share_a_gate = Mutant(
    op="gated_delta",
    defect="wrong-axis",
    why="within a sub-chunk all key channels decay by the gate of the first",
    seen_in="fla-org/flash-linear-attention#851 (12e2a700): reduced along the wrong axis",
    edits=chunkwise("within, from_start, to_end = sub[..., 1:, 1:],", "within, from_start, to_end = sub[..., :1, 1:, 1:],"),
    variants=VECTOR,
)

first_chunk_mask_for_all = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="every chunk is masked by the mask of the first",
    seen_in="unslothai/unsloth-zoo e9c2d064; ml-explore/mlx-lm#546 (a4e32ef5): a mask indexed by the step within the chunk",
    edits=chunkwise("kept = mask[:, :, None]", "kept = mask[:, mx.arange(length) % chunk][:, :, None]")
    | checkpointed("mx.split(mask[", "mx.split(mask[:, mx.arange(length) % every]["),
    variants=MASKED,
)

masked_steps_write = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="a masked step still writes into the state",
    seen_in="ml-explore/mlx-lm#690 (43082fea); huggingface/transformers#32677: padding enters the state",
    edits=chunkwise("beta = mx.where(kept, beta, 0)", "beta = mx.where(kept, beta, beta)")
    | autodiff("mx.where(kept[..., None], new, S)", "mx.where(kept[..., None], new, new)")
    | checkpointed("mx.where(mask[:, t], new, S)", "new"),
    variants=MASKED,
)

masked_steps_decay = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="a masked step still decays the state",
    seen_in="state-spaces/mamba#368: the decay of steps that are not there",
    edits=chunkwise("kept[..., None], g, 1)", "kept[..., None], g, g)")
    | autodiff("new, S), mx.where(kept", "new, decayed), mx.where(kept")
    | checkpointed("mx.where(mask[:, t], new, S)", "mx.where(mask[:, t], new, S * gate)"),
    variants=MASKED,
)

masked_steps_read = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="y of a masked step is what the state gives, not 0, and its cotangent flows back",
    seen_in="mlx-lm's ops path (gated_delta_ops), beside its kernels, which write 0",
    edits=chunkwise("y = mx.where(mask[:, :, None, None], y, 0)", "y = 1 * y")
    | autodiff("mx.where(kept, y, 0)", "mx.where(kept, y, y)")
    | checkpointed("return y if mask is None else mx.where(mask[:, :, None, None], y, 0), last", "return y, last"),
    variants=MASKED,
)

tail_decays_to_nothing = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the steps that fill up the last chunk have a gate of 0: the final state is lost where T is no multiple of the chunk",
    seen_in="state-spaces/mamba#368: padded steps with a decay that is not 1",
    edits=chunkwise("_chunks(gate, chunk, heads_per_key, fill=1)", "_chunks(gate, chunk, heads_per_key)"),
)

bf16_state_between_chunks = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 between chunks",
    seen_in="fla-org/flash-linear-attention#740 (99db89bf): state transitions rounded to bf16 between chunks",
    edits=chunkwise("S = mx.addmm(decay[i] * S,", "S = mx.addmm((decay[i] * S).astype(mx.bfloat16).astype(mx.float32),")
    | checkpointed("(S, *parts)", "(S.astype(mx.bfloat16).astype(mx.float32), *parts)"),
    dtypes=("f32",),
)

bf16_state = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 after every step",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=autodiff("S = new\n", "S = new.astype(mx.bfloat16).astype(mx.float32)\n")
    | checkpointed("new = new + key", "new = new.astype(mx.bfloat16).astype(mx.float32) + key"),
    dtypes=("f32",),
)

bf16_gate = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the gate is rounded to bfloat16",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=chunkwise("    length, heads", "    g = g.astype(mx.bfloat16).astype(g.dtype)\n    length, heads")
    | checkpointed("    length, heads", "    g = g.astype(mx.bfloat16).astype(g.dtype)\n    length, heads")
    | autodiff("decayed = S * gs[:, t]", "decayed = S * gs[:, t].astype(mx.bfloat16)"),
    dtypes=("f32",),
)

bf16_beta = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="beta is rounded to bfloat16 and back",
    seen_in="vllm-project/vllm#53877: beta rounded to bf16 and back",
    edits=chunkwise("    length, heads", "    beta = beta.astype(mx.bfloat16).astype(beta.dtype)\n    length, heads")
    | checkpointed("    length, heads", "    beta = beta.astype(mx.bfloat16).astype(beta.dtype)\n    length, heads")
    | autodiff("betas[:, t, :, None] *", "betas[:, t, :, None].astype(mx.bfloat16) *"),
    dtypes=("f32",),
)

state_detached = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="the initial state is detached: its gradient is 0",
    seen_in="fla-org/flash-linear-attention f0156a75: the initial state detached",
    edits=chunkwise("state.astype(mx.float32).swapaxes(-1, -2)", "mx.stop_gradient(state).astype(mx.float32).swapaxes(-1, -2)")
    | checkpointed("S, ys = state", "S, ys = mx.stop_gradient(state)")
    | autodiff("S = state.astype(mx.float32)", "S = mx.stop_gradient(state.astype(mx.float32))"),
)

final_state_detached = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the cotangent of the final state is ignored: the reverse recurrence starts at 0",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=chunkwise("mx.flatten(S.squeeze(0), 1, 2)", "mx.stop_gradient(mx.flatten(S.squeeze(0), 1, 2))")
    | checkpointed("S.astype(state.dtype)", "mx.stop_gradient(S.astype(state.dtype))")
    | autodiff("S.astype(state.dtype)", "mx.stop_gradient(S.astype(state.dtype))"),
)

state_dropped_for_one_sequence = Mutant(
    op="gated_delta",
    defect="missing-init",
    why="a batch of one starts from a state of zeros",
    seen_in="vllm-project/vllm#22034: the initial state dropped when the batch is 1",
    edits=chunkwise("state.astype(mx.float32).swapaxes(-1, -2)", "(state.astype(mx.float32) * (q.shape[0] > 1)).swapaxes(-1, -2)")
    | checkpointed("S, ys = state", "S, ys = (q.shape[0] > 1) * state")
    | autodiff("S = state.astype(mx.float32)", "S = state.astype(mx.float32) * (q.shape[0] > 1)"),
)

gate_of_the_first_step = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="every step decays by the gate of the first",
    seen_in="huggingface/transformers#46084 (#46032): only the first token used",
    edits=autodiff("decayed = S * gs[:, t]", "decayed = S * gs[:, 0]") | checkpointed("new = S * gate", "new = S * decay[:, 0]"),
)

state_of_the_first_sequence = Mutant(
    op="gated_delta",
    defect="state-leak-across-sequences",
    why="every sequence goes on from the state of the first",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=chunkwise(
        "state.astype(mx.float32).swapaxes(-1, -2)", "mx.broadcast_to(state[:1], state.shape).astype(mx.float32).swapaxes(-1, -2)"
    )
    | checkpointed("S, ys = state", "S, ys = mx.broadcast_to(state[:1], state.shape)")
    | autodiff("S = state.astype(mx.float32)", "S = mx.broadcast_to(state[:1], state.shape).astype(mx.float32)"),
)

queries_for_keys = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="the value is written under the query instead of the key",
    seen_in="fla-org/flash-linear-attention#623 (3ddba2a0): one array taken for another",
    edits=autodiff("delta[..., None] * key", "delta[..., None] * qs[:, t, :, None]")
    | checkpointed("new + key * delta", "new + query[..., None, :] * delta"),
)

scaled_queries = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="y is scaled by 1 / sqrt(Dk), which the caller has done already",
    seen_in="fla-org/flash-linear-attention 9f8eb945: queries scaled twice; ggml's op scales where mlx-lm's does not",
    edits=chunkwise("return y.astype(q.dtype),", "return (y * q.shape[-1] ** -0.5).astype(q.dtype),")
    | checkpointed("mx.concatenate(ys, axis=1)", "(mx.concatenate(ys, axis=1) * q.shape[-1] ** -0.5)")
    | autodiff("mx.stack(ys, axis=1)", "(mx.stack(ys, axis=1) * q.shape[-1] ** -0.5)"),
)

first_mask_for_every_sequence = Mutant(
    op="gated_delta",
    defect="wrong-index/stride",
    why="every sequence is masked by the mask of the first",
    seen_in="ml-explore/mlx-lm#546 (a4e32ef5): a mask of the wrong rows",
    edits=chunkwise("kept = mask[:, :, None]", "kept = mx.broadcast_to(mask[:1], mask.shape)[:, :, None]")
    | autodiff("kept = mask[:, t,", "kept = mask[:1, t,")
    | checkpointed("mx.where(mask[:, t], new, S)", "mx.where(mask[:1, t], new, S)"),
    variants=MASKED,
)

decay_as_a_quotient = Mutant(
    op="gated_delta",
    defect="div-by-small",
    why="the decay from a step to the end of its chunk is that of the whole chunk divided by that up to the step, 0/0 once a gate is 0",
    seen_in="ml-explore/mlx-lm#1389: a chunked form divides by the gate; BlinkDL/RWKV-LM's kernels divide by w",
    edits=chunkwise("all_[..., -1, 1:, None]", "all_[..., -1:, :1] / all_[..., 1:, :1]"),
    variants=SCALAR,
)

one_step_without_a_gate = Mutant(
    op="gated_delta",
    defect="short-T",
    why="a single step, or a single chunk, takes a path without the gate",
    seen_in="state-spaces/mamba fc80874: lengths below a window take another path",
    edits=chunkwise("S = mx.addmm(decay[i] * S,", "S = mx.addmm((decay[i] if len(value) > 1 else 1) * S,")
    | autodiff("decayed = S * gs[:, t]", "decayed = S * (gs[:, t] if q.shape[1] > 1 else 1)")
    | checkpointed("new = S * gate", "new = S * (gate if decay.shape[1] > 1 else 1)"),
)

keys_of_the_next_step = Mutant(
    op="gated_delta",
    defect="causality",
    why="the error of a step is taken under the key of the next one",
    seen_in="fla-org/flash-linear-attention#1240: an anchor taken from later tokens",
    edits=autodiff("(decayed * key).sum(-1)", "(decayed * ks[:, min(t + 1, q.shape[1] - 1), :, None]).sum(-1)")
    | checkpointed("(new * key).sum(axis=-1)", "(new * k[:, min(t + 1, q.shape[1] - 1), :, None, :]).sum(axis=-1)"),
)

beta_dropped = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the error is written whole, without beta",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=autodiff("betas[:, t, :, None] * (vs", "(vs") | checkpointed("* weight\n", "\n"),
)

beta_of_the_first_step = Mutant(
    op="gated_delta",
    defect="wrong-index/stride",
    why="every step is weighed by the beta of the first",
    seen_in="huggingface/transformers#46084 (#46032): only the first token used",
    edits=autodiff("betas[:, t, :, None]", "betas[:, 0, :, None]") | checkpointed("* weight\n", "* beta[:, 0]\n"),
)

gradients_stop_at_chunks = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="the state is detached from one chunk, or group of chunks, to the next: what came before gets no gradient",
    seen_in="fla-org/flash-linear-attention f0156a75: a state detached; purohit10saurabh/mamba-ssm-macos#7",
    edits=chunkwise("_group(*group, S)", "_group(*group, mx.stop_gradient(S) if ys else S)")
    | checkpointed("(S, *parts)", "(mx.stop_gradient(S) if ys else S, *parts)"),
)

state_in_the_closure = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="the state reaches the checkpointed chunk by its closure, of which mx.checkpoint knows nothing",
    seen_in="ml-explore/mlx: mx.checkpoint has gradients of the arguments only",
    edits=checkpointed("mx.checkpoint(partial(_chunk, kept))(S, *parts)", "mx.checkpoint(partial(_chunk, kept, S))(*parts)"),
)
