"""Mistakes of precision and range in the scan, and controls: changes that must not be flagged."""
# ruff: noqa: N816 - dA, dB and dS are the symbols of the literature

from gradcheck import Edit, Mutant

from ._ssm_scan import chunked, metal, shared

bf16_adjoint = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the adjoint of the state is kept in bfloat16 from step to step",
    seen_in="fla-org/flash-linear-attention#37 (c39d0ef2; issue #36): state gradient in bf16",
    edits=shared("G = carried + sent", "G = (carried + sent).astype(mx.bfloat16).astype(mx.float32)")
    | metal(
        "backward.metal", "G_t = adjoint[i] + dy_t * C_n;", "G_t = static_cast<float>(static_cast<bfloat16_t>(adjoint[i] + dy_t * C_n));"
    ),
    dtypes=("f32",),
)

bf16_state = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the state is rounded to bfloat16 at every step",
    seen_in="ml-explore/mlx-lm#997 (735a43b2): gate and state rounded to bf16 every step",
    edits=shared("S.append(a * S[-1] + new)", "S.append((a * S[-1] + new).astype(mx.bfloat16).astype(mx.float32))")
    | metal(
        "common.metal",
        "return metal::fma(decay, state, input * B);",
        "return static_cast<float>(static_cast<bfloat16_t>(metal::fma(decay, state, input * B)));",
    ),
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
    }
    | chunked(
        "backward.metal",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;",
        "    S[i] = n < N ? kept[chunk * all_states + row_states + n] : 0.0f;\n    adjoint[i] = static_cast<float>(static_cast<bfloat16_t>(adjoint[i]));",
    ),
    dtypes=("f32",),
)

bf16_rate = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="A is read in bfloat16",
    seen_in="state-spaces/mamba#923: A_log taken in the storage dtype",
    edits=shared("rate = A.astype(mx.float32)", "rate = A.astype(mx.bfloat16).astype(mx.float32)")
    | metal(
        "metal.py", "(s, x, dt, A, B, C)\n    return y, s_T", "(s, x, dt, A.astype(mx.bfloat16).astype(A.dtype), B, C)\n    return y, s_T"
    ),
    dtypes=("f32",),
)

bf16_ds = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="the gradient of the initial state goes through bfloat16",
    seen_in="ollama/ollama#15865: state output cast to the activation dtype",
    edits=shared("ds.astype(s.dtype)", "ds.astype(mx.bfloat16).astype(s.dtype)")
    | metal(
        "backward.metal",
        "store(ds, row_states + n, adjoint[i])",
        "store(ds, row_states + n, static_cast<float>(static_cast<bfloat16_t>(adjoint[i])))",
    ),
    dtypes=("f32",),
)

f16_group_sums = Mutant(
    op="ssm_scan",
    defect="precision-downcast",
    why="dB and dC are summed over the heads of a group in float16",
    seen_in="ml-explore/mlx commit dec774bad (branch gated-delta-vjp): gradients accumulated in the input dtype",
    edits=shared("heads // groups, N).sum(axis=3)", "heads // groups, N).astype(mx.float16).sum(axis=3)")
    | metal("backward.metal", "float sum = 0.0f;", "half sum = 0.0h;"),
    dtypes=("f32",),
)

bf16_states_in_dA = Mutant(
    op="ssm_scan",
    defect="dtype-mix",
    why="the states that the gradient through the decay reads are stored in bfloat16",
    seen_in="state-spaces/mamba#869 (e85e92d): an operand of lower precision used without a cast",
    edits=shared("(G * S_before)", "(G * S_before.astype(mx.bfloat16).astype(mx.float32))")
    | metal("backward.metal", "M = decay * G_t * S_before;", "M = decay * G_t * static_cast<float>(static_cast<bfloat16_t>(S_before));"),
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
    )
    | metal(
        "backward.metal", "n < N ? before[(t - begin) * all_states + row_states + n] : 0.0f;\n\n", "(S[i] - q * x_t * B_n) / decay;\n\n"
    ),
)

softplus_overflows = Mutant(
    op="ssm_scan",
    defect="missing-clamp",
    why="softplus is log(1 + exp(dt)) for every dt: infinite for large ones, 0 for very negative ones",
    seen_in="state-spaces/mamba commit 3854ad8: softplus without its linear branch",
    edits=shared("mx.where(z > SOFTPLUS_LINEAR_ABOVE, z, mx.logaddexp(z, 0.0))", "mx.log(1 + mx.exp(z))")
    | metal(
        "common.metal",
        "return z > SOFTPLUS_LINEAR_ABOVE ? z : metal::max(z, 0.0f) + log1p(metal::precise::exp(-metal::abs(z)));",
        "return metal::log(1.0f + metal::precise::exp(z));",
    ),
)

control_slope_of_one_branch = Mutant(
    op="ssm_scan",
    defect="missing-clamp",
    why="the slope of softplus is sigmoid(dt) above 20 too",
    seen_in="state-spaces/mamba commit 3854ad8: the linear branch left out, here where it changes nothing",
    edits=shared("mx.where(z > SOFTPLUS_LINEAR_ABOVE, 1.0, mx.sigmoid(z))", "mx.sigmoid(z)")
    | metal("common.metal", "return z > SOFTPLUS_LINEAR_ABOVE ? 1.0f : 1.0f /", "return 1.0f /"),
    expect="equivalent",
    reason="above 20 sigmoid is within 2.1e-9 of 1, which float32 rounds to 1: the same bits",
)

control_group_sums_in_another_order = Mutant(
    op="ssm_scan",
    defect="atomics-nondet",
    why="dB and dC are summed over the heads of a group from the last to the first, as atomics may do it",
    seen_in="state-spaces/mamba#827; MzeroMiko/VMamba#257: sums made with atomics differ from run to run",
    edits=shared("heads // groups, N).sum(axis=3)", "heads // groups, N)[:, :, :, ::-1].sum(axis=3)")
    | metal("backward.metal", "for (int k = 0; k < rows; ++k)", "for (int k = rows - 1; k >= 0; --k)"),
    expect="harmless",
    reason="another order of a correct sum moves the result by roundings, which is what the noise is made of",
)

control_last_state_stored_twice = Mutant(
    op="ssm_scan",
    defect="race-barrier",
    why="the last state is written twice, with the same value",
    seen_in="fla-org/flash-linear-attention#1018 (5659576e): several programs store one value at one address",
    edits=shared("S_before, S_after = S[:-1], S[1:]", "S_before, S_after = S[:-1], mx.concatenate([S[1:-1], S[-1:]])")
    | metal(
        "forward.metal", "store(s_T, row_states + n, S[i]);", "store(s_T, row_states + n, S[i]);\n    store(s_T, row_states + n, S[i]);"
    ),
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
    }
    | chunked("metal.py", "every=math.isqrt(x.shape[1]) if every", "every=1 + math.isqrt(x.shape[1]) if every"),
    expect="equivalent",
    reason="checkpoints change which states are kept, and no operation and no order of a sum: the same bits",
)
