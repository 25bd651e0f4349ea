"""How long a mutant is run: until it has been seen in every form and with room, and no longer where bands are published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck._case import Case
from gradcheck._kernel import Kernel
from gradcheck._mutant import Edit, Mutant
from gradcheck._verdict import METRICS, Evidence, Measurement, WorkItem
from gradcheck.calibrate.bands import ROOM
from gradcheck.engine.assemble import settled
from gradcheck.engine.plan import EARLY_WAVES, WAVES, Subject

CASES = tuple(Case("scan", (("T", size),), dtype, "typical", size) for dtype in ("f32", "bf16") for size in range(1, 21))
LIMITS = {"f32": {"d x": dict.fromkeys(METRICS, 1.0)}}
FORMS = ("last step", "one head")


@pytest.fixture
def subject() -> Subject:
    mutant = Mutant(op="scan", defect="d", why="w", seen_in="s", edits={"k": Edit("k.py", "a", "b")}, name="m")
    return Subject(Kernel(name="k", target="m:k"), "package", "k", CASES, {"m": mutant}, {}, {})


def seen(case: int, size: float, forms: tuple[str, ...] = FORMS) -> Evidence:
    measurement = Measurement("d x", checked=1, ratios=dict.fromkeys(METRICS, size), diluted=dict.fromkeys(forms, size))
    return Evidence(WorkItem("scan", "k", str(CASES[case]), "m"), "measured", (measurement,))


def of_mutant(subject: Subject) -> list[int]:
    """How many items of the mutant each wave has."""
    return [sum(item.mutant == "m" for item in wave) for wave in subject.waves()]


def test_without_published_bands_a_defect_is_measured_at_as_many_cases_as_ever(subject):
    assert of_mutant(subject) == [WAVES[0], WAVES[1] - WAVES[0], 20 - WAVES[1] + 20]


def test_with_published_bands_it_is_looked_at_after_each_of_the_first_cases(subject):
    assert of_mutant(replace(subject, banded=True)) == [1, 1, 1, 1, 12, 24]


def test_half_precision_comes_in_the_last_wave_with_either(subject):
    for one in (subject, replace(subject, banded=True)):
        *early, last = one.waves()
        assert all("/f32/" in item.case for wave in early for item in wave if item.mutant == "m")
        assert sum("/bf16/" in item.case for item in last if item.mutant == "m") == 20


def test_waves_leave_out_no_case_and_double_none(subject):
    for one in (subject, replace(subject, banded=True)):
        items = [item.case for item in one.mutant_items() if item.mutant == "m"]
        assert sorted(items) == sorted(map(str, CASES))


def test_the_early_waves_end_where_the_others_do():
    assert set(WAVES) <= set(EARLY_WAVES)
    assert list(EARLY_WAVES) == sorted(set(EARLY_WAVES))


def test_one_case_settles_a_mutant_that_it_shows_in_every_form(subject):
    assert settled(subject, [seen(0, 1e3)], LIMITS) == {("m", "")}


@pytest.mark.parametrize("forms", [(), FORMS[:1], FORMS[1:]])
def test_a_form_that_one_case_does_not_have_is_waited_for_at_a_second_and_not_for_ever(subject, forms):
    assert settled(subject, [seen(0, 1e3, forms)], LIMITS) == set()
    assert settled(subject, [seen(0, 1e3, forms), seen(1, 1e3, forms)], LIMITS) == {("m", "")}


def test_a_kill_without_room_settles_nothing_however_often_it_comes(subject):
    close = [seen(case, ROOM * 0.9) for case in range(3)]
    assert settled(subject, close, LIMITS) == set()
    assert settled(subject, [*close, seen(3, ROOM)], LIMITS) == {("m", "")}


def test_a_survivor_is_never_settled(subject):
    assert settled(subject, [seen(case, 0.5) for case in range(4)], LIMITS) == set()
    assert settled(subject, [seen(0, float("nan"))], LIMITS) == {("m", "")}, "NaN is beyond all bounds: it is seen"
