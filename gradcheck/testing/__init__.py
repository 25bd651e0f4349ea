"""For tests: a kernel against the truth of an op in one line, and that a defect planted in it would be seen."""

from gradcheck.testing._assert import assert_grads as assert_grads
from gradcheck.testing._assert import assert_killed as assert_killed

__all__ = ["assert_grads", "assert_killed"]
