"""Two mistakes in the backward of a leaky sum: one in both kernels, one in the plain kernel alone."""

from __future__ import annotations

from gradcheck import Edit, Mutant

drop_decay = Mutant(
    op="leaky_scan",
    defect="dropped-term",
    why="the adjoint is carried back without its decay",
    seen_in="invented for this suite",
    edits={"plain": Edit("leaky.py", "carried = a * G", "carried = G"), "ops": Edit("leaky_ops.py", "carried = a * G", "carried = G")},
)

state_after_in_da = Mutant(
    op="leaky_scan",
    defect="off-by-one-time",
    why="da reads the state after the step, but a multiplies the state before it",
    seen_in="invented for this suite",
    edits={"plain": Edit("leaky.py", "G * H[:, t]", "G * H[:, t + 1]")},
)
