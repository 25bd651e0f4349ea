from __future__ import annotations

import json

import pytest

from gradcheck import ExitCode, Run, report
from gradcheck.cli.run import render
from gradcheck.engine.plan import Request

from .conftest import Progress


def test_every_option_reaches_the_engine(cli, engine):
    cli(
        *("run", "--op", "x", "--kernel", "mlx", "--kernel", "a/b.py:f", "--mutants", "all", "--dims", "T=65,mamba2"),
        *("--dtype", "f32,f16", "--dtype", "bf16", "--regime", "growth, sparse", "--cases", "12", "--seed", "3", "--jobs", "2"),
        *("--timeout", "5", "--memory", "2", "--forward-only", "--checks", "taint,split"),
    )
    assert engine.asked == [
        Request(
            op="x",
            kernels=("mlx", "a/b.py:f"),
            mutants="all",
            dims="T=65,mamba2",
            dtypes=("f32", "f16", "bf16"),
            regimes=("growth", "sparse"),
            cases=("12",),
            seed=3,
            jobs=2,
            timeout=5.0,
            memory=2.0,
            forward_only=True,
            checks="taint,split",
        )
    ]


def test_without_options_the_engine_chooses(cli, engine):
    cli("run", "--op", "x")
    assert engine.asked == [Request(op="x", checks="all")]


def test_a_cluster_and_its_scheduler_reach_the_engine_and_a_scheduler_alone_is_refused(cli, engine):
    cli("run", "--op", "x", "--engine", "dask", "--scheduler", "tcp://there:8786")
    assert engine.asked == [Request("x", engine="dask", scheduler="tcp://there:8786")]
    refused = cli("run", "--op", "x", "--scheduler", "tcp://there:8786")
    assert refused.code == ExitCode.USAGE
    assert "needs --engine dask" in refused.err
    assert len(engine.asked) == 1


@pytest.mark.parametrize("args", [("--shard", ""), ("--engine", "dask", "--scheduler", "")])
def test_a_shard_or_scheduler_from_a_variable_that_is_not_set_is_no_wish_for_the_whole(cli, engine, args):
    result = cli("run", "--op", "x", *args)
    assert (result.code, engine.asked) == (ExitCode.USAGE, [])
    assert "given, but empty" in result.err


def test_an_op_is_needed(cli, engine):
    result = cli("run")
    assert (result.code, engine.asked) == (ExitCode.USAGE, [])
    assert "--op" in result.err


@pytest.mark.parametrize("args", [("--timeout", "0"), ("--memory", "-1"), ("--jobs", "-1"), ("--seed", "-1"), ("--seed", "x")])
def test_a_number_out_of_range_is_a_usage_error(cli, engine, args):
    result = cli("run", "--op", "x", *args)
    assert (result.code, engine.asked) == (ExitCode.USAGE, [])
    assert args[0] in result.err


@pytest.mark.parametrize("args, run_id", [((), None), (("id-7",), "id-7")])
def test_resume_goes_on_with_the_run_it_names_or_the_newest(cli, engine, args, run_id):
    assert cli("run", "--resume", *args).code == ExitCode.NOTHING
    assert engine.asked == [("resume", run_id)]


def test_resume_refuses_a_selection_and_names_it(cli, engine):
    result = cli("run", "--resume", "--op", "x", "--dtype", "f32", "--jobs", "2")
    assert (result.code, engine.asked) == (ExitCode.USAGE, [])
    assert all(option in result.err for option in ("--op", "--dtype", "--jobs"))
    assert "--seed" not in result.err


def test_resume_refuses_an_option_given_its_default(cli, engine):
    assert cli("run", "--resume", "--seed", "0").code == ExitCode.USAGE


def test_resume_goes_with_json(cli, engine):
    assert json.loads(cli("run", "--resume", "--json").out)["id"] == "id-1"


def test_json_alone_is_on_stdout(cli, engine):
    engine.says = [Progress("kernels", 1, 2, "mlx", note="an unfinished run exists")]
    result = cli("run", "--op", "x", "--json")
    assert json.loads(result.out)["exit_code"] == ExitCode.NOTHING
    for words in ("an unfinished run exists", "kernels 1/2", "nothing was checked"):
        assert words in result.err


def test_without_json_the_report_alone_is_on_stdout(cli, engine):
    engine.says = [Progress("kernels", 1, 2, "mlx")]
    result = cli("run", "--op", "x")
    assert "nothing was checked" in result.out
    assert "kernels 1/2" not in result.out
    assert "\x1b" not in result.out


def test_a_report_may_know_neither_width_nor_colour(finished):
    @report(suffix=".txt")
    def short(run: Run) -> str:
        return run.id

    assert render(short, finished, width=80, colour=True) == "id-1"
