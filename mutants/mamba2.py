"""Mistakes people make around the scan of a Mamba-2 layer: step size and its bounds, parameters shared by all tokens, the skip."""
# ruff: noqa: N816 - dA, dD and dB are the symbols of the literature

from gradcheck import Edit, Mutant


def _edit(find: str, replace: str) -> dict[str, Edit]:
    return {"mlx": Edit("mlx.py", find, replace)}


ignore_clip_mask = Mutant(
    op="mamba2",
    defect="missing-clamp",
    why="a step size at one of its bounds passes a gradient on to dt and dt_bias",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): the bounds of the time step wrong; state-spaces/mamba ssd_combined masks dt by dt_limit",
    edits=_edit("mx.where(inside, dstep, 0.0)", "dstep"),
)

lower_bound_without_mask = Mutant(
    op="mamba2",
    defect="missing-clamp",
    why="only the upper bound stops the gradient: a tiny step size that was clipped up still has one",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): tiny dt clipped up by a wrong lower bound",
    edits=_edit("inside = (unclipped >= low) & (unclipped <= high)", "inside = unclipped <= high"),
)

upper_bound_without_mask = Mutant(
    op="mamba2",
    defect="missing-clamp",
    why="only the lower bound stops the gradient: a step size that was clipped down still has one",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): one of two bounds of the time step wrong",
    edits=_edit("inside = (unclipped >= low) & (unclipped <= high)", "inside = unclipped >= low"),
)

wrong_lower_bound = Mutant(
    op="mamba2",
    defect="missing-clamp",
    why="the mask of the clip has another lower bound than the clip: 0.01, so that small step sizes get no gradient",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): tiny dt clipped up by a wrong lower bound",
    edits=_edit("inside = (unclipped >= low)", "inside = (unclipped >= 10 * low)"),
)

drop_skip_in_dx = Mutant(
    op="mamba2",
    defect="dropped-term",
    why="dx loses what flows through the skip D x",
    seen_in="fla-org/flash-linear-attention#875 (4b02d15d): one of two paths into a gradient dropped",
    edits=_edit("dx = dx_scan + skip * dy", "dx = dx_scan"),
)

dt_bias_of_one_sequence = Mutant(
    op="mamba2",
    defect="missing-reduction",
    why="the gradient of dt_bias is that of the last sequence, not the sum over the batch",
    seen_in="huggingface/transformers#22797 (review): gradient buffer [C] where the kernel writes [B, C]",
    edits=_edit("ddt_bias = dz.sum(axis=(0, 1))", "ddt_bias = dz.sum(axis=0)[-1]"),
)

dt_bias_of_the_last_step = Mutant(
    op="mamba2",
    defect="missing-reduction",
    why="the gradient of dt_bias is stored at every step, not summed over them",
    seen_in="fla-org/flash-linear-attention commit 0a83fd3f: a partial buffer whose index lacks one tile axis",
    edits=_edit("ddt_bias = dz.sum(axis=(0, 1))", "ddt_bias = dz[0].sum(axis=0)"),
)

drop_A_log_chain = Mutant(
    op="mamba2",
    defect="dropped-term",
    why="the gradient of A is returned as that of A_log: the factor A = -exp(A_log) is missing",
    seen_in="state-spaces/mamba#923: A_log and A taken at different places; unslothai/unsloth-zoo#754: the gate's chain rule",
    edits=_edit("dA_log = dA.sum(axis=-1) * rate[:, 0]", "dA_log = dA.sum(axis=-1)"),
)

A_log_chain_of_wrong_sign = Mutant(
    op="mamba2",
    defect="wrong-sign",
    why="the derivative of A = -exp(A_log) is taken to be exp(A_log)",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): plus for minus in a recurrence's correction term",
    edits=_edit("dA_log = dA.sum(axis=-1) * rate[:, 0]", "dA_log = dA.sum(axis=-1) * -rate[:, 0]"),
)

slope_without_bias = Mutant(
    op="mamba2",
    defect="recompute-mismatch",
    why="the backward takes the slope of softplus at dt, the forward its value at dt + dt_bias",
    seen_in="state-spaces/mamba#368: where bias and softplus are applied relative to each other in the reverse scan",
    edits=_edit("softplus_slope(z)", "softplus_slope(time_first(dt))"),
)

dD_without_dy = Mutant(
    op="mamba2",
    defect="wrong-seed",
    why="the gradient of D takes every cotangent of y to be 1",
    seen_in="fla-org/flash-linear-attention#963 (b9bdbcf2); BlinkDL/RWKV-LM commit 9df746d: not multiplied by the incoming cotangent",
    edits=_edit("dD = (dy * steps.x)", "dD = steps.x"),
)

bf16_A_log = Mutant(
    op="mamba2",
    defect="precision-downcast",
    why="A_log is read in bfloat16 before the exponential",
    seen_in="state-spaces/mamba#923: A_log exponentiated in the storage dtype",
    edits=_edit("-mx.exp(A_log.astype(mx.float32))", "-mx.exp(A_log.astype(mx.bfloat16)).astype(mx.float32)"),
    dtypes=("f32",),
)
