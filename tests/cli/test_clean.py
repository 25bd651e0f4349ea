from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck import ExitCode
from gradcheck.cli.clean import bytes_text
from gradcheck.engine import store

PLAN = store.Manifest("x", {}, (), {}, "d")


@pytest.fixture
def runs(tmp_path, monkeypatch) -> list[str]:
    """Two finished runs, and one that can be resumed."""
    monkeypatch.chdir(tmp_path)
    names = []
    for finished in (True, True, False):
        with store.create(Path(".gradcheck"), PLAN) as run:
            if finished:
                run.finish({"exit": 0})
        names.append(run.path.rename(run.path.with_name(f"2026112{len(names)}-100000-x-0000")).name)
    return names


def left() -> list[str]:
    return sorted(path.name for path in Path(".gradcheck/runs").iterdir())


def test_without_a_rule_nothing_goes_and_the_rules_are_named(cli, runs):
    result = cli("clean")
    assert (result.code, left()) == (ExitCode.USAGE, runs)
    assert "--keep N" in result.err


def test_a_dry_run_says_what_would_go_and_leaves_it(cli, runs):
    result = cli("clean", "--keep", "1", "--dry-run")
    assert (result.code, left()) == (0, runs)
    assert runs[0] in result.out
    assert "1 run, " in result.out
    assert "would be freed" in result.out


def test_what_goes_is_told_with_its_size(cli, runs):
    result = cli("clean", "--keep", "1")
    assert (result.code, left()) == (0, runs[1:])
    assert result.out.endswith("B freed\n")


def test_what_can_be_resumed_goes_only_if_told_and_is_marked(cli, runs):
    assert runs[2] not in cli("clean", "--keep", "0", "--dry-run").out
    assert f"{runs[2]}  " in (said := cli("clean", "--keep", "0", "--unfinished").out)
    assert "unfinished" in said
    assert left() == []


def test_what_could_not_be_taken_away_is_no_success(cli, runs, monkeypatch):
    monkeypatch.setattr("gradcheck.engine.prune.remove", lambda _: [])
    result = cli("clean", "--keep", "1")
    assert result.code == ExitCode.USAGE
    assert f"first {runs[0]}" in result.err


@pytest.mark.parametrize(
    "args", [("--keep", "-1"), ("--older-than", "-1"), ("--older-than", "nan"), ("--older-than", "inf"), ("--keep", "x")]
)
def test_a_number_out_of_range_is_a_usage_error(cli, runs, args):
    assert (cli("clean", *args).code, left()) == (ExitCode.USAGE, runs)


def test_an_age_before_the_calendar_begins_is_that_of_no_run(cli, runs):
    for days in ("1e6", "1e300"):
        result = cli("clean", "--older-than", days)
        assert (result.code, left()) == (ExitCode.OK, runs), result.err


@pytest.mark.parametrize("size, text", [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3072.0 GiB")])
def test_bytes_read_as_people_write_them(size, text):
    assert bytes_text(size) == text
