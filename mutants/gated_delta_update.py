"""Mistakes people make around a gated delta kernel: what is handed on to it, and in which place."""

from gradcheck import Mutant

from ._gated_delta_update import BOUNDED, MASKED, call

mask_not_passed_on = Mutant(
    op="gated_delta_update",
    defect="mask-ignored",
    why="the mask is not handed on: masked steps are steps like others",
    seen_in="ml-explore/mlx-lm#690 (43082fea); huggingface/transformers#32677: padding enters the state",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(q, k, v, g, beta, state, None, **"),
    variants=MASKED,
)

state_detached = Mutant(
    op="gated_delta_update",
    defect="autodiff-glue",
    why="the initial state is detached: its gradient is 0",
    seen_in="fla-org/flash-linear-attention f0156a75: the initial state detached",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(q, k, v, g, beta, mx.stop_gradient(state), mask, **"),
)

state_dropped_for_one_sequence = Mutant(
    op="gated_delta_update",
    defect="missing-init",
    why="a batch of one starts from a state of zeros",
    seen_in="vllm-project/vllm#22034: the initial state dropped when the batch is 1",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(q, k, v, g, beta, state * (q.shape[0] > 1), mask, **"),
)

state_of_the_first_sequence = Mutant(
    op="gated_delta_update",
    defect="state-leak-across-sequences",
    why="every sequence goes on from the state of the first",
    seen_in="ggml-org/llama.cpp#14211: parallel sequences wrong",
    edits=call(
        "_kernel(path)(q, k, v, g, beta, state, mask, **",
        "_kernel(path)(q, k, v, g, beta, mx.broadcast_to(state[:1], state.shape), mask, **",
    ),
)

state_transposed = Mutant(
    op="gated_delta_update",
    defect="transposed-layout",
    why="the state is taken for [Dk, Dv]",
    seen_in="fla-org/flash-linear-attention eb7c8baa, da1970a6: a state laid out transposed",
    edits=call(
        "_kernel(path)(q, k, v, g, beta, state, mask, **",
        "_kernel(path)(q, k, v, g, beta, state.swapaxes(-1, -2).reshape(state.shape), mask, **",
    ),
)

queries_for_keys = Mutant(
    op="gated_delta_update",
    defect="wrong-variable",
    why="queries and keys change places",
    seen_in="fla-org/flash-linear-attention#155, #623 (3ddba2a0): one array taken for another",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(k, q, v, g, beta, state, mask, **"),
)

queries_scaled_again = Mutant(
    op="gated_delta_update",
    defect="wrong-scaling",
    why="q is scaled by 1 / sqrt(Dk), which the caller has done already",
    seen_in="fla-org/flash-linear-attention 9f8eb945: queries scaled twice; ggml's op scales where mlx-lm's does not",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(q * q.shape[-1] ** -0.5, k, v, g, beta, state, mask, **"),
)

gate_one_step_late = Mutant(
    op="gated_delta_update",
    defect="off-by-one-time",
    why="a step decays by the gate of the step before it",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77), b16c81e1: a gate one step off",
    edits=call("_kernel(path)(q, k, v, g, beta, state, mask, **", "_kernel(path)(q, k, v, mx.roll(g, 1, axis=1), beta, state, mask, **"),
)

beta_of_the_first_step = Mutant(
    op="gated_delta_update",
    defect="dropped-term",
    why="every step writes with the beta of the first",
    seen_in="huggingface/transformers#46084 (#46032): only the first token used",
    edits=call(
        "_kernel(path)(q, k, v, g, beta, state, mask, **",
        "_kernel(path)(q, k, v, g, mx.broadcast_to(beta[:, :1], beta.shape), state, mask, **",
    ),
)

heads_in_tiles = Mutant(
    op="gated_delta_update",
    defect="head-map",
    why="value head h reads key head h mod Hk instead of h // (Hv / Hk)",
    seen_in="ggml-org/llama.cpp#15625 (ggml e4556fe5): a modulo where the model repeats",
    edits=call(
        "_kernel(path)(q, k, v, g, beta, state, mask, **",
        "_kernel(path)(*(mx.tile(x, (1, 1, v.shape[2] // k.shape[2], 1)) for x in (q, k)), v, g, beta, state, mask, **",
    ),
)

one_bias_for_all_heads = Mutant(
    op="gated_delta_update",
    defect="wrong-shape-broadcast",
    why="every head has the dt_bias of the first",
    seen_in="state-spaces/mamba#866 (70f7eaa): an axis lost, and broadcast in silence",
    edits=call("g = gate.decay(a, A_log, dt_bias, lower_bound)", "g = gate.decay(a, A_log, dt_bias[:1], lower_bound)"),
)

gate_detached = Mutant(
    op="gated_delta_update",
    defect="autodiff-glue",
    why="the gate is detached: a, A_log and dt_bias are never trained",
    seen_in="ml-explore/mlx#1669: gradients of what a custom function captures are lost",
    edits=call("g = gate.decay(a, A_log, dt_bias, lower_bound)", "g = mx.stop_gradient(gate.decay(a, A_log, dt_bias, lower_bound))"),
)

A_log_captured = Mutant(
    op="gated_delta_update",
    defect="autodiff-glue",
    why="A_log is captured, not passed: its gradient is 0",
    seen_in="ml-explore/mlx#1669: gradients of what a custom function captures are lost",
    edits=call("g = gate.decay(a, A_log, dt_bias, lower_bound)", "g = gate.decay(a, mx.stop_gradient(A_log), dt_bias, lower_bound)"),
)

bound_not_passed_on = Mutant(
    op="gated_delta_update",
    defect="wrong-branch",
    why="the lower bound is not handed on: the gate is the unbounded one",
    seen_in="ml-explore/mlx-lm#1026 (6ddfdda1): a bound that is not the model's",
    edits=call("g = gate.decay(a, A_log, dt_bias, lower_bound)", "g = gate.decay(a, A_log, dt_bias)"),
    variants=BOUNDED,
)

beta_detached = Mutant(
    op="gated_delta_update",
    defect="autodiff-glue",
    why="beta is detached: b is never trained",
    seen_in="purohit10saurabh/mamba-ssm-macos#7: a path detached from the graph",
    edits=call("beta = gate.strength(b,", "beta = gate.strength(mx.stop_gradient(b),"),
)

cotangents_of_one_output = Mutant(
    op="gated_delta_update",
    defect="wrong-seed",
    why="the cotangent of the final state is ignored",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=call(
        '_kernel(path)(q, k, v, g, beta, state, mask, **({} if chunk is None else {"chunk": chunk}))',
        '(lambda y, last: (y, mx.stop_gradient(last)))(*_kernel(path)(q, k, v, g, beta, state, mask, **({} if chunk is None else {"chunk": chunk})))',
    ),
)
