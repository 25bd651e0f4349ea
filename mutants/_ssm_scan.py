"""What the mutants of the scan have in common: the two kernels that share one text."""

from __future__ import annotations

from gradcheck import Edit


def shared(find: str, replace: str) -> dict[str, Edit]:
    """The same edit of `mlx.py` in the kernel that keeps all states and in the one with checkpoints: there it acts in every chunk."""
    return {"mlx": Edit("mlx.py", find, replace), "mlx-checkpoint": Edit("mlx.py", find, replace)}


def each(mlx: tuple[str, str], checkpoint: tuple[str, str]) -> dict[str, Edit]:
    """(find, replace) in each kernel's own text, where the two walk through time differently."""
    return {"mlx": Edit("mlx.py", *mlx), "mlx-checkpoint": Edit("checkpoint.py", *checkpoint)}
