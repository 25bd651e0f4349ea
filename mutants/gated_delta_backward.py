"""Mistakes people make in a backward of the gated delta rule that they write by hand: the chunkwise kernel's."""

from gradcheck import Mutant

from ._gated_delta import SCALAR, chunkwise

system_gradient_sign = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="the cotangent of the triangular system has the other sign",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): plus in the first Neumann term",
    edits=chunkwise("dL = -mx.tril(dR @ columns, -1)", "dL = mx.tril(dR @ columns, -1)"),
)

system_solved_without_transpose = Mutant(
    op="gated_delta",
    defect="transposed-layout",
    why="the backward solves with the system where its transpose belongs",
    seen_in="fla-org/flash-linear-attention da1970a6: an accumulator laid out transposed",
    edits=chunkwise("k_out, solve.swapaxes(-1, -2),", "k_out, solve,"),
)

system_gradient_unmasked = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the cotangent of the system is not masked to the lower triangle",
    seen_in="fla-org/flash-linear-attention#794 (91d870f8): blocks without their boundary mask",
    edits=chunkwise("dL = -mx.tril(dR @ columns, -1)", "dL = -(dR @ columns)"),
    expect="equivalent",
    reason="what it is multiplied with is 0 there, and what L is made of is masked itself",
)

read_gradient_unmasked = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the cotangent of M is not masked to the lower triangle",
    seen_in="fla-org/flash-linear-attention#794 (91d870f8): blocks without their boundary mask",
    edits=chunkwise("mx.tril(dy @ columns),", "dy @ columns,"),
    expect="equivalent",
    reason="it is multiplied with decays, or reaches a gradient of decays, that are 0 above the diagonal",
)

decay_gradient_late = Mutant(
    op="gated_delta",
    defect="off-by-one-time",
    why="dg of a step uses the decay up to that step where it should be up to the one before",
    seen_in="fla-org/flash-linear-attention 0c1c0b65 (issue #77): S_t for S_{t-1} in the gradient of the decay",
    edits=chunkwise("ahead[..., :, :-1]", "ahead[..., :, 1:]"),
)

decay_gradient_divides = Mutant(
    op="gated_delta",
    defect="div-by-small",
    why="the gradient of the decay products is divided by the gate, which may be 0",
    seen_in="ml-explore/mlx#1167 (fd1c08137); ml-explore/mlx-lm#1389: a chunked backward divides by the gate",
    edits=chunkwise(
        "return (out[..., :, 1:] * ahead[..., :, :-1]).sum(-2)",
        "return mx.stack([(cotangent * out)[..., i:, :i].sum((-2, -1)) / _[..., i - 1] for i in range(1, ahead.shape[-1])], -1)",
    ),
)

decay_gradient_of_one_channel = Mutant(
    op="gated_delta",
    defect="missing-reduction",
    why="what the decay of a whole chunk adds to dg is that of one key channel, not their sum: tiles overwrite each other",
    seen_in="fla-org/flash-linear-attention 7d808a33: partial sums of dg overwrote one another",
    edits=chunkwise("dthrough.sum(-2, keepdims=True)", "dthrough[..., :1, :]"),
    variants=SCALAR,
)

costate_without_decay = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the cotangent of the state goes back from chunk to chunk without the decay",
    seen_in="ml-explore/mlx-lm#453 (d6c45998): the decay is missing in the recurrence",
    edits=chunkwise("G = mx.addmm(decay[i] * G,", "G = mx.addmm(G,"),
)

costate_without_reads = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the cotangent of the state loses what y reads of it",
    seen_in="ggml fork, S1-31 SSM_SCAN_BACK, its table of five mutations: y's own contribution to dS dropped",
    edits=chunkwise("G = mx.addmm(decay[i] * G, query[i], y[i])", "G = decay[i] * G"),
)

costate_without_corrections = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="the cotangent of the state loses what flows through the error v - S k: the backward of gated linear attention",
    seen_in="fla-org/flash-linear-attention f636f5a1: the delta term skipped",
    edits=chunkwise("G = mx.addmm(G, key[i], solved[-1], alpha=-1)", ""),
)

corrections_unweighted = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="what flows through the error into the state lacks beta",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=chunkwise("solved[-1], alpha=-1)", "T[i].swapaxes(-1, -2) @ given[-1], alpha=-1)"),
)

costate_seeded_in_every_chunk = Mutant(
    op="gated_delta",
    defect="double-count",
    why="the cotangent of the final state is added in every chunk",
    seen_in="fla-org/flash-linear-attention c3f16354: injected in two kernels",
    edits=chunkwise("G = mx.addmm(decay[i] * G,", "G = mx.addmm(cotangents[1] + decay[i] * G,"),
)

costate_of_zeros = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the reverse recurrence of a group starts from zeros, not from the cotangent it is handed",
    seen_in="open-lm-engine/accelerated-model-architectures#445: the adjoint started at zero",
    edits=chunkwise("dy, G = cotangents[:2]", "dy, G = cotangents[0], mx.zeros_like(cotangents[1])"),
)

reads_without_seed = Mutant(
    op="gated_delta",
    defect="wrong-seed",
    why="the backward takes the cotangent of y for ones",
    seen_in="fla-org/flash-linear-attention#963 (b9bdbcf2); BlinkDL/RWKV-LM 9df746d: not multiplied by the incoming cotangent",
    edits=chunkwise("dy, G = cotangents[:2]", "dy, G = mx.ones_like(cotangents[0]), cotangents[1]"),
)

bf16_costate = Mutant(
    op="gated_delta",
    defect="precision-downcast",
    why="the cotangent of the state is rounded to bfloat16 at every chunk",
    seen_in="fla-org/flash-linear-attention#37 (c39d0ef2): the gradient of the state in bf16",
    edits=chunkwise("given.append(", "G = G.astype(mx.bfloat16).astype(mx.float32)\n        given.append("),
    dtypes=("f32",),
)

states_one_chunk_late = Mutant(
    op="gated_delta",
    defect="chunk-boundary-state",
    why="the backward takes the state after a chunk for the one before it",
    seen_in="fla-org/flash-linear-attention 1fb4e97b, e18aedf2: states[c] for states[c + 1]",
    edits=chunkwise("*states = outputs[2:]", "_, *states = (*outputs[2:], outputs[1])"),
)

costates_in_reverse = Mutant(
    op="gated_delta",
    defect="reverse-scan",
    why="what the cotangents of the states give is stored as it is made, from the last, and read from the first",
    seen_in="triton-lang/triton#1517: a descending loop silently wrong",
    edits=chunkwise("*zip(*made, strict=True)", "*zip(*made[::-1], strict=True)"),
)

loop_ascends = Mutant(
    op="gated_delta",
    defect="reverse-scan",
    why="the backward walks through the chunks of a group from the first to the last",
    seen_in="huggingface/transformers#47475: the recurrence between chunks runs the wrong way",
    edits=chunkwise("for i in reversed(range(len(states))):", "for i in range(len(states)):"),
)

values_unweighted = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dv lacks beta",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=chunkwise("return dq, dk, dE, dbeta", "return dq, dk, dR, dbeta"),
)

beta_gradient_without_system = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dbeta loses what flows through the system of a chunk",
    seen_in="fla-org/flash-linear-attention#863: a part of the path of beta missing",
    edits=chunkwise(" + (dL * kk).sum(-1, keepdims=True)", ""),
)

beta_gradient_of_the_delta = Mutant(
    op="gated_delta",
    defect="wrong-formula",
    why="dbeta is taken of the delta, which has a beta too many, not of the error",
    seen_in="fla-org/flash-linear-attention#43: dbeta with an extra beta",
    edits=chunkwise("dbeta = (dR * E)", "dbeta = (dR * beta * E)"),
)

beta_gradient_of_the_values = Mutant(
    op="gated_delta",
    defect="wrong-variable",
    why="dbeta is taken of v, not of the error v - S k",
    seen_in="fla-org/flash-linear-attention c11ffb2d: one array taken for another",
    edits=chunkwise("dbeta = (dR * E)", "dbeta = (dR * primals[2])"),
)

keys_read_sign = Mutant(
    op="gated_delta",
    defect="wrong-sign",
    why="what the keys read of the state comes back to dk with the other sign",
    seen_in="ml-explore/mlx 7c112e4ac (branch gated-delta-update): a wrong sign",
    edits=chunkwise("        -dkey,", "        dkey,"),
)

keys_written_dropped = Mutant(
    op="gated_delta",
    defect="dropped-term",
    why="dk loses what is written under the keys into the state",
    seen_in="triton-lang/triton#8695; fla-org/flash-linear-attention#687: the second term of dk lost",
    edits=chunkwise("        dwrite,", "        0 * dwrite,"),
)

keys_of_one_value_head = Mutant(
    op="gated_delta",
    defect="missing-group-reduction",
    why="of the value heads that share a key head only the first reaches dq, dk and dg",
    seen_in="state-spaces/mamba#547 (3b0dde5): the group size not passed to the backward",
    edits=chunkwise("[q, k, g], slopes)", "[q, k, g], [s * (mx.arange(s.shape[3]) < 1)[:, None, None] for s in slopes])"),
)

queries_and_keys_swapped = Mutant(
    op="gated_delta",
    defect="autodiff-glue",
    why="dq and dk are returned in each other's place",
    seen_in="fla-org/flash-linear-attention#155; state-spaces/mamba ddce0c1: gradients in the wrong slots",
    edits=chunkwise("return dq, dk, dE", "return dk, dq, dE"),
)

dots_without_transpose = Mutant(
    op="gated_delta",
    defect="transposed-layout",
    why="the gradient of the products of rows with rows lacks a transpose, where a chunk is square",
    seen_in="fla-org/flash-linear-attention da1970a6: written transposed",
    edits=chunkwise("cotangent @ b, cotangent.swapaxes(-1, -2) @ a", "cotangent @ b, cotangent @ a"),
)

last_chunk_without_gradient = Mutant(
    op="gated_delta",
    defect="mask-ignored",
    why="the last chunk of a group, which may be padded, is left out of what y gives to D",
    seen_in="state-spaces/mamba#368: the tail of the reverse scan",
    edits=chunkwise("read[i] + write[i] @ G", "read[i] * (i + 1 < len(read)) + write[i] @ G"),
)
