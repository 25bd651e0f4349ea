"""Mistakes people make in the backward of a selective scan: the five of the public test table that this project began with.

The other files `ssm_scan_*.py` hold more, by kind. `G` is the adjoint of the state, walked back in time; see the kernel's docstring.
"""
# ruff: noqa: N816 - dA, dS and dC are the symbols of the literature

from gradcheck import Mutant

from ._ssm_scan import each, metal, shared

drop_dA_path = Mutant(
    op="ssm_scan",
    defect="dropped-term",
    why="d(dt) loses what flows through the decay exp(softplus(dt) A): only the path through the input is left",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations; a path of the adjoint dropped: fla-org/flash-linear-attention#875",
    edits=shared("dstep = input_path + dA_path", "dstep = input_path") | metal("backward.metal", "(x_t * u + through_decay)", "(x_t * u)"),
)

seed_ds_with_zeros = Mutant(
    op="ssm_scan",
    defect="wrong-seed",
    why="the reverse recurrence starts at zero: the cotangent of the final state is ignored",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations; open-lm-engine/accelerated-model-architectures#445",
    edits=each(
        mlx=("carried = ds_T[None]", "carried = mx.zeros_like(ds_T[None])"),
        checkpoint=("cotangents[1].astype(mx.float32)", "mx.zeros(cotangents[1].shape)"),
    )
    | metal("backward.metal", "n < N ? static_cast<float>(ds_T[row_states + n]) : 0.0f", "0.0f"),
)

drop_y_in_dS = Mutant(
    op="ssm_scan",
    defect="dropped-term",
    why="the adjoint of the state loses dy (outer) C: outputs send nothing back through the state",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations",
    edits=shared("G = carried + sent", "G = carried") | metal("backward.metal", "G_t = adjoint[i] + dy_t * C_n;", "G_t = adjoint[i];"),
)

previous_state_in_dC = Mutant(
    op="ssm_scan",
    defect="off-by-one-time",
    why="dC reads the state before the step, but y is read from the state after it",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations; a gradient one step off: fla-org/flash-linear-attention#77",
    edits=shared("dC = (dy[..., None] * S_after)", "dC = (dy[..., None] * S_before)")
    | metal("backward.metal", "= dy_t * S[i];", "= dy_t * S_before;"),
)

drop_softplus_slope = Mutant(
    op="ssm_scan",
    defect="wrong-activation-deriv",
    why="the gradient of softplus(dt) is returned as that of dt: the factor sigmoid(dt) is missing",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations",
    edits=shared("ddt = dstep * softplus_slope(time_first(dt))", "ddt = dstep")
    | metal("backward.metal", "through_decay) * softplus_slope(z)", "through_decay)"),
)
