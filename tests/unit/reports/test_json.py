from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest

from gradcheck import Run


@pytest.fixture(params=["passing", "stranger", "crash", "survivor", "incomplete"])
def any_run(request) -> Run:
    return request.getfixturevalue(request.param)


def strict(text: str) -> dict:
    def refuse(token: str) -> float:
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_run_is_whole_and_strict_json(render, any_run):
    read = strict(render("json", any_run))
    assert read["schema"] == "gradcheck.run/1"
    assert set(read) == {"schema", "outcomes", *(field.name for field in fields(Run))}
    assert len(read["verdicts"]) == len(any_run.verdicts)
    assert len(read["kills"]) == len(any_run.kills)
    assert read["exit_code"] == int(any_run.exit_code)


def test_outcomes_are_names_that_the_file_explains(render, survivor):
    read = strict(render("json", survivor))
    assert {row["outcome"] for row in read["kills"]} == {"KILLED", "SURVIVED"}
    assert all(row["outcome"] in read["outcomes"] for row in read["kills"])


def test_a_number_that_is_not_finite_is_null(render, passing):
    band = replace(passing.bands[0], noise=math.nan, tolerance=math.inf)
    read = strict(render("json", replace(passing, bands=(band,))))
    assert (read["bands"][0]["noise"], read["bands"][0]["tolerance"]) == (None, None)


def test_keys_keep_their_order(render, passing):
    first, again = (render("json", run) for run in (passing, replace(passing)))
    assert first == again
    assert list(strict(first))[:4] == ["schema", "id", "command", "op"]
