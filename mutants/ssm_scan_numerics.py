"""Mistakes of precision and range in the scan, and controls: changes that must not be flagged."""
# ruff: noqa: N816 - dA, dB and dS are the symbols of the literature

from gradcheck import Edit, Mutant

from ._ssm_scan import shared

bf16_adjoint = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the adjoint of the state is kept in bfloat16 from step to step",
    seen_in="fla-org/flash-linear-attention#37 (c39d0ef2; issue #36): state gradient in bf16",
    edits=shared("G = carried + sent", "G = (carried + sent).astype(mx.bfloat16).astype(mx.float32)"),
    dtypes=("f32",),
)

bf16_state = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 at every step",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=shared("S.append(a * S[-1] + new)", "S.append((a * S[-1] + new).astype(mx.bfloat16).astype(mx.float32))"),
    dtypes=("f32",),
)

bf16_carry_between_chunks = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the adjoint is rounded to bfloat16 where one chunk hands it to the next",
    seen_in="fla-org/flash-linear-attention#740 (99db89bf): chained factors rounded anew to bf16",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py",
            "adjoints(carried, dy[begin:end], chunk)",
            "adjoints(carried.astype(mx.bfloat16).astype(mx.float32), dy[begin:end], chunk)",
        )
    },
    dtypes=("f32",),
)

bf16_rate = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="A is read in bfloat16",
    seen_in="state-spaces/mamba#923: A_log taken in the storage dtype",
    edits=shared("rate = A.astype(mx.float32)", "rate = A.astype(mx.bfloat16).astype(mx.float32)"),
    dtypes=("f32",),
)

bf16_ds = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the gradient of the initial state goes through bfloat16",
    seen_in="ollama/ollama#15865: state output cast to the activation dtype",
    edits=shared("ds.astype(s.dtype)", "ds.astype(mx.bfloat16).astype(s.dtype)"),
    dtypes=("f32",),
)

f16_group_sums = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="dB and dC are summed over the heads of a group in float16",
    seen_in="ml-explore/mlx commit dec774bad (branch gated-delta-vjp): gradients accumulated in the input dtype",
    edits=shared("heads // groups, N).sum(axis=3)", "heads // groups, N).astype(mx.float16).sum(axis=3)"),
    dtypes=("f32",),
)

bf16_states_in_dA = Mutant(
    op="ssm_scan",
    defect="dtype-mix",
    why="the states that the gradient through the decay reads are stored in bfloat16",
    seen_in="state-spaces/mamba#869 (e85e92d): an operand of lower precision used without a cast",
    edits=shared("(G * S_before)", "(G * S_before.astype(mx.bfloat16).astype(mx.float32))"),
    dtypes=("f32",),
)

state_by_division = Mutant(
    op="ssm_scan",
    defect="div-by-small",
    why="the state before a step is got back by dividing by its decay, which may be 0",
    seen_in="MzeroMiko/mamba-mini#6; ml-explore/mlx#1167 (fd1c08137): division by a factor that underflows",
    edits=shared(
        "S_before, S_after = S[:-1], S[1:]",
        "S_after = S[1:]\n    S_before = (S_after - (steps.x * steps.step[..., None])[..., None] * steps.B[..., None, :]) / steps.decay[..., None, :]",
    ),
)

softplus_overflows = Mutant(
    op="ssm_scan",
    defect="missing-clamp",
    why="softplus is log(1 + exp(dt)) for every dt: infinite for large ones, 0 for very negative ones",
    seen_in="state-spaces/mamba commit 3854ad8: softplus without its linear branch",
    edits=shared("mx.where(z > SOFTPLUS_LINEAR_ABOVE, z, mx.logaddexp(z, 0.0))", "mx.log(1 + mx.exp(z))"),
)

control_slope_of_one_branch = Mutant(
    op="ssm_scan",
    defect="missing-clamp",
    why="the slope of softplus is sigmoid(dt) above 20 too",
    seen_in="state-spaces/mamba commit 3854ad8: the linear branch left out, here where it changes nothing",
    edits=shared("mx.where(z > SOFTPLUS_LINEAR_ABOVE, 1.0, mx.sigmoid(z))", "mx.sigmoid(z)"),
    expect="equivalent",
    reason="above 20 sigmoid is within 2.1e-9 of 1, which float32 rounds to 1: the same bits",
)

control_group_sums_in_another_order = Mutant(
    op="ssm_scan",
    defect="atomics-nondet",
    why="dB and dC are summed over the heads of a group from the last to the first, as atomics may do it",
    seen_in="state-spaces/mamba#827; MzeroMiko/VMamba#257: sums made with atomics differ from run to run",
    edits=shared("heads // groups, N).sum(axis=3)", "heads // groups, N)[:, :, :, ::-1].sum(axis=3)"),
    expect="harmless",
    reason="another order of a correct sum moves the result by roundings, which is what the noise is made of",
)

control_last_state_stored_twice = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the last state is written twice, with the same value",
    seen_in="fla-org/flash-linear-attention#1018 (5659576e): several programs store one value at one address",
    edits=shared("S_before, S_after = S[:-1], S[1:]", "S_before, S_after = S[:-1], mx.concatenate([S[1:-1], S[-1:]])"),
    expect="equivalent",
    reason="the value stored again is the value that is there: the same bits",
)

control_other_chunks = Mutant(
    op="ssm_scan",
    defect="chunk-const-mismatch",
    why="forward and backward both take chunks of one step more",
    seen_in="state-spaces/mamba#997 (e9594ce): another choice of the kernel's configuration",
    edits={
        "mlx-checkpoint": Edit(
            "checkpoint.py", "math.isqrt(x.shape[1]) if every is None else every", "1 + math.isqrt(x.shape[1]) if every is None else every"
        )
    },
    expect="equivalent",
    reason="checkpoints change which states are kept, and no operation and no order of a sum: the same bits",
)
