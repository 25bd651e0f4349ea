from __future__ import annotations

import importlib
import json
import math
import os
import sys
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import pytest

from gradcheck import Run
from gradcheck.suite import load


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


_home = load(()).reports["json"].render.__module__
PUBLISHED = Path(sys.modules[_home].__file__).with_name("run.schema.json")


@pytest.fixture(scope="module")
def published() -> jsonschema.Draft202012Validator:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_run_is_as_the_published_schema_says(render, every_run, published):
    published.validate(strict(render("json", every_run)))


def test_the_published_schema_is_that_of_the_values():
    made = importlib.import_module(_home.replace(".json", "._schema")).schema(sys.modules[_home].SCHEMA)
    text = json.dumps(made, indent=1) + "\n"
    if os.environ.get("GRADCHECK_REWRITE"):
        PUBLISHED.write_text(text, encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == text, f"{PUBLISHED} is old: run this test with GRADCHECK_REWRITE=1, and read the diff"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda read: read.update(exit_code=7),
        lambda read: read["verdicts"][0].update(outcome="agrees with the truth"),
        lambda read: read["bands"][0].update(noise="large"),
        lambda read: read["kills"][0].pop("margin"),
        lambda read: read.update(more=1),
        lambda read: read["verdicts"][0]["evidence"]["measurements"][0].update(profile=3),
    ],
    ids=["exit code", "outcome", "number", "missing", "surplus", "nested"],
)
def test_the_schema_refuses_what_is_no_run(render, passing, published, spoil):
    read = strict(render("json", passing))
    spoil(read)
    assert not published.is_valid(read)
