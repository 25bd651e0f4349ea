"""Mistakes people make in the gate of a gated delta layer: softplus and rate, their slopes, and sums over what shares a parameter."""
# ruff: noqa: N816 - dA_log is the symbol of the literature

from gradcheck import Mutant

from ._gated_delta_update import SCALAR, UNBOUNDED, VECTOR, gate

drop_softplus_slope = Mutant(
    op="gated_delta_update",
    defect="wrong-activation-deriv",
    why="the gradient of softplus(z) is returned as that of z: the factor sigmoid(z) is missing",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations",
    edits=gate("dlog * -rate * mx.sigmoid(z)", "dlog * -rate"),
    variants=UNBOUNDED,
)

slope_without_bias = Mutant(
    op="gated_delta_update",
    defect="recompute-mismatch",
    why="the backward takes the slope of softplus at a, the forward its value at a + dt_bias",
    seen_in="state-spaces/mamba#368: where bias and softplus are applied relative to each other in the reverse scan",
    edits=gate("dlog * -rate * mx.sigmoid(z)", "dlog * -rate * mx.sigmoid(a.astype(mx.float32))"),
    variants=UNBOUNDED,
)

slope_of_the_other_side = Mutant(
    op="gated_delta_update",
    defect="wrong-sign",
    why="the slope of softplus is taken at -z",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): a wrong sign in a recurrence's correction term",
    edits=gate("dlog * -rate * mx.sigmoid(z)", "dlog * -rate * mx.sigmoid(-z)"),
    variants=UNBOUNDED,
)

relu_slope = Mutant(
    op="gated_delta_update",
    defect="wrong-activation-deriv",
    why="softplus is differentiated as the ramp that it approaches: slope 0 or 1",
    seen_in="state-spaces/mamba 3854ad8: the linear branch of softplus, where it does not belong",
    edits=gate("dlog * -rate * mx.sigmoid(z)", "dlog * -rate * (z > 0)"),
    variants=UNBOUNDED,
)

plus_for_the_rate = Mutant(
    op="gated_delta_update",
    defect="wrong-sign",
    why="da loses the minus of A = -exp(A_log)",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): plus for minus in a recurrence's correction term",
    edits=gate("dz = dlog * -rate", "dz = dlog * rate"),
    variants=UNBOUNDED,
)

plus_in_dA_log = Mutant(
    op="gated_delta_update",
    defect="wrong-sign",
    why="dA_log loses the minus of A = -exp(A_log)",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): plus for minus in a recurrence's correction term",
    edits=gate("dA_log = dlog * -rate * softplus(z)", "dA_log = dlog * rate * softplus(z)"),
    variants=UNBOUNDED,
)

dA_log_without_log_g = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="dA_log is what reaches log g, without the factor log g",
    seen_in="unslothai/unsloth-zoo#754: the gate's chain rule",
    edits=gate("dA_log = dlog * -rate * softplus(z)", "dA_log = dlog"),
    variants=UNBOUNDED,
)

gradient_of_A_for_A_log = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="the gradient of A is returned as that of A_log: the factor A is missing",
    seen_in="state-spaces/mamba#923: A_log and A taken at different places",
    edits=gate("dA_log = dlog * -rate * softplus(z)", "dA_log = dlog * -softplus(z)"),
    variants=UNBOUNDED,
)

da_without_rate = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="da loses the rate exp(A_log)",
    seen_in="fla-org/flash-linear-attention#875 (4b02d15d): a factor of a path dropped",
    edits=gate("dz = dlog * -rate * mx.sigmoid(z)", "dz = dlog * -mx.sigmoid(z)"),
    variants=UNBOUNDED,
)

dA_log_by_slope = Mutant(
    op="gated_delta_update",
    defect="wrong-variable",
    why="dA_log is multiplied by the slope of softplus where its value belongs",
    seen_in="fla-org/flash-linear-attention c11ffb2d: a factor taken from the wrong array",
    edits=gate("dA_log = dlog * -rate * softplus(z)", "dA_log = dlog * -rate * mx.sigmoid(z)"),
    variants=UNBOUNDED,
)

linear_gate_for_log_gate = Mutant(
    op="gated_delta_update",
    defect="wrong-formula",
    why="the gradient of g is taken for that of log g",
    seen_in="ggml's op takes the gate as a logarithm where mlx-lm's takes it as it is",
    edits=gate("dlog = dg * g", "dlog = dg"),
)

divided_by_the_gate = Mutant(
    op="gated_delta_update",
    defect="div-by-small",
    why="the gradient of log g is divided by g, which may be 0, instead of multiplied",
    seen_in="ml-explore/mlx#1167 (fd1c08137); ml-explore/mlx-lm#1389: a backward that divides by the gate",
    edits=gate("dlog = dg * g", "dlog = dg / g"),
)

gate_twice = Mutant(
    op="gated_delta_update",
    defect="wrong-scaling",
    why="the gate is counted twice on the way back",
    seen_in="NeuraLegion/shainet#170: the decay applied at two places",
    edits=gate("dlog = dg * g", "dlog = dg * g * g"),
)

gate_without_cotangent = Mutant(
    op="gated_delta_update",
    defect="wrong-seed",
    why="the cotangent of the gate is taken to be 1",
    seen_in="fla-org/flash-linear-attention#963 (b9bdbcf2); BlinkDL/RWKV-LM commit 9df746d: not multiplied by the incoming cotangent",
    edits=gate("dlog = dg * g", "dlog = g"),
)

dt_bias_of_one_sequence = Mutant(
    op="gated_delta_update",
    defect="missing-reduction",
    why="the gradient of dt_bias is that of the first sequence, not the sum over the batch",
    seen_in="huggingface/transformers#22797 (review): gradient buffer [C] where the kernel writes [B, C]",
    edits=gate("_over(dz, dt_bias)", "_over(dz[:1], dt_bias)"),
)

dt_bias_of_the_last_step = Mutant(
    op="gated_delta_update",
    defect="missing-reduction",
    why="the gradient of dt_bias is stored at every step, not summed over them",
    seen_in="fla-org/flash-linear-attention commit 0a83fd3f: a partial buffer whose index lacks one tile axis",
    edits=gate("_over(dz, dt_bias)", "_over(dz[:, -1:], dt_bias)"),
)

A_log_of_one_sequence = Mutant(
    op="gated_delta_update",
    defect="missing-reduction",
    why="the gradient of A_log is that of the first sequence, not the sum over the batch",
    seen_in="fla-org/flash-linear-attention 31290d15: a parameter's gradient mixed over the batch",
    edits=gate("_over(dA_log, A_log)", "_over(dA_log[:1], A_log)"),
)

A_log_of_one_channel = Mutant(
    op="gated_delta_update",
    defect="missing-reduction",
    why="the gradient of A_log is that of the first key channel, not the sum over them",
    seen_in="fla-org/flash-linear-attention 7d808a33: partial sums of key tiles overwrote one another",
    edits=gate("_over(dA_log, A_log)", "_over(dA_log[..., :1], A_log)"),
    variants=VECTOR,
)

dt_bias_over_channels = Mutant(
    op="gated_delta_update",
    defect="over-reduction",
    why="the gradient of dt_bias is summed over the key channels too",
    seen_in="fla-org/flash-linear-attention#851 (12e2a700): summed along a wrong axis",
    edits=gate("_over(dz, dt_bias)", "_over(mx.broadcast_to(dz.sum(axis=-1, keepdims=True), dz.shape), dt_bias)"),
    variants=VECTOR,
)

mean_for_sum = Mutant(
    op="gated_delta_update",
    defect="wrong-scaling",
    why="the gradients of A_log and dt_bias are means over batch and steps",
    seen_in="fla-org/flash-linear-attention 85992884 (#47): a gradient with another scale than its forward",
    edits=gate("gradient.sum(axis=", "gradient.mean(axis="),
)

sum_in_bf16 = Mutant(
    op="gated_delta_update",
    defect="precision-downcast",
    why="the gradients of A_log and dt_bias are added up in bfloat16",
    seen_in="ml-explore/mlx dec774bad (branch gated-delta-vjp): gradients accumulated in the dtype of the inputs",
    edits=gate("gradient.sum(axis=", "gradient.astype(mx.bfloat16).sum(axis="),
    dtypes=("f32",),
)

parameters_swapped = Mutant(
    op="gated_delta_update",
    defect="autodiff-glue",
    why="the gradients of A_log and dt_bias change places",
    seen_in="state-spaces/mamba ddce0c1; fla-org/flash-linear-attention#155: gradients returned in the wrong order",
    edits=gate("_over(dA_log, A_log), _over(dz, dt_bias)", "_over(dz, A_log), _over(dA_log, dt_bias)"),
    variants=SCALAR,
)

bf16_A_log = Mutant(
    op="gated_delta_update",
    defect="precision-downcast",
    why="A_log is read in bfloat16 before the exponential",
    seen_in="state-spaces/mamba#923: A_log exponentiated in the storage dtype",
    edits=gate("mx.exp(A_log.astype(mx.float32))", "mx.exp(A_log.astype(mx.bfloat16)).astype(mx.float32)"),
    dtypes=("f32",),
)

bf16_A_log_on_the_way_back = Mutant(
    op="gated_delta_update",
    defect="recompute-mismatch",
    why="the backward exponentiates A_log in bfloat16, the forward in float32",
    seen_in="state-spaces/mamba#923: A_log exponentiated in the storage dtype in one module, in float32 in the other",
    edits=gate(
        "z, rate = prepare(a, A_log, dt_bias)\n        dlog", "z, rate = prepare(a, A_log.astype(mx.bfloat16), dt_bias)\n        dlog"
    ),
    dtypes=("f32",),
)

bf16_step = Mutant(
    op="gated_delta_update",
    defect="dtype-mix",
    why="a + dt_bias is added up in bfloat16, as mlx-lm does where both are",
    seen_in="ml-explore/mlx-lm#902 (1fd521c3): the gate in the dtype of a parameter",
    edits=gate(
        "a.astype(mx.float32) + dt_bias.astype(mx.float32)", "(a.astype(mx.bfloat16) + dt_bias.astype(mx.bfloat16)).astype(mx.float32)"
    ),
    dtypes=("f32",),
)

bias_forgotten = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="dt_bias is left out of the step, and has a gradient all the same",
    seen_in="state-spaces/mamba#368: a step without its bias",
    edits=gate("a.astype(mx.float32) + dt_bias.astype(mx.float32)", "a.astype(mx.float32) + 0 * dt_bias.astype(mx.float32)"),
)

A_for_A_log = Mutant(
    op="gated_delta_update",
    defect="wrong-variable",
    why="A_log is taken for A: the exponential is missing",
    seen_in="state-spaces/mamba#923: A_log and A taken at different places",
    edits=gate("mx.exp(A_log.astype(mx.float32))", "A_log.astype(mx.float32)"),
)

bf16_gate = Mutant(
    op="gated_delta_update",
    defect="precision-downcast",
    why="the gate is rounded to bfloat16",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=gate("return mx.exp(-rate * softplus(z))", "return mx.exp(-rate * softplus(z)).astype(mx.bfloat16).astype(mx.float32)"),
    variants=UNBOUNDED,
    dtypes=("f32",),
)

ramp_for_softplus = Mutant(
    op="gated_delta_update",
    defect="wrong-branch",
    why="softplus is its linear branch everywhere: max(z, 0)",
    seen_in="state-spaces/mamba 3854ad8: a branch of softplus missing",
    edits=gate("return mx.logaddexp(z, 0.0)", "return mx.maximum(z, 0.0)"),
    variants=UNBOUNDED,
)

softplus_without_its_bend = Mutant(
    op="gated_delta_update",
    defect="missing-clamp",
    why="softplus is z wherever z is above 0",
    seen_in="state-spaces/mamba 3854ad8: the linear branch of softplus at the wrong threshold",
    edits=gate("return mx.logaddexp(z, 0.0)", "return mx.where(z > 0.0, z, mx.logaddexp(z, 0.0))"),
    variants=UNBOUNDED,
)

gate_not_below = Mutant(
    op="gated_delta_update",
    defect="nan-overflow-exp",
    why="the gate is kept above 1e-4, so that a logarithm of it is finite",
    seen_in="ml-explore/mlx d76b0e95d (branch gated-delta-update): a clamp for the logarithm of a gate",
    edits=gate("return mx.exp(-rate * softplus(z))", "return mx.maximum(mx.exp(-rate * softplus(z)), 1e-4)"),
    variants=UNBOUNDED,
)
