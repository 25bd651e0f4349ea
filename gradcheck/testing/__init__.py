"""For tests: `assert_grads`, a kernel against the truth of an op, in one line."""

from gradcheck.testing._assert import assert_grads as assert_grads

__all__ = ["assert_grads"]
