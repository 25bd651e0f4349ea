from __future__ import annotations

import json

import pytest

from gradcheck import Case, Evidence, ExitCode, WorkItem
from gradcheck.cli.run import FOLDER
from gradcheck.engine import store

SUITE = '''
import numpy as np
from gradcheck import Kernel, op

def plain(rng, shapes):
    """Ordinary numbers."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}

@op(source="a book", inputs={"s": "B D", "x": "B T D"}, outputs={"y": "B T D", "s_T": "B D"}, state="s", terms="B D", linear="s x",
    dims={"B": (1, 2), "T": (1, 5), "D": (3,)}, regimes={"plain": plain},
    kernels=(Kernel("here", "nowhere.at.all:f", requires="%s"), Kernel("away", "nowhere.at.all:f", requires="no_such_device")))
def toy(s, x):
    """s' = s + x, y = s'."""
    return s + x, (s + x,)
'''


@pytest.fixture
def suite(tmp_path, monkeypatch):
    (tmp_path / "oracles").mkdir()
    (tmp_path / "oracles" / "toy.py").write_text(SUITE % "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_suite_is_listed_whole(cli, suite):
    result = cli("list", "--suite", str(suite), "--op", "toy")
    assert result.code == 0
    for fact in ("toy", "s x", "toy/here", "toy/plain", "Ordinary numbers.", "There are no mutants."):
        assert fact in result.out


def test_a_kernel_that_cannot_run_here_says_why(cli, suite):
    kernels = json.loads(cli("list", "kernels", "--suite", str(suite), "--op", "toy", "--json").out)
    assert {k["kernel"]: k["runs here"] for k in kernels} == {
        "toy/here": "yes",
        "toy/away": "no: needs the package no_such_device, which is not installed",
    }


def test_cases_are_one_id_a_line(cli, suite):
    lines = cli("list", "cases", "--suite", str(suite), "--op", "toy").out.splitlines()
    assert lines
    assert all(str(Case.parse(line)) == line and line.startswith("toy/") for line in lines)
    rows = json.loads(cli("list", "cases", "--suite", str(suite), "--op", "toy", "--json").out)
    assert [row["case"] for row in rows] == lines


def test_a_misspelt_op_is_a_usage_error_that_suggests_the_right_one(cli, suite):
    result = cli("list", "ops", "--suite", str(suite), "--op", "tou")
    assert result.code == ExitCode.USAGE
    assert "'toy'" in result.err
    assert not result.out


def test_a_misspelt_kind_is_a_usage_error(cli):
    assert cli("list", "kernel").code == ExitCode.USAGE


def test_the_built_in_suite_is_listed(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ops = json.loads(cli("list", "ops", "--json").out)
    scan = next(op for op in ops if op["op"] == "ssm_scan")
    assert scan["gradients"] == ["s", "x", "dt", "A", "B", "C"]
    assert scan["mutants"] >= 5


def test_runs_are_listed_with_how_to_go_on(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "There are no runs." in cli("list", "runs").out
    items = tuple(WorkItem("toy", "here", f"toy/B1,T{t},D3/f32/plain/0") for t in (1, 5))
    with store.create(FOLDER, store.Manifest("toy", {"op": "toy", "mutants": "all"}, items, {}, "digest")) as run:
        run.append(Evidence(items[0], "measured"), "PASSED")
        (row,) = json.loads(cli("list", "runs", "--json").out)
        assert (row["run"], row["op"], row["mutants"], row["done"], row["planned"]) == (run.id, "toy", "all", 1, 2)
        assert row["state"] == f"gradcheck run --resume {run.id}"
        run.finish({"exit_code": 3})
    assert json.loads(cli("list", "runs", "--json").out)[0]["state"] == "exit 3"
    assert json.loads(cli("list", "runs", "--op", "other", "--json").out) == []


def test_a_damaged_run_does_not_hide_the_others(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with store.create(FOLDER, store.Manifest("toy", {}, (), {}, "digest")) as run:
            run.finish({"exit_code": 0})
    (FOLDER / "runs" / run.id / "plan.json").write_text("{")
    states = {row["run"]: row["state"] for row in json.loads(cli("list", "runs", "--json").out)}
    assert "damaged" in states.pop(run.id)
    assert list(states.values()) == ["exit 0"]
