"""What the mutants of the gated delta rule have in common: branches, and the kernel whose text is edited."""

from __future__ import annotations

from gradcheck import Edit

MASKED = ("scalar-masked", "vector-masked")
SCALAR = ("scalar", "scalar-masked")
VECTOR = ("vector", "vector-masked")


def chunkwise(find: str, replace: str) -> dict[str, Edit]:
    """An edit of the kernel in matrix products."""
    return {"chunkwise": Edit("chunkwise.py", find, replace)}


def autodiff(find: str, replace: str) -> dict[str, Edit]:
    """An edit of the kernel that goes step by step."""
    return {"autodiff": Edit("autodiff.py", find, replace)}


def checkpointed(find: str, replace: str) -> dict[str, Edit]:
    """An edit of the one that goes step by step and keeps a state per chunk."""
    return {"checkpointed": Edit("checkpointed.py", find, replace)}
