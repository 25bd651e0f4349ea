from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from junitparser import Error, Failure, JUnitXml, Skipped

from gradcheck import Outcome


def read(text: str) -> JUnitXml:
    return JUnitXml.fromstring(text.encode())


def named(xml: JUnitXml) -> dict[str, list]:
    """What each test case of the file ended with, by suite and name."""
    return {f"{suite.name} | {case.name}": case.result for suite in xml for case in suite}


def test_it_reads_as_junit_and_its_counts_are_what_it_holds(render, every_run):
    xml = read(render("junit", every_run))
    told = (xml.tests, xml.failures, xml.errors, xml.skipped)
    xml.update_statistics()
    assert told == (xml.tests, xml.failures, xml.errors, xml.skipped)
    for suite in xml:
        told = (suite.tests, suite.failures, suite.errors, suite.skipped)
        suite.update_statistics()
        assert told == (suite.tests, suite.failures, suite.errors, suite.skipped)


def test_every_case_and_every_row_of_the_kill_table_is_a_test_case(render, passing):
    xml = read(render("junit", passing))
    assert {suite.name: suite.tests for suite in xml} == {"mlx: cases": 96, "mlx: mutants": 34, "not run": 1, "gate": 1}
    assert (xml.failures, xml.errors, xml.skipped) == (0, 0, 1)


def test_a_kernel_that_was_not_run_is_skipped_with_its_reason(render, passing):
    ((skipped,),) = [result for name, result in named(read(render("junit", passing))).items() if name.startswith("not run")]
    assert isinstance(skipped, Skipped)
    assert skipped.message == "needs an Apple GPU, which this machine has not"


def test_a_wrong_case_fails_and_a_crash_is_an_error(render, stranger, crash):
    wrong = [r[0] for r in named(read(render("junit", stranger))).values() if r]
    assert [type(r) for r in wrong] == [Failure] * 9  # eight cases, and the gate
    assert "replay: gradcheck replay" in wrong[0].text
    kinds = [(type(r[0]), r[0].type) for r in named(read(render("junit", crash))).values() if r]
    assert kinds == [(Error, "CRASHED"), (Error, "TIMEOUT"), (Failure, "FAIL")]


def test_a_survivor_fails_and_shows_its_diff_and_so_does_a_living_canary(render, survivor):
    ended = {name: result[0] for name, result in named(read(render("junit", survivor))).items() if result and "gate" not in name}
    failed = {name.partition("| ")[2] for name, result in ended.items() if isinstance(result, Failure)}
    assert failed == {"drop_dA_path mamba1 full", "drop_dA_path mamba1 last step", "canary mamba2 full"}
    assert "+    ddt = du_x" in ended["mlx: mutants | drop_dA_path mamba1 full"].text


def test_the_file_fails_exactly_where_the_run_does(render, every_run):
    xml = read(render("junit", every_run))
    assert bool(xml.failures) == bool(every_run.exit_code)


def test_a_declared_survivor_passes_and_one_that_is_killed_fails(render, passing):
    def of(outcome: Outcome, why: str):
        rows = tuple(replace(r, outcome=outcome, why=why) if r.mutant == "drop_dA_path" else r for r in passing.kills)
        return read(render("junit", replace(passing, kills=rows)))

    assert of(Outcome.HARMLESS, "a shift cancels").failures == 0
    assert of(Outcome.KILLED, "declared harmless, and yet killed").failures == 6


def test_a_hostile_name_is_text(render, hostile):
    text = render("junit", hostile)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert any("<script>alert(1)</script>" in name for name in named(read(text)))


def test_a_test_case_says_where_its_metal_kernel_ran(render, stranger, on_cpu):
    def said(run) -> list[str]:
        return [found.get("value") for found in ET.fromstring(render("junit", run)).iterfind("testsuite/testcase/properties/property")]

    assert said(on_cpu(stranger)) == ["metal-cpu"] * 48
    assert said(stranger) == []


def test_a_survivor_says_how_near_it_came_to_the_tolerance(render, survivor):
    ended = named(read(render("junit", survivor)))
    assert "seen in 0 of 48 cases, at most 0.4 times the tolerance of d dt" in ended["mlx: mutants | drop_dA_path mamba1 full"][0].text
