"""Run a function on items in worker processes, so that a crash, a hang or a runaway allocation is an outcome of its item."""

from gradcheck.process.limits import GIB as GIB
from gradcheck.process.limits import Limits as Limits
from gradcheck.process.outcome import Died as Died
from gradcheck.process.outcome import Done as Done
from gradcheck.process.outcome import Outcome as Outcome
from gradcheck.process.pool import run_all as run_all
from gradcheck.process.standing import Standing as Standing
from gradcheck.process.worker import in_worker as in_worker

__all__ = ["GIB", "Died", "Done", "Limits", "Outcome", "Standing", "in_worker", "run_all"]
