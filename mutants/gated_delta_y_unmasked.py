"""Mistakes about a masked step whose y is let through, in the kernel with checkpoints."""

from gradcheck import Mutant

from ._gated_delta import checkpointed

READ = "ys.append((new * query[..., None, :]).sum(axis=-1))"

masked_steps_write = Mutant(
    op="gated_delta_y_unmasked",
    defect="mask-ignored",
    why="a masked step still writes into the state",
    seen_in="ml-explore/mlx-lm#690 (43082fea); huggingface/transformers#32677: padding enters the state",
    edits=checkpointed("mx.where(mask[:, t], new, S)", "new"),
)

masked_steps_decay = Mutant(
    op="gated_delta_y_unmasked",
    defect="mask-ignored",
    why="a masked step still decays the state",
    seen_in="state-spaces/mamba#368: the decay of steps that are not there",
    edits=checkpointed("mx.where(mask[:, t], new, S)", "mx.where(mask[:, t], new, S * gate)"),
)

masked_reads_zeroed = Mutant(
    op="gated_delta_y_unmasked",
    defect="mask-ignored",
    why="y of a masked step is 0, as mlx-lm's kernels have it, and not what its ops path gives",
    seen_in="mlx-lm's kernels beside its ops path (gated_delta_ops)",
    edits=checkpointed(READ, f"{READ[:-1]} * mask[:, t, 0])"),
)

masked_reads_detached = Mutant(
    op="gated_delta_y_unmasked",
    defect="dropped-term",
    why="y of a masked step is let through, and its cotangent is not: nothing of it reaches q, k, v, g and beta of that step",
    seen_in="fla-org/flash-linear-attention f0156a75: a path detached",
    edits=checkpointed(READ, f"{READ}\n        ys[-1] = mx.where(mask[:, t, 0], ys[-1], mx.stop_gradient(ys[-1]))"),
)

masked_reads_of_the_state = Mutant(
    op="gated_delta_y_unmasked",
    defect="wrong-variable",
    why="y of a masked step is read from the state that is kept, not from the one the step would have made",
    seen_in="fla-org/flash-linear-attention#623 (3ddba2a0): one array taken for another",
    edits=checkpointed(READ, READ.replace("new * query", "mx.where(mask[:, t], new, S) * query")),
)
