"""Mamba-2 as models call it, as a trainable op: `from gradcheck.kernels.mamba2.mlx import mamba2`."""
