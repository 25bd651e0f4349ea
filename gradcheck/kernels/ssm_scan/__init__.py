"""The selective scan of Mamba-1 and Mamba-2 as a trainable op: `from gradcheck.kernels.ssm_scan.mlx import ssm_scan`."""
