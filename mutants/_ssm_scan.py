"""What the mutants of the scan have in common: the kernels that share one text."""

from __future__ import annotations

from gradcheck import Edit


def shared(find: str, replace: str) -> dict[str, Edit]:
    """The same edit of `mlx.py` in the kernel that keeps all states and in the one with checkpoints: there it acts in every chunk."""
    return {"mlx": Edit("mlx.py", find, replace), "mlx-checkpoint": Edit("mlx.py", find, replace)}


def each(mlx: tuple[str, str], checkpoint: tuple[str, str]) -> dict[str, Edit]:
    """(find, replace) in each kernel's own text, where the two walk through time differently."""
    return {"mlx": Edit("mlx.py", *mlx), "mlx-checkpoint": Edit("checkpoint.py", *checkpoint)}


def metal(file: str, find: str, replace: str) -> dict[str, Edit]:
    """An edit of the Metal kernel that keeps all states. What only shows where some are made anew is an edit of `chunked` instead."""
    return {"metal": Edit(file, find, replace)}


def chunked(file: str, find: str, replace: str) -> dict[str, Edit]:
    """An edit of the Metal kernel with checkpoints."""
    return {"metal-checkpoint": Edit(file, find, replace)}
