from __future__ import annotations

import csv
from io import StringIO

from gradcheck import Case


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text, newline="")))


def test_there_is_a_row_for_each_measurement_and_for_each_case_without_one(render, every_run):
    found = rows(render("csv", every_run))
    measured = sum(len(v.evidence.measurements) or 1 for v in every_run.verdicts)
    assert len(found) == measured
    assert {None} not in [set(row) for row in found]
    assert {len(row) for row in found} == {36}


def test_numbers_read_back_exactly_and_a_case_parses(render, passing):
    found = rows(render("csv", passing))
    m = passing.verdicts[0].evidence.measurements[2]
    row = next(row for row in found if row["quantity"] == m.quantity)
    assert float(row["error_l2"]) == m.errors["l2"]
    assert float(row["ratio_slice"]) == m.ratios["slice"]
    assert float(row["got"]) == m.got
    assert row["worst"] == m.where
    assert Case.parse(row["case"]).sizes["T"] == 65
    assert {row["tolerance_l2"] for row in found} == {"4.0"}


def test_what_is_not_finite_is_empty_and_its_excess_infinite(render, stranger):
    (row,) = [row for row in rows(render("csv", stranger)) if "not finite" in row["problem"]]
    assert (row["ratio_l2"], row["got"], row["excess"], row["outcome"]) == ("", "", "inf", "FAILED")


def test_a_crash_has_a_row_of_its_own(render, crash):
    (row,) = [row for row in rows(render("csv", crash)) if row["outcome"] == "CRASHED"]
    assert (row["quantity"], row["problem"]) == ("", "killed by SIGSEGV")


def test_no_cell_is_a_formula(render, hostile):
    text = render("csv", hostile)
    found = rows(text)
    assert any(row["kernel"].startswith("'=cmd") for row in found)
    numbers = {"got", "want", "excess", "seed", "checked", "worst_step"}
    for row in found:
        for name, cell in row.items():
            assert name in numbers or not cell.startswith(("=", "+", "-", "@")), name
    assert "\x1b" not in text


def test_a_row_says_where_its_metal_kernel_ran(render, passing, on_cpu):
    assert {row["place"] for row in rows(render("csv", on_cpu(passing)))} == {"metal-cpu"}
    assert {row["place"] for row in rows(render("csv", passing))} == {""}
