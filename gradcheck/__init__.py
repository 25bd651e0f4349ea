"""gradcheck: is the gradient of a recurrent kernel right, where is it wrong, and would your test have noticed.

Everything a suite file may use is here. Names load on first use (PEP 562), so that importing the package costs nothing.

PYTEST_DONT_REWRITE: `gradcheck sanitize` imports this module before pytest begins, which would warn that it cannot rewrite it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck._case import Case as Case
    from gradcheck._errors import GradcheckError as GradcheckError
    from gradcheck._errors import StaleMutant as StaleMutant
    from gradcheck._errors import SuiteError as SuiteError
    from gradcheck._errors import UsageError as UsageError
    from gradcheck._gradcheck import Result as Result
    from gradcheck._gradcheck import gradcheck as gradcheck
    from gradcheck._kernel import Kernel as Kernel
    from gradcheck._mutant import Edit as Edit
    from gradcheck._mutant import Mutant as Mutant
    from gradcheck._op import Draw as Draw
    from gradcheck._op import Op as Op
    from gradcheck._op import Regime as Regime
    from gradcheck._op import Shapes as Shapes
    from gradcheck._op import op as op
    from gradcheck._report import Report as Report
    from gradcheck._report import report as report
    from gradcheck._trained import Trained as Trained
    from gradcheck._truth import F64 as F64
    from gradcheck._truth import Quantity as Quantity
    from gradcheck._truth import Truth as Truth
    from gradcheck._verdict import Band as Band
    from gradcheck._verdict import Evidence as Evidence
    from gradcheck._verdict import ExitCode as ExitCode
    from gradcheck._verdict import Measurement as Measurement
    from gradcheck._verdict import MutantVerdict as MutantVerdict
    from gradcheck._verdict import Outcome as Outcome
    from gradcheck._verdict import Run as Run
    from gradcheck._verdict import Verdict as Verdict
    from gradcheck._verdict import WorkItem as WorkItem

__version__ = "0.1.0"

_HOMES = {
    "_case": ("Case",),
    "_errors": ("GradcheckError", "StaleMutant", "SuiteError", "UsageError"),
    "_gradcheck": ("Result", "gradcheck"),
    "_kernel": ("Kernel",),
    "_mutant": ("Edit", "Mutant"),
    "_op": ("Draw", "Op", "Regime", "Shapes", "op"),
    "_report": ("Report", "report"),
    "_trained": ("Trained",),
    "_truth": ("F64", "Quantity", "Truth"),
    "_verdict": ("Band", "Evidence", "ExitCode", "Measurement", "MutantVerdict", "Outcome", "Run", "Verdict", "WorkItem"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME)]  # noqa: PLE0604 - computed from the table above, so the two cannot differ


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
