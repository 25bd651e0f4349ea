"""Which mutants `calibrate` runs at every case: the weakest of each gradient so far, until they have been."""

from __future__ import annotations

from dataclasses import replace

from gradcheck._case import Case
from gradcheck._kernel import Kernel
from gradcheck._mutant import Edit, Mutant
from gradcheck._verdict import METRICS, Evidence, Measurement, WorkItem
from gradcheck.calibrate.bands import ROOM
from gradcheck.calibrate.noise import FACTOR
from gradcheck.engine.plan import Subject
from gradcheck.engine.weakest import weakest_items

CASES = tuple(Case("scan", (("T", size),), dtype, "typical", size) for size in range(1, 7) for dtype in ("f32", "bf16"))
NOISE = {name: dict.fromkeys(METRICS, 1.0) for name in ("d x", "d A")}
SEEN = ROOM * FACTOR


def subject(*names: str) -> Subject:
    mutants = {name: Mutant(op="scan", defect="d", why="w", seen_in="s", edits={"k": Edit("k.py", "a", "b")}, name=name) for name in names}
    return Subject(Kernel(name="k", target="m:k"), "package", "k", CASES, mutants, {}, {})


def evidence(name: str, case: Case, x: float, a: float) -> Evidence:
    sizes = {"d x": x, "d A": a}
    found = tuple(Measurement(quantity, checked=1, ratios=dict.fromkeys(METRICS, size)) for quantity, size in sizes.items())
    return Evidence(WorkItem("scan", "k", str(case), name), "measured", found)


def asked(sizes: dict[str, tuple[float, float]], cases: dict[str, int] | None = None) -> set[tuple[str, str]]:
    """(mutant, case) that are to be run when each mutant has been run at its first f32 cases, with these sizes in x and A."""
    one = subject(*sizes)
    f32 = [case for case in CASES if case.dtype == "f32"]
    done = [evidence(name, case, *size) for name, size in sizes.items() for case in f32[: (cases or {}).get(name, 1)]]
    return {(item.mutant, item.case) for item in weakest_items(one, done, {("f32", "f32"): NOISE, ("bf16", "bf16"): NOISE})}


def test_the_weakest_of_each_gradient_is_run_at_its_other_cases_of_that_dtype():
    found = asked({"strong": (1e4, 1e4), "weak in x": (SEEN * 2, 1e5), "weak in A": (1e5, SEEN * 2)})
    others = [str(case) for case in CASES if case.dtype == "f32"][1:]
    assert found == {(name, case) for name in ("weak in x", "weak in A") for case in others}


def test_one_that_has_been_run_at_every_case_is_not_run_again_nor_anything_else():
    assert asked({"strong": (1e4, 1e4), "weak": (SEEN * 2, SEEN * 2)}, {"weak": 6}) == set()


def test_one_that_a_gradient_does_not_show_is_not_a_defect_of_it():
    found = asked({"strong": (1e4, 1e4), "of x alone": (SEEN * 2, 0.5)}, {"of x alone": 6})
    assert {name for name, _ in found} == {"strong"}  # the weakest of A


def test_guards_and_other_kernels_do_not_count():
    one = subject("weak")
    first = CASES[0]
    done = [evidence("null", first, SEEN * 2, SEEN * 2), evidence("canary", first, SEEN * 2, SEEN * 2)]
    other = evidence("weak", first, SEEN * 2, SEEN * 2)
    done.append(replace(other, item=replace(other.item, kernel="another")))
    assert weakest_items(one, done, {("f32", "f32"): NOISE, ("bf16", "bf16"): NOISE}) == []
