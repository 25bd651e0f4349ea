"""Run a function on items in worker processes, so that a crash, a hang or a runaway allocation is an outcome of its item."""

from gradcheck.process.limits import GIB as GIB
from gradcheck.process.limits import Limits as Limits
from gradcheck.process.outcome import Died as Died
from gradcheck.process.outcome import Done as Done
from gradcheck.process.outcome import Outcome as Outcome
from gradcheck.process.pool import Team as Team
from gradcheck.process.pool import run_all as run_all
from gradcheck.process.spawn import refuse_unguarded as refuse_unguarded
from gradcheck.process.standing import Standing as Standing
from gradcheck.process.worker import in_worker as in_worker
from gradcheck.process.worker import retire as retire

__all__ = ["GIB", "Died", "Done", "Limits", "Outcome", "Standing", "Team", "in_worker", "refuse_unguarded", "retire", "run_all"]
