"""Where a kernel ran: a Metal kernel may run on an Apple GPU or on a CPU, and a CPU's result never counts as a GPU's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from gradcheck._kernel import Kernel
from gradcheck._verdict import Evidence
from gradcheck.engine.environment import DEVICES
from gradcheck.metal.observe import observed


@contextmanager
def launches() -> Iterator[list[str]]:
    """Within the block every launch of a Metal kernel adds the place where it ran to the list: `metal`, `metal-cuda`, `metal-cpu`."""
    places: list[str] = []
    with observed(lambda launched: places.append(launched.place)):
        yield places


def placed(evidence: Evidence, kernel: Kernel, places: Sequence[str]) -> Evidence:
    """The evidence, labelled. What ran somewhere else than `kernel` requires is no result of it, and what launched nothing is wrong."""
    where = " + ".join(dict.fromkeys(places))
    evidence = replace(evidence, place=where)
    if evidence.status != "measured":
        return evidence
    if kernel.requires in DEVICES and where != kernel.requires:
        detail = f"needs {DEVICES[kernel.requires]}, and ran on {where or 'something else: it launched no Metal kernel'}"
        return replace(evidence, status="no-device", measurements=(), notes=(), detail=detail)
    if not places and kernel.metal:
        return replace(evidence, notes=(*evidence.notes, "launches no Metal kernel, so what was compared is a fallback"))
    return evidence
