"""Mistakes people make in a bounded gate, and in beta."""
# ruff: noqa: N816 - dA_log is the symbol of the literature

from gradcheck import Mutant

from ._gated_delta_update import BOUNDED, gate

bound_dropped_on_the_way_back = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="the gradient of a bounded gate loses the bound as a factor",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a bound that forward and backward do not share",
    edits=gate("du = dlog * lower_bound * mx.sigmoid(u)", "du = dlog * mx.sigmoid(u)"),
    variants=BOUNDED,
)

bounded_slope_half = Mutant(
    op="gated_delta_update",
    defect="wrong-activation-deriv",
    why="the slope of the gate's sigmoid is taken to be 1 - sigmoid",
    seen_in="fla-org/flash-linear-attention#483 (cde25dfd): a factor of an activation's backward left out",
    edits=gate("lower_bound * mx.sigmoid(u) * mx.sigmoid(-u)", "lower_bound * mx.sigmoid(-u)"),
    variants=BOUNDED,
)

bounded_slope_cancels = Mutant(
    op="gated_delta_update",
    defect="precision-cancellation",
    why="1 - sigmoid(u) by subtraction, which is lost where the gate has reached its bound",
    seen_in="fla-org/flash-linear-attention#1095 (3e432dec): total minus prefix; MLX differentiates its sigmoid so",
    edits=gate("mx.sigmoid(u) * mx.sigmoid(-u)", "mx.sigmoid(u) * (1 - mx.sigmoid(u))"),
    variants=BOUNDED,
)

bounded_da_without_rate = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="da of a bounded gate loses the rate exp(A_log)",
    seen_in="fla-org/flash-linear-attention#875 (4b02d15d): a factor of a path dropped",
    edits=gate("dz = du * rate", "dz = du"),
    variants=BOUNDED,
)

bounded_dA_log_without_argument = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="dA_log of a bounded gate loses the argument of its sigmoid",
    seen_in="unslothai/unsloth-zoo#754: the gate's chain rule",
    edits=gate("dA_log = du * u", "dA_log = du"),
    variants=BOUNDED,
)

bounded_dA_log_of_A = Mutant(
    op="gated_delta_update",
    defect="wrong-variable",
    why="dA_log of a bounded gate is that of exp(A_log)",
    seen_in="state-spaces/mamba#923: A_log and A taken at different places",
    edits=gate("dA_log = du * u", "dA_log = du * z"),
    variants=BOUNDED,
)

bound_off_by_one = Mutant(
    op="gated_delta_update",
    defect="missing-clamp",
    why="the bound is another one than was asked for",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a wrong bound of the time step",
    edits=gate("return mx.exp(lower_bound * mx", "return mx.exp((lower_bound + 1) * mx"),
    variants=BOUNDED,
)

bound_as_a_clamp = Mutant(
    op="gated_delta_update",
    defect="wrong-branch",
    why="the bound clips the unbounded gate, instead of scaling a sigmoid",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a clamp of the wrong quantity",
    edits=gate("return mx.exp(lower_bound * mx.sigmoid(rate * z))", "return mx.exp(mx.maximum(lower_bound, -rate * softplus(z)))"),
    variants=BOUNDED,
)

bias_outside_the_rate = Mutant(
    op="gated_delta_update",
    defect="wrong-formula",
    why="dt_bias of a bounded gate is added behind the rate",
    seen_in="state-spaces/mamba#368: a bias added at another place",
    edits=gate("mx.sigmoid(rate * z))", "mx.sigmoid(rate * (z - dt_bias) + dt_bias))"),
    variants=BOUNDED,
)

db_without_slope = Mutant(
    op="gated_delta_update",
    defect="wrong-activation-deriv",
    why="the gradient of beta is returned as that of b",
    seen_in="fla-org/flash-linear-attention#483 (cde25dfd): the backward of an activation omitted",
    edits=gate("(dbeta * beta * mx.sigmoid(-b.astype(mx.float32)))", "dbeta"),
)

db_half_the_slope = Mutant(
    op="gated_delta_update",
    defect="wrong-activation-deriv",
    why="db loses the factor beta of beta (1 - beta)",
    seen_in="fla-org/flash-linear-attention#863 (23da0a15): a part of the gradient of beta left out",
    edits=gate("dbeta * beta * mx.sigmoid(-b", "dbeta * mx.sigmoid(-b"),
)

db_cancels = Mutant(
    op="gated_delta_update",
    defect="precision-cancellation",
    why="1 - beta by subtraction: 0 in float32 from b = 18 on",
    seen_in="fla-org/flash-linear-attention#1095 (3e432dec): total minus prefix; MLX differentiates its sigmoid so",
    edits=gate("mx.sigmoid(-b.astype(mx.float32))", "(1 - beta)"),
)

db_wrong_sign = Mutant(
    op="gated_delta_update",
    defect="wrong-sign",
    why="db has the other sign",
    seen_in="ml-explore/mlx commit 7c112e4ac (branch gated-delta-update): plus for minus in a recurrence's correction term",
    edits=gate("dbeta * beta * mx.sigmoid(-b", "-dbeta * beta * mx.sigmoid(-b"),
)

bf16_beta = Mutant(
    op="gated_delta_update",
    defect="precision-downcast",
    why="beta is rounded to bfloat16 and back",
    seen_in="vllm-project/vllm#53877: beta rounded to bf16 and back",
    edits=gate("return mx.sigmoid(b.astype(mx.float32))", "return mx.sigmoid(b.astype(mx.float32)).astype(mx.bfloat16).astype(mx.float32)"),
    dtypes=("f32",),
)

doubled_once = Mutant(
    op="gated_delta_update",
    defect="wrong-scaling",
    why="beta is doubled, its gradient is not",
    seen_in="fla-org/flash-linear-attention 9f8eb945: a scale in the forward that the backward lacks",
    edits=gate("return 2 * beta if", "return beta + mx.stop_gradient(beta) if"),
    variants=("neg-eigval",),
)

never_doubled = Mutant(
    op="gated_delta_update",
    defect="wrong-branch",
    why="negative eigenvalues are asked for and not given: beta is not doubled",
    seen_in="fla-org/flash-linear-attention f636f5a1: what a flag switches on is skipped",
    edits=gate("return 2 * beta if", "return beta if"),
    variants=("neg-eigval",),
)

doubled_inside = Mutant(
    op="gated_delta_update",
    defect="wrong-formula",
    why="b is doubled instead of beta",
    seen_in="fla-org/flash-linear-attention#694 (3a904f02): a scale folded in at the wrong place",
    edits=gate("return 2 * beta if", 'return cast("mx.array", _sigmoid(2 * b)) if'),
    variants=("neg-eigval",),
)
