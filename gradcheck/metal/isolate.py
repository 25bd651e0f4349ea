"""A launch in a worker process, so that a kernel that crashes or hangs is an outcome, and this process lives on."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from gradcheck.metal.errors import KernelDied
from gradcheck.metal.launch import Launch, Outcome, launch
from gradcheck.process import Died, Limits, Standing, in_worker

_GRACE = 2.0  # seconds in which a launch that is out of time can still say where it is, before its process is ended


def run(what: Launch, kernel: str, seconds: float) -> Outcome:
    """Launch it: here if this process is a worker already, whose own limits hold; else in the worker that stands by.

    Raises:
        KernelDied: it crashed or did not end in time.
    """
    if in_worker():
        return launch(what)
    outcome = _standing(seconds).call(launch, what)
    if isinstance(outcome, Died):
        said = f"\n{outcome.log.rstrip()}" if outcome.log.strip() else ""
        raise KernelDied(f"the Metal kernel {kernel!r} died on the CPU: {outcome.kind}, {outcome.detail}{said}")
    assert isinstance(outcome.value, Outcome)
    return outcome.value


@functools.lru_cache(maxsize=1)
def _standing(seconds: float) -> Standing:
    logs = Path(tempfile.mkdtemp(prefix="gradcheck-metal-"))
    worker = Standing(Limits(seconds + _GRACE, None), logs)
    atexit.register(_end, worker, logs)
    return worker


def _end(worker: Standing, logs: Path) -> None:
    worker.close()
    shutil.rmtree(logs, ignore_errors=True)
