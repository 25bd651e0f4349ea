"""The weakest defects, measured in full: what `gradcheck calibrate` runs after the waves.

A mutant is left alone once it has been seen (`plan.WAVES`), so the size of its defect is the largest over the first cases only. The band
of a gradient wants the largest over all cases, of the weakest mutant. It needs no run of every mutant at every case: the size of a
mutant only grows with more cases, so when the weakest of all, as measured so far, has been run at every case, no other can be weaker.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradcheck._case import Case
from gradcheck._verdict import CANARY, NULL, Evidence, WorkItem
from gradcheck.calibrate.bands import planted
from gradcheck.engine.assemble import Noises, noise_for
from gradcheck.engine.plan import Subject


def weakest_items(subject: Subject, evidence: Sequence[Evidence], noises: Noises) -> list[WorkItem]:
    """The items that have no evidence yet, of the mutants that are the weakest of some gradient by some metric so far.

    By dtype. A mutant counts for the gradients that it moves well beyond noise at the cases it has been run at, see `planted`.
    """
    mine = [one for one in evidence if one.item.kernel == subject.kernel.name and one.item.mutant not in {"", CANARY, NULL}]
    done = {one.item for one in mine}
    wanted: set[tuple[str, str]] = set()
    for dtype in dict.fromkeys(case.dtype for case in subject.cases):
        of_dtype = [one for one in mine if Case.parse(one.item.case).dtype == dtype]
        wanted |= {(name, dtype) for _, name in planted(of_dtype, noise_for(subject, dtype, noises)).values()}
    return [item for item in subject.mutant_items() if item not in done and (item.mutant, Case.parse(item.case).dtype) in wanted]
