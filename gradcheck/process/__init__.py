"""Run a function on items in worker processes, so that a crash, a hang or a runaway allocation is an outcome of its item."""

from gradcheck.process.limits import Limits as Limits
from gradcheck.process.outcome import Died as Died
from gradcheck.process.outcome import Done as Done
from gradcheck.process.outcome import Outcome as Outcome
from gradcheck.process.pool import run_all as run_all

__all__ = ["Died", "Done", "Limits", "Outcome", "run_all"]
