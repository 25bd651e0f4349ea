"""What happened: work items, evidence, bands, verdicts, runs and exit codes. Plain data; JSON by msgspec."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

CANARY, NULL = "canary", "null"
METRICS = ("z", "l2", "max", "slice", "maa")


class Outcome(enum.StrEnum):
    """How one item ended; the value is the sentence a user reads."""

    PASSED = "agrees with the truth"
    PASSED_ZERO = "is exactly zero, as the truth is"
    FAILED = "differs from the truth by more than noise"
    KILLED = "the defect was seen"
    SURVIVED = "the defect was not seen"
    HARMLESS = "survives, and is declared harmless"
    EQUIVALENT = "survives, and is declared equivalent"
    INCONCLUSIVE = "no tolerance separates noise from defect"
    UNVIABLE = "the mutant does not run at all"
    STALE = "the mutant's text no longer matches the kernel"
    TIMEOUT = "did not end within its time limit"
    CRASHED = "took its process down"
    MEMORY = "needed more memory than its limit"
    NO_DEVICE = "needs a device or package that is not here"
    UNINFORMATIVE = "the truth is below the oracle's own error"
    BUG = "gradcheck itself failed over it, which says nothing of the kernel"


class ExitCode(enum.IntEnum):
    """Exit status of the command line. `worst` picks the one that is reported."""

    OK = 0
    WRONG = 1
    USAGE = 2
    SURVIVORS = 3
    ROTTEN = 4
    NOTHING = 5
    INCONCLUSIVE = 6
    BUG = 70
    INTERRUPTED = 130

    @classmethod
    def worst(cls, *codes: ExitCode) -> ExitCode:
        """The code that wins: 130 > 70 > 2 > 1 > 4 > 5 > 3 > 6 > 0."""
        order = (cls.INTERRUPTED, cls.BUG, cls.USAGE, cls.WRONG, cls.ROTTEN, cls.NOTHING, cls.SURVIVORS, cls.INCONCLUSIVE, cls.OK)
        return min((*codes, cls.OK), key=order.index)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One comparison to make. Plain data: any worker can rebuild the rest from the suites on disk.

    Args:
        op: name of the op.
        kernel: name of one of its kernels, or a target `module:attr` or `file.py:attr`.
        case: `str` of the case.
        mutant: name of a mutant, `canary`, `null`, or nothing for the clean kernel.
        check: name of a check that needs no tolerance, or nothing for the comparison with the truth.
    """

    op: str
    kernel: str
    case: str
    mutant: str = ""
    check: str = ""

    @property
    def id(self) -> str:
        """Unique in a plan."""
        what = self.mutant or (f"check:{self.check}" if self.check else "-")
        return f"{self.kernel} {what} {self.case}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """How far one output or gradient is from the truth.

    Args:
        quantity: name of the output (`y`, `s_T`) or gradient (`d x`).
        problem: why it could not be compared (missing, wrong shape or dtype, not finite), or nothing.
        zero: the truth is structurally zero: `zero-kept` or `zero-broken`, else nothing.
        checked: elements compared.
        errors: each metric as a plain number (`l2` relative to the truth's norm, `maa` in 0…1); None is not finite.
        ratios: each metric as a multiple of the case's rounding unit, which is what bands are about; None is not finite.
        diluted: `slice` ratio of the last step alone (`last step`) and of one head alone (`one head`), where there is such an axis.
        spliced: ratios that a zeroed, swapped, 0.1 % scaled, last-step or one-row defect in this very gradient would have had.
        axes: names of the axes that `worst` counts along.
        worst: index of the worst element; got, want: the values there.
        worst_step: time step of the worst slice; None without a time axis.
        profile: `slice` ratio of each time step.
        informative: False where the truth lies below the oracle's own error.
    """

    quantity: str
    problem: str = ""
    zero: str = ""
    checked: int = 0
    errors: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    ratios: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    diluted: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    spliced: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    axes: tuple[str, ...] = ()
    worst: tuple[int, ...] = ()
    got: float | None = None
    want: float | None = None
    worst_step: int | None = None
    profile: tuple[float | None, ...] = ()
    informative: bool = True

    @property
    def where(self) -> str:
        """The worst element in words, `b=0, t=64, h=3`; nothing where there is none."""
        if len(self.axes) != len(self.worst):
            return ", ".join(map(str, self.worst))
        return ", ".join(f"{axis.lower()}={index}" for axis, index in zip(self.axes, self.worst, strict=True))


Status = Literal[
    "measured", "crashed", "timeout", "memory", "raised", "fault", "unviable", "stale", "no-device", "no-backward", "idle", "bug"
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one item yielded. Judged against bands it becomes a verdict; it never changes once written.

    Args:
        item: the work item.
        status: `measured`, or how it failed to be; `fault` is what the checker of Metal kernels found, `idle` is a check that found
            nothing to compare, `bug` an exception of gradcheck's own.
        measurements: outputs first, then gradients.
        detail: error text, or the signal that ended the process.
        log: tail of what the kernel wrote to stdout and stderr.
        seconds: wall time.
        notes: things seen on the way that are failures by themselves (`overwrites its input x`).
        place: where its Metal kernels ran, `metal` (an Apple GPU) or `metal-cpu`; nothing where it launched none.
    """

    item: WorkItem
    status: Status
    measurements: tuple[Measurement, ...] = ()
    detail: str = ""
    log: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """Noise and defect of one gradient by one metric, in multiples of the rounding unit.

    Args:
        op, kernel, dtype, quantity, metric: what it is about; kernel `op-level` serves kernels without mutants of their own.
        noise: upper quantile of the model noise, from the oracle alone.
        tolerance: `min(k * noise, sqrt(noise * defect))`; `k * noise` where no defect was measured.
        measured: worst error of the clean kernel, or None.
        defect: weakest defect: minimum over mutants of the maximum over cases, or None.
        weakest: the mutant that it belongs to.
    """

    op: str
    kernel: str
    dtype: str
    quantity: str
    metric: str
    noise: float
    tolerance: float
    measured: float | None = None
    defect: float | None = None
    weakest: str = ""


_ENDINGS = {
    "fault": "does what no kernel may, as the checker saw",
    "unviable": "cannot be loaded, or cannot take what it is given",
    "no-backward": "it has no backward, so no gradient was compared",
}
"""By status, where the outcome alone would say another thing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Evidence, judged: the outcome, and the one sentence that says why.

    Args:
        item, outcome, why, evidence: what was judged, how, and from what.
        cause: what a second look found to explain a failure: `mistake`, `rounding` or `ill-conditioned`; nothing where none was made.
    """

    item: WorkItem
    outcome: Outcome
    why: str = ""
    evidence: Evidence | None = None
    cause: str = ""

    @property
    def ending(self) -> str:
        """What the outcome means of this item. Where nothing was compared, nothing differed from the truth: so that is not said."""
        status = self.evidence.status if self.evidence is not None else "measured"
        if status == "raised" and self.outcome is Outcome.FAILED:
            return f"raised {self.why.partition(':')[0]}"
        if status == "measured" and self.outcome is Outcome.FAILED and self.evidence is not None and self.evidence.notes:
            return "is wrong, whatever its numbers are"
        if self.outcome is Outcome.FAILED and self.cause == "rounding":
            return "is numerically poor: rounding in the kernel explains what differs from the truth"
        if status == "measured" and self.outcome is Outcome.INCONCLUSIVE:
            return "is undecided: what is off is ill-conditioned, not shown to be wrong"
        return _ENDINGS.get(status, self.outcome.value)


def fault(verdicts: Collection[Verdict]) -> str:
    """What the verdicts on one kernel that failed come to: that it `is wrong`, or what was found instead wherever it was looked at again."""
    bad = [verdict for verdict in verdicts if verdict.outcome in {Outcome.FAILED, Outcome.CRASHED}]
    numbers = all(verdict.evidence is not None and verdict.evidence.status == "measured" and not verdict.evidence.notes for verdict in bad)
    causes = {verdict.cause for verdict in verdicts} - {""}
    if not causes or "mistake" in causes or not numbers:
        return "is wrong"
    return "is numerically poor" if "rounding" in causes else "fails (ill-conditioned, not wrong, where it was looked at again)"


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    """One row of the kill table: a mutant on a kernel and branch, over all cases.

    Args:
        kernel, mutant, variant: what was run; `form` is `full`, `last step` or `one head`.
        outcome: KILLED, SURVIVED, …
        cases, kills: how many cases ran, and in how many the defect was seen.
        quantity, case: the gradient and the case in which it stood out most, and by what multiple of the tolerance (`margin`).
        diff: the edit, as a unified diff.
        place: where its Metal kernels ran, as in `Evidence`.
        margins: the same multiple of each output and gradient by itself, the largest of all cases; None is beyond all bounds.
    """

    kernel: str
    mutant: str
    variant: str
    form: str
    outcome: Outcome
    cases: int = 0
    kills: int = 0
    quantity: str = ""
    metric: str = ""
    case: str = ""
    margin: float | None = None
    why: str = ""
    diff: str = ""
    place: str = ""
    margins: Mapping[str, float | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Run:
    """A run, read back from its folder and judged. Reports are pure functions of it.

    Args:
        id: name of the run folder.
        command: what was asked for.
        op: name of the op.
        environment: versions, device, platform, seeds.
        not_run: kernel name to the reason why it was not run here.
        verdicts: of the clean kernels, case by case.
        kills: the kill table.
        bands: one per kernel, dtype, gradient and metric.
        notes: what a reader must know first (op-level band, which suite was used).
        planned, done: numbers of items.
        exit_code: the gate.
        reasons: why it is not 0, one sentence each.
        checks: what the clean kernels did in the checks that need no tolerance.
    """

    id: str
    command: str
    op: str
    environment: Mapping[str, str] = field(hash=False)
    not_run: Mapping[str, str] = field(hash=False)
    verdicts: tuple[Verdict, ...]
    kills: tuple[MutantVerdict, ...]
    bands: tuple[Band, ...]
    notes: tuple[str, ...]
    planned: int
    done: int
    seconds: float
    exit_code: ExitCode
    reasons: tuple[str, ...]
    checks: tuple[Verdict, ...] = ()

    def fault(self, kernel: str) -> str:
        """What the failures of a kernel come to, see `fault`."""
        return fault([verdict for verdict in self.verdicts if verdict.item.kernel == kernel])
