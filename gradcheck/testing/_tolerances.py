"""The tolerances of a kernel of an op: published, or else from the model noise over the whole grid."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

import filelock

from gradcheck._case import Case
from gradcheck._errors import SuiteError
from gradcheck._op import Op
from gradcheck.calibrate.judge import Tolerances
from gradcheck.calibrate.noise import FACTOR, tolerances
from gradcheck.engine import cache
from gradcheck.engine.execute import Source
from gradcheck.engine.prepare import Noise, Prepare, prepare, table_of
from gradcheck.engine.published import read_published
from gradcheck.engine.truth import cases_of, lookup
from gradcheck.process import GIB, Died, Limits, Standing
from gradcheck.suite import Suite

_LIMITS = Limits(600.0, 8 * GIB)


def tolerances_for(suite: Suite, op: Op, source: Source, dtype: str, carry: str, kernel: str = "") -> tuple[Tolerances, str]:
    """(quantity to metric to tolerance in rounding units, where they come from).

    Args:
        suite: where the bands of the op are published.
        op: the op.
        source: where a worker finds it.
        dtype: of the inputs.
        carry: dtype in which the kernel carries its state.
        kernel: its name, if it may have a band of its own.

    Raises:
        SuiteError: the reference fails at a case.
    """
    published = read_published(suite, op.name)
    noise = published.noise.get(f"{dtype}/{carry}") if published else None
    origin = f"{FACTOR:g} times the {'published' if noise else 'model'} noise"
    found = {quantity: dict(row) for quantity, row in tolerances(noise or _model(op, source, dtype, carry)).items()}
    for band in published.bands if published else ():
        if (band.kernel, band.dtype) == (kernel, dtype):
            found[band.quantity][band.metric] = band.tolerance
            origin = "published"
    return found, origin


def _model(op: Op, source: Source, dtype: str, carry: str) -> Tolerances:
    """The model noise over the grid. One process computes what the cache lacks, others wait, and find it there."""
    folder = cache.folder()
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / f"{op.name}-{dtype}.lock"), tempfile.TemporaryDirectory(prefix="gradcheck-") as logs:
        worker = Standing(_LIMITS, Path(logs))  # unlike a pool it may be called from a script without a guard of its main module
        try:
            return table_of((_noise(worker, op, source, case) for case in cases_of(op, (dtype,), 0)), carry)
        finally:
            worker.close()


def _noise(worker: Standing, op: Op, source: Source, case: Case) -> Noise:
    known = lookup(op, case)
    if known is not None:
        return known.noise
    got = worker.call(prepare, Prepare(source, op.name, str(case)))
    if isinstance(got, Died):
        raise SuiteError(f"the reference of {op.name} failed at case {case}: {got.detail}\n{got.log}".rstrip())
    return cast("Noise", got.value)
