"""The gated delta rule as a trainable op: `from gradcheck.kernels.gated_delta.autodiff import gated_delta`."""
