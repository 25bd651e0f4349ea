from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from gradcheck import ExitCode
from gradcheck.cli.merge import ALLOW


@pytest.fixture
def asked(monkeypatch, finished):
    """What the engine is asked; it finds any run."""
    seen = []
    module = ModuleType("gradcheck.engine.merge")
    module.find_runs = lambda folder, names: [folder / name for name in names]
    module.merge = lambda paths, **options: seen.append((paths, options)) or finished
    monkeypatch.setitem(sys.modules, "gradcheck.engine.merge", module)
    return seen


def test_runs_and_what_is_let_through_reach_the_engine_and_the_exit_status_is_the_runs(cli, asked):
    suite = str(Path(__file__).parents[1] / "testdata" / "hello")
    result = cli("merge", "a", "b", "--allow", "versions", "--allow", "seeds", "--suite", suite)
    assert result.code == ExitCode.NOTHING
    ((paths, options),) = asked
    assert [path.name for path in paths] == ["a", "b"]
    assert (options["allow"], options["suites"]) == (("versions", "seeds"), (suite,))


def test_json_alone_is_on_stdout(cli, asked):
    result = cli("merge", "a", "--json")
    assert result.out.startswith("{")
    assert "nothing was checked" in result.err


@pytest.mark.parametrize("args, says", [((), "RUN"), (("a", "--allow", "all"), "'all' is not one of")])
def test_a_slip_is_a_usage_error(cli, asked, args, says):
    result = cli("merge", *args)
    assert (result.code, asked) == (ExitCode.USAGE, [])
    assert says in result.err


def test_what_can_be_let_through_is_what_the_engine_tells_apart():
    from gradcheck.engine.merge import DIFFERENCES

    assert ALLOW == DIFFERENCES
