"""Mistakes in the algebra of the scan's backward: a term or factor lost, doubled, of the wrong sign or variable."""
# ruff: noqa: N816 - dA, dB and dS are the symbols of the literature

from gradcheck import Edit, Mutant

from ._ssm_scan import each, metal, shared

drop_input_path = Mutant(
    op="ssm_scan",
    defect="dropped-term",
    why="d(dt) loses what flows through the input P x (outer) B: only the path through the decay is left",
    seen_in="fla-org/flash-linear-attention#875 (4b02d15d): one of two paths into a gradient dropped",
    edits=shared("dstep = input_path + dA_path", "dstep = dA_path") | metal("backward.metal", "(x_t * u + through_decay)", "through_decay"),
)

subtract_dA_path = Mutant(
    op="ssm_scan",
    defect="wrong-sign",
    why="d(dt) subtracts what flows through the decay, where it has to be added",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): plus for minus in a recurrence's correction term",
    edits=shared("dstep = input_path + dA_path", "dstep = input_path - dA_path")
    | metal("backward.metal", "x_t * u + through_decay", "x_t * u - through_decay"),
)

undecayed_adjoint = Mutant(
    op="ssm_scan",
    defect="dropped-term",
    why="the adjoint is handed to the step before without the decay a_t",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay multiply missing in the recurrence",
    edits=shared("carried = a * G", "carried = G") | metal("backward.metal", "adjoint[i] = decay * G_t;", "adjoint[i] = G_t;"),
)

step_twice_in_dx = Mutant(
    op="ssm_scan",
    defect="wrong-scaling",
    why="dx is scaled by the step size twice",
    seen_in="fla-org/flash-linear-attention#87 (505809bf): an extra scale in the gradient of the values",
    edits=shared("dx = found.u * steps.step[..., None]", "dx = found.u * steps.step[..., None] ** 2")
    | metal("backward.metal", "store(dx, here, q * u)", "store(dx, here, q * q * u)"),
)

drop_step_in_dB = Mutant(
    op="ssm_scan",
    defect="wrong-scaling",
    why="dB ignores that the input was scaled by the step size",
    seen_in="fla-org/flash-linear-attention#47 (85992884): the gradient of the values ignored the scale",
    edits=shared("steps.x[..., None] * steps.step[..., None, None] * G", "steps.x[..., None] * G")
    | metal("backward.metal", "= q * x_t * G_t;", "= x_t * G_t;"),
)

decay_twice_in_dB = Mutant(
    op="ssm_scan",
    defect="wrong-scaling",
    why="dB takes the adjoint after the decay of its own step, which the input of that step never went through",
    seen_in="NeuraLegion/shainet#170: the decay applied to both factors although only one carries it",
    edits=shared("steps.step[..., None, None] * G)", "steps.step[..., None, None] * G * steps.decay[..., None, :])")
    | metal("backward.metal", "= q * x_t * G_t;", "= q * x_t * adjoint[i];"),
)

C_for_B_in_dx = Mutant(
    op="ssm_scan",
    defect="wrong-variable",
    why="dx and d(dt) read the adjoint through C instead of B",
    seen_in="fla-org/flash-linear-attention#623 (3ddba2a0): one branch updated k where it meant v",
    edits=shared("u = (G * steps.B[..., None, :])", "u = (G * steps.C[..., None, :])")
    | metal("backward.metal", "u += G_t * B_n;", "u += G_t * C_n;"),
)

dy_for_x_in_dB = Mutant(
    op="ssm_scan",
    defect="wrong-variable",
    why="dB multiplies the adjoint by dy instead of x",
    seen_in="fla-org/flash-linear-attention commit c11ffb2d: a gradient multiplied by the wrong one of two vectors of equal shape",
    edits=shared("dB = (steps.x[..., None]", "dB = (dy[..., None]") | metal("backward.metal", "= q * x_t * G_t;", "= q * dy_t * G_t;"),
)

swap_dB_dC = Mutant(
    op="ssm_scan",
    defect="wrong-variable",
    why="dB is returned as dC and dC as dB: their shapes are equal, so nothing complains",
    seen_in="fla-org/flash-linear-attention#155: the gradient of one input assigned to another",
    edits=shared("return Contractions(dB, dC, u, dlog_decay)", "return Contractions(dC, dB, u, dlog_decay)")
    | metal("backward.metal", "(which == 0 ? dB_partial", "(which == 1 ? dB_partial"),
)

detach_s = Mutant(
    op="ssm_scan",
    defect="autodiff-glue",
    why="the initial state gets no gradient: it was detached",
    seen_in="fla-org/flash-linear-attention commit f0156a75: initial state detached",
    edits=shared("ds.astype(s.dtype)", "mx.zeros_like(s)")
    | metal("backward.metal", "store(ds, row_states + n, adjoint[i])", "store(ds, row_states + n, 0.0f)"),
)

lose_dx_in_a_copy = Mutant(
    op="ssm_scan",
    defect="grad-to-temporary",
    why="dx is written to a contiguous copy, and the caller's array stays zero",
    seen_in="state-spaces/mamba#834 (d68d16e): the caller's view did not receive the gradient",
    edits=shared("time_second(dx).astype(x.dtype)", "mx.zeros_like(x)")
    | metal("backward.metal", "store(dx, here, q * u)", "store(dx, here, 0.0f)"),
)

inject_ds_twice = Mutant(
    op="ssm_scan",
    defect="double-count",
    why="the cotangent of the final state is added twice; with checkpoints, once more in every chunk",
    seen_in="fla-org/flash-linear-attention commit c3f16354: final-state cotangent injected in two kernels",
    edits=each(
        mlx=("carried = ds_T[None]", "carried = ds_T[None] + ds_T[None]"),
        checkpoint=(
            "adjoints(carried, dy[begin:end], chunk)",
            "adjoints(carried + cotangents[1].astype(mx.float32), dy[begin:end], chunk)",
        ),
    )
    | metal("backward.metal", "n < N ? static_cast<float>(ds_T", "n < N ? 2.0f * static_cast<float>(ds_T"),
)

assume_dy_is_one = Mutant(
    op="ssm_scan",
    defect="wrong-seed",
    why="the reverse recurrence takes every cotangent of y to be 1",
    seen_in="fla-org/flash-linear-attention#963 (b9bdbcf2); BlinkDL/RWKV-LM commit 9df746d: not multiplied by the incoming cotangent",
    edits=shared("from_y = dy[..., None] *", "from_y = mx.ones_like(dy)[..., None] *")
    | metal("backward.metal", "G_t = adjoint[i] + dy_t * C_n;", "G_t = adjoint[i] + C_n;"),
)

raw_dt_in_recompute = Mutant(
    op="ssm_scan",
    defect="recompute-mismatch",
    why="the backward recomputes the states with dt itself, the forward took its softplus",
    seen_in="fla-org/flash-linear-attention#483 (cde25dfd): normalised in one path, not in the other",
    edits={
        "mlx": Edit(
            "mlx.py",
            "    S0, steps, rate = prepare(primals)",
            "    s, x, dt, A, B, C = primals\n    S0, (steps, rate) = s.astype(mx.float32), discretise(time_first(dt), x, A, B, C)",
        )
    }
    | metal(
        "backward.metal",
        "softplus(static_cast<float>(dt[step * H + row.h]));\n    const float input",
        "static_cast<float>(dt[step * H + row.h]);\n    const float input",
    ),
)

gate_one_taken_for_zero = Mutant(
    op="ssm_scan",
    defect="boundary-compare",
    why="a decay of exactly 1 is treated as fully decayed: the comparison with 1 is strict",
    seen_in="fla-org/flash-linear-attention commit c57e6c29 (issues #104, #389): a strict < turned zero log-decay into -inf",
    edits=shared("dlog_decay = steps.decay * (G", "dlog_decay = mx.where(steps.decay < 1, steps.decay, 0.0) * (G")
    | metal("backward.metal", "M = decay * G_t", "M = (decay < 1.0f ? decay : 0.0f) * G_t"),
)

accumulator_starts_at_one = Mutant(
    op="ssm_scan",
    defect="missing-init",
    why="the sum that becomes dA does not start at 0",
    seen_in="ml-explore/mlx#1188 (496315fe1): a scan's accumulator begins with the wrong identity",
    edits=shared(
        "dA = (found.dlog_decay * steps.step[..., None]).sum(axis=(0, 1))",
        "dA = 1 + (found.dlog_decay * steps.step[..., None]).sum(axis=(0, 1))",
    )
    | metal("backward.metal", "dA[i] = 0.0f;", "dA[i] = 1.0f;"),
)
