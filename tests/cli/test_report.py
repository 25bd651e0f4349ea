from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gradcheck import Band, Evidence, ExitCode, Measurement, MutantVerdict, Outcome, Verdict, WorkItem
from gradcheck.engine import store
from gradcheck.engine.finished import read_run

ITEM = WorkItem("x", "mlx", "x/B1,T2/f32/plain/0")
MEASURED = Measurement(
    "d x", checked=2, errors={"l2": None}, ratios={"l2": 1.5}, axes=("B",), worst=(0,), got=None, want=2.0, profile=(None, 1.0)
)
RICH = {
    "verdicts": (Verdict(ITEM, Outcome.FAILED, "d x", Evidence(ITEM, "measured", (MEASURED,), notes=("a note",))),),
    "kills": (MutantVerdict("mlx", "m", "", "full", Outcome.SURVIVED, 1, 0, margin=None),),
    "bands": (Band("x", "mlx", "f32", "d x", "l2", 1.0, 4.0, None, 9.0, "m"),),
    "exit_code": ExitCode.WRONG,
}
REPORT = '''
from gradcheck import Run, report

@report(suffix=".txt")
def brief(run: Run) -> str:
    """The id."""
    return f"run {run.id}{run.%s}"
'''


@pytest.fixture
def runs(tmp_path, monkeypatch, finished):
    """Write runs into the folder; each is newer than those before it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")

    def write(*, whole=True, **fields):
        with store.create(tmp_path / ".gradcheck", store.Manifest("x", {}, (), {}, "digest")) as folder:
            run = replace(finished, id=folder.id, **fields)
            if whole:
                folder.finish(msgspec.to_builtins(run))
        return run

    return write


def test_a_run_is_read_back_as_it_was_written(runs, tmp_path):
    run = runs(**RICH)
    again = read_run(tmp_path / ".gradcheck", run.id)
    assert again == run
    assert again.verdicts[0].outcome is Outcome.FAILED
    assert again.exit_code is ExitCode.WRONG


def test_without_an_id_it_is_the_newest_finished_run(cli, runs):
    runs(op="oldest")
    runs(op="newer")
    runs(op="unfinished", whole=False)
    result = cli("report")
    assert result.code == ExitCode.OK
    assert "newer" in result.out


def test_an_older_run_can_be_named_and_written_to_a_file(cli, runs, tmp_path):
    older = runs(op="older")
    runs(op="newer")
    result = cli("report", older.id, "--format", "json", "-o", "out.json")
    assert (result.code, result.out) == (ExitCode.OK, "")
    assert msgspec.json.decode((tmp_path / "out.json").read_bytes())["op"] == "older"


def test_a_suites_own_report_is_listed_and_rendered(cli, runs, tmp_path):
    runs()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/brief.py").write_text(REPORT % "op")
    listed = cli("report", "--list", "--suite", ".").out
    assert {line.split()[0] for line in listed.splitlines()} >= {"terminal", "json", "brief"}
    assert cli("report", "--format", "brief", "--suite", ".").out.endswith("x\n")


def test_a_report_that_fails_is_named_with_its_file(cli, runs, tmp_path):
    runs()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/brief.py").write_text(REPORT % "no_such_field")
    result = cli("report", "--format", "brief", "--suite", ".")
    assert result.code == ExitCode.USAGE
    assert "brief.py" in result.err
    assert "no_such_field" in result.err


def test_what_cannot_be_reported_is_a_usage_error_with_the_next_step(cli, runs, tmp_path):
    assert "gradcheck run" in cli("report").err
    unfinished = runs(whole=False)
    result = cli("report", unfinished.id)
    assert result.code == ExitCode.USAGE
    assert f"gradcheck run --resume {unfinished.id}" in result.err
    runs()
    assert "'terminal'" in cli("report", "--format", "terminl").err
    assert cli("report", "no-such-run").code == ExitCode.USAGE
    result = cli("report", "-o", "no/such/folder.txt")
    assert result.code == ExitCode.USAGE
    assert "no/such/folder.txt" in result.err


def test_a_run_of_another_make_is_refused_by_name(cli, runs, tmp_path):
    run = runs()
    (tmp_path / ".gradcheck/runs" / run.id / "run.json").write_text('{"id": 3}')
    result = cli("report", run.id)
    assert result.code == ExitCode.USAGE
    assert "run.json" in result.err


@pytest.mark.parametrize(
    "name, start", [("html", "<!doctype html>"), ("markdown", "## ❌ FAIL"), ("junit", "<?xml"), ("csv", "kernel,case")]
)
def test_every_format_is_written_to_a_file(cli, runs, tmp_path, name, start):
    runs(**RICH)
    assert cli("report", "--format", name, "-o", "told").code == ExitCode.OK
    assert (tmp_path / "told").read_text(encoding="utf-8").startswith(start)


def test_a_base_and_a_limit_go_to_the_report_that_knows_them(cli, runs):
    base = runs(**{**RICH, "kills": (MutantVerdict("mlx", "m", "", "full", Outcome.KILLED, 1, 1, "d x", margin=9.0),)})
    runs(**RICH, notes=("word " * 60,) * 5)
    text = cli("report", "--format", "markdown", "--base", base.id).out
    assert "### New survivors" in text
    assert f"### Since `{base.id}`" in text
    assert len(cli("report", "--format", "markdown", "--limit", "1000").out.encode()) <= 1000 < len(text.encode())


def test_an_option_that_a_report_would_ignore_is_an_error(cli, runs):
    run = runs(**RICH)
    result = cli("report", "--format", "html", "--base", run.id, "--limit", "5000")
    assert result.code == ExitCode.USAGE
    assert "html knows no --limit and no --base" in result.err


def test_sarif_points_into_the_working_directory(cli, runs, tmp_path):
    (tmp_path / "k.py").write_text("x = 1\ndef scan(): ...\n")
    item = WorkItem("x", "k.py:scan", "x/B1,T2/f32/plain/0")
    runs(**{**RICH, "kills": (), "verdicts": (Verdict(item, Outcome.FAILED, "d x", Evidence(item, "measured", (MEASURED,))),)})
    (result,) = msgspec.json.decode(cli("report", "--format", "sarif").out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("k.py", 2)
