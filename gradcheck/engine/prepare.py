"""What is known of cases before any kernel runs: their truths, into the cache, and the noise of the model there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import SuiteError
from gradcheck._op import Op
from gradcheck.calibrate.noise import Table, noise_table
from gradcheck.engine.execute import Source, op_of
from gradcheck.engine.truth import Ratios, know, lookup
from gradcheck.engine.workers import DOUBTED, Work
from gradcheck.process import Died, Done, Limits, run_all

Noise = Mapping[str, Ratios]
"""How far the model of a correct kernel is off at a case, by the dtype in which it carries the state."""

Tell = Callable[[int, int, str], None]
"""Is told how many truths are there of how many that were missing, and which one came last."""


_MORE = {"memory": "; give it more by --memory", "timeout": "; give it more by --timeout"}
"""What to do where the reference came to a limit, by how it ended."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask a worker for what can be known of one case without a kernel."""

    source: Source
    op: str
    case: str


def prepare(ask: Prepare) -> Noise:
    """Compute the truth of a case, into the cache, and the model noise there."""
    known, _ = know(op_of(ask.source, ask.op), Case.parse(ask.case), ask.source.oracle)
    return known.noise


def prepare_all(
    op: Op,
    cases: Sequence[Case],
    source: Source,
    *,
    jobs: int,
    limits: Limits,
    logs: Path,
    work: Work = run_all,
    tell: Tell = lambda *_: None,
) -> dict[Case, Noise]:
    """The model noise at each case. What the cache does not know is computed in workers and kept there.

    Raises:
        SuiteError: the reference raises, crashes or hangs at a case.
    """
    noises: dict[Case, Noise] = {}
    if not cases:
        return noises
    for case in cases:
        if (known := lookup(op, case, source.oracle)) is not None:  # of the truth itself nothing is kept: there may be gigabytes of it
            noises[case] = known.noise
    asks = [Prepare(source, op.name, str(case)) for case in cases if case not in noises]
    tell(0, len(asks), f"{len(cases)} cases, {len(cases) - len(asks)} known")
    for done, (ask, got) in enumerate(_twice(work, asks, jobs=jobs, limits=limits, logs=logs), start=1):
        if isinstance(got, Died):
            more = _MORE.get(got.kind, "")
            raise SuiteError(f"the reference of {op.name} failed at case {ask.case}: {got.detail}{more}\n{got.log}".rstrip())
        noises[Case.parse(ask.case)] = got.value  # type: ignore[assignment] # what `prepare` returns
        tell(done, len(asks), ask.case)
    return noises


def _twice(work: Work, asks: Sequence[Prepare], *, jobs: int, limits: Limits, logs: Path) -> Iterator[tuple[Prepare, Done | Died]]:
    """What became of each. One that died is asked for again in the end, alone, as items are: the machine may have been busy."""
    died = []
    for ask, got in work(prepare, asks, jobs=min(jobs, len(asks)), limits=limits, logs=logs) if asks else ():
        if isinstance(got, Died) and got.kind in DOUBTED:
            died.append(ask)
        else:
            yield ask, got
    for ask in died:
        yield from work(prepare, [ask], jobs=1, limits=limits, logs=logs)


def table_of(noises: Iterable[Noise], carry: str) -> Table:
    """The noise over all these cases of a kernel that carries its state in `carry`."""
    return noise_table(noise[carry] for noise in noises)
