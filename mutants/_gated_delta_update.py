"""What the mutants of `gated_delta_update` have in common: its kernels share the text of the gate and of the call around them."""

from __future__ import annotations

from gradcheck import Edit

KERNELS = ("autodiff", "checkpointed", "chunkwise", "metal")

SCALAR = ("scalar", "scalar-masked", "neg-eigval")
VECTOR = ("vector", "vector-masked", "lower-bound")
MASKED = ("scalar-masked", "vector-masked", "lower-bound", "neg-eigval")
BOUNDED = ("lower-bound", "neg-eigval")
UNBOUNDED = ("scalar", "vector", "scalar-masked", "vector-masked")


def gate(find: str, replace: str) -> dict[str, Edit]:
    """The same edit of the gate and beta in every kernel."""
    return {kernel: Edit("gate.py", find, replace) for kernel in KERNELS}


def call(find: str, replace: str) -> dict[str, Edit]:
    """The same edit of what stands around a kernel."""
    return {kernel: Edit("update.py", find, replace) for kernel in KERNELS}
