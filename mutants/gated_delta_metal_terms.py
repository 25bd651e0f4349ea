"""Mistakes in the equations of the Metal kernel of the gated delta rule: a term, a sign, a factor, a step, a mask, a rounding."""

from gradcheck import Edit, Mutant

MASKED = ("scalar-masked", "vector-masked")
VECTOR = ("vector", "vector-masked")

IN_BACKWARD = "    if (MASKED && !mask[step]) {\n      for (int r"
IN_FORWARD = "  if (MASKED && !mask[step]) {"


def _forward(find: str, replace: str) -> dict[str, Edit]:
    return {"metal": Edit("forward.metal", find, replace)}


def _backward(find: str, replace: str) -> dict[str, Edit]:
    return {"metal": Edit("backward.metal", find, replace)}


adjoint_starts_at_zero = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the cotangent of the final state is ignored",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=_backward(
        "adjoint[r][i] = first_row + r < Dv && n < Dk ? static_cast<float>(dstate_T[first_state + r * Dk + n]) : 0.0f;",
        "adjoint[r][i] = 0.0f;",
    ),
)

cotangent_of_the_state_in_every_chunk = Mutant(
    op="gated_delta",
    defect="double-count",
    why="the cotangent of the final state is added at the end of every chunk, not only of the last",
    seen_in="fla-org/flash-linear-attention c3f16354: the cotangent of the final state injected in two kernels",
    edits=_backward(
        "      S[r][i] = first_row + r < Dv && n < Dk ? kept[",
        "      adjoint[r][i] += end < T && first_row + r < Dv && n < Dk ? static_cast<float>(dstate_T[first_state + r * Dk + n]) : 0.0f;\n"
        "      S[r][i] = first_row + r < Dv && n < Dk ? kept[",
    ),
)

cotangent_taken_for_one = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the cotangent of y is taken for 1",
    seen_in="fla-org/flash-linear-attention#963 (b9bdbcf2): a gradient not multiplied by the incoming cotangent",
    edits=_backward("static_cast<float>(dy[values + r])", "1.0f"),
)

dq_of_the_state_before = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="dq is taken of the state before the step",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77): S_t and S_{t-1} mixed up",
    edits=_backward("dq_n += dy_t[r] * next_state(decayed, written, k_t[i]);", "dq_n += dy_t[r] * S[r][i];"),
)

dq_before_the_write = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dq is taken of the decayed state, without what the step writes",
    seen_in="RWKV-6 reads before the update where others read after it; fla-org/flash-linear-attention 0c1c0b65",
    edits=_backward("dq_n += dy_t[r] * next_state(decayed, written, k_t[i]);", "dq_n += dy_t[r] * decayed;"),
)

dk_without_correction = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dk lacks the part through what the state holds under the key",
    seen_in="fla-org/flash-linear-attention#875 (4b02d15d): a dependence on k dropped, so that dk is incomplete",
    edits=_backward("adjoint[r][i] * written + decayed * taken", "adjoint[r][i] * written"),
)

dk_by_correction_alone = Mutant(
    op="gated_delta",
    defect="compiler-miscompile",
    why="the second term of dk takes the place of the first",
    seen_in="fla-org/flash-linear-attention#687 (7ec266ff): an add fused wrongly, dk wrong on one architecture",
    edits=_backward("adjoint[r][i] * written + decayed * taken", "decayed * taken"),
)

dk_correction_sign = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="the second term of dk has the other sign",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): plus for minus in the delta correction",
    edits=_backward("adjoint[r][i] * written + decayed * taken", "adjoint[r][i] * written - decayed * taken"),
)

dk_before_decay = Mutant(
    op="gated_delta",
    defect="wrong-formula",
    why="the second term of dk is taken of the state before its decay",
    seen_in="ooples/AiDotNet.Tensors#895: the error taken before the decay",
    edits=_backward("adjoint[r][i] * written + decayed * taken", "adjoint[r][i] * written + S[r][i] * taken"),
)

dg_of_the_state_after = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="dg is taken of the state after the step",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77): S_t for S_{t-1} in the gradient of the decay",
    edits=_backward("dg_n += past * S[r][i];", "dg_n += past * next_state(decayed, written, k_t[i]);"),
)

dg_of_the_logarithm = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="dg is the gradient of log g: a factor g too much",
    seen_in="ggml's gate is a logarithm, mlx-lm's is not; fla-org/flash-linear-attention#87 (505809bf): an extra factor",
    edits=_backward("dg_n += past * S[r][i];", "dg_n += past * decayed;"),
)

dg_by_division = Mutant(
    op="gated_delta",
    defect="div-by-small",
    why="dg is divided by the gate, which may be 0",
    seen_in="ml-explore/mlx#1167 (fd1c08137); ml-explore/mlx-lm#1389: a backward that divides by the gate",
    edits=_backward("dg_n += past * S[r][i];", "dg_n += n < Dk ? past * decayed / g_t[i] : 0.0f;"),
)

dg_without_correction = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dg is taken of the adjoint of S, not of S~: the path through the error of the step is missing",
    seen_in="fla-org/flash-linear-attention#486 (17d1bc4e): dg by a formula that holds without the delta rule only",
    edits=_backward("dg_n += past * S[r][i];", "dg_n += adjoint[r][i] * S[r][i];"),
)

adjoint_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the adjoint is carried from step to step without its decay",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay is missing in the recurrence",
    edits=_backward("adjoint[r][i] = past * g_t[i];", "adjoint[r][i] = past;"),
)

adjoint_decays_twice = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="the adjoint decays twice a step",
    seen_in="NeuraLegion/shainet#170: a decay applied to both factors, of which one carries it",
    edits=_backward("adjoint[r][i] = past * g_t[i];", "adjoint[r][i] = past * g_t[i] * g_t[i];"),
)

adjoint_without_correction = Mutant(
    op="gated_delta",
    defect="wrong-branch",
    why="the adjoint passes a step as in linear attention, without the delta",
    seen_in="fla-org/flash-linear-attention f636f5a1: the delta update was nested in a branch and skipped",
    edits=_backward("const float past = adjoint[r][i] + taken * k_t[i];", "const float past = adjoint[r][i];"),
)

correction_without_beta = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="what the adjoint loses to a step is not weighed by beta",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=_backward("const float taken = -beta_t * pull[r];", "const float taken = -pull[r];"),
)

dv_beta_twice = Mutant(
    op="gated_delta",
    defect="wrong-scaling",
    why="dv is weighed by beta squared",
    seen_in="fla-org/flash-linear-attention#87 (505809bf): an extra scale passed to the helper of dv",
    edits=_backward("store(dv, values + r, beta_t * pull[r]);", "store(dv, values + r, beta_t * beta_t * pull[r]);"),
)

dbeta_of_what_is_written = Mutant(
    op="gated_delta",
    defect="wrong-formula",
    why="dbeta is taken with beta e for e",
    seen_in="fla-org/flash-linear-attention#43: the gradient of beta taken with the weighed error",
    edits=_backward("dbeta_t += pull[r] * e_t[r];", "dbeta_t += pull[r] * beta_t * e_t[r];"),
)

dv_along_queries = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="dv is read under the query instead of the key",
    seen_in="fla-org/flash-linear-attention#623 (3ddba2a0): one array taken for another",
    edits=_backward("pull[r] += adjoint[r][i] * k_t[i];", "pull[r] += adjoint[r][i] * q_t[i];"),
)

steps_go_forward = Mutant(
    op="gated_delta",
    defect="reverse-scan",
    why="within a chunk the backward goes through the steps from first to last",
    seen_in="triton-lang/triton#1517: a descending loop that ascends",
    edits=_backward("for (int t = end - 1; t >= begin; --t)", "for (int t = begin; t < end; ++t)"),
)

chunks_go_forward = Mutant(
    op="gated_delta",
    defect="reverse-scan",
    why="the backward goes through the chunks from first to last",
    seen_in="triton-lang/triton#4362: a scan in the wrong order",
    edits=_backward(
        "for (int begin = (T - 1) / chunk * chunk; begin >= 0; begin -= chunk)", "for (int begin = 0; begin < T; begin += chunk)"
    ),
)

made_again_without_decay = Mutant(
    op="gated_delta",
    defect="recompute-mismatch",
    why="the states of a chunk are made again without their decay",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay is missing in the recurrence",
    edits=_backward("next_state(S[r][i] * g_t[i], written, k_t[i])", "next_state(S[r][i], written, k_t[i])"),
)

made_again_without_beta = Mutant(
    op="gated_delta",
    defect="recompute-mismatch",
    why="the states of a chunk are made again from the errors as they are, not weighed by beta",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=_backward("const float written = first_row + r < Dv ? beta_t * error[", "const float written = first_row + r < Dv ? error["),
)

short_sequence_does_not_decay = Mutant(
    op="gated_delta",
    defect="short-T",
    why="a sequence of one step skips the decay of its initial state",
    seen_in="huggingface/transformers#46084 (#46032); fla-org/flash-linear-attention#1141: a branch for T = 1 of its own",
    edits=_forward("S[r][i] *= g_t[i];", "S[r][i] *= T > 1 ? g_t[i] : 1.0f;"),
)

gate_of_the_first_channel = Mutant(
    op="gated_delta",
    defect="wrong-index-stride",
    why="all key channels decay by the gate of the first",
    seen_in="fla-org/flash-linear-attention a09a3a5d: the stride of a gate per head for one per channel",
    edits=_forward("g[VECTOR ? head_step * Dk + n : head_step]", "g[VECTOR ? head_step * Dk : head_step]"),
    variants=VECTOR,
)

forward_ignores_the_mask = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="masked steps write into the state, and are read",
    seen_in="ml-explore/mlx-lm#690 (43082fea); huggingface/transformers#32677: padding enters the state",
    edits=_forward(IN_FORWARD, "  if (false) {"),
    variants=MASKED,
)

backward_ignores_the_mask = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="gradients flow through masked steps",
    seen_in="state-spaces/mamba#368: the adjoint takes steps that are not there for real ones",
    edits=_backward(IN_BACKWARD, "    if (false) {\n      for (int r"),
    variants=MASKED,
)

made_again_without_mask = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="masked steps decay the state when it is made again",
    seen_in="ml-explore/mlx-lm#546 (a4e32ef5): the mask lost where a chunk is gone through a second time",
    edits=_backward("const bool skipped = MASKED && !mask[step];", "const bool skipped = false;"),
    variants=MASKED,
)

mask_of_the_first_chunk = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the backward reads the mask by the step within the chunk",
    seen_in="unslothai/unsloth-zoo e9c2d064; ml-explore/mlx-lm#546 (a4e32ef5): a mask indexed by the step within the chunk",
    edits=_backward(IN_BACKWARD, "    if (MASKED && !mask[size_t(head.b) * T + t - begin]) {\n      for (int r"),
    variants=MASKED,
)

mask_of_the_first_sequence = Mutant(
    op="gated_delta",
    defect="state-leak-across-sequences",
    why="every sequence is masked as the first when its states are made again",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=_backward("const bool skipped = MASKED && !mask[step];", "const bool skipped = MASKED && !mask[t];"),
    variants=MASKED,
)

masked_steps_decay_the_adjoint = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the adjoint decays at a masked step, where it passes through",
    seen_in="state-spaces/mamba#368: the decay of steps that are not there",
    edits=_backward(
        "      continue;\n",
        "      for (int r = 0; r < ROWS; ++r) {\n"
        "        for (int i = 0; i < COLUMNS; ++i) {\n"
        "          const int n = metal::min(i * LANES + lane, Dk - 1);\n"
        "          adjoint[r][i] *= static_cast<float>(g[VECTOR ? head_step * Dk + n : head_step]);\n"
        "        }\n"
        "      }\n"
        "      continue;\n",
    ),
    variants=MASKED,
)

bf16_adjoint = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the adjoint is rounded to bfloat16 after every step",
    seen_in="fla-org/flash-linear-attention#37 (c39d0ef2): the gradient of the state in bf16",
    edits=_backward("adjoint[r][i] = past * g_t[i];", "adjoint[r][i] = static_cast<float>(static_cast<bfloat16_t>(past * g_t[i]));"),
    dtypes=("f32",),
)

bf16_kept_states = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the states at the begin of chunks are kept in bfloat16",
    seen_in="fla-org/flash-linear-attention#740 (99db89bf): state transitions rounded to bf16 between chunks",
    edits=_forward(
        "first_state + r * Dk + n] = S[r][i];", "first_state + r * Dk + n] = static_cast<float>(static_cast<bfloat16_t>(S[r][i]));"
    ),
    dtypes=("f32",),
)

bf16_partial_sums = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="partial sums of dq and dk are rounded to bfloat16",
    seen_in="ml-explore/mlx dec774bad (branch gated-delta-vjp): gradients summed in the dtype of the inputs",
    edits=_backward(")[of_block + n] = sum;", ")[of_block + n] = static_cast<float>(static_cast<bfloat16_t>(sum));"),
    dtypes=("f32",),
)

bf16_gate_in_the_backward = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the states are made again with a gate rounded to bfloat16, which the forward did not do",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=_backward(
        "next_state(S[r][i] * g_t[i], written, k_t[i])",
        "next_state(S[r][i] * static_cast<float>(static_cast<bfloat16_t>(g_t[i])), written, k_t[i])",
    ),
    dtypes=("f32",),
)
