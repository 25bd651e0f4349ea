from __future__ import annotations

import pytest

from gradcheck import ExitCode

OP = '''
from gradcheck import op

def plain(rng, shapes):
    """Ordinary numbers."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}

@op(source="%s", inputs={"s": "B D", "x": "B T D"}, outputs={"y": "B T D", "s_T": "B D"}, state="s", terms="B D", linear="s x",
    dims={"B": (1, 2), "T": (1, 5), "D": (3,)}, regimes={"plain": plain})
def toy(s, x):
    """s' = s + x, y = s'."""
    return s + x, (s + x,)
'''


@pytest.fixture
def suite(tmp_path, monkeypatch):
    (tmp_path / "oracles").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sound_suite_is_quiet(cli, suite):
    (suite / "oracles" / "toy.py").write_text(OP % "a book")
    result = cli("lint", "--suite", str(suite))
    assert result.code == ExitCode.OK
    assert "problems: 0" in result.out


def test_a_rotten_suite_names_what_is_rotten(cli, suite):
    (suite / "oracles" / "toy.py").write_text(OP % "")
    result = cli("lint", "--suite", str(suite))
    assert result.code == ExitCode.ROTTEN
    assert "op toy" in result.out
    assert "source" in result.out


def test_a_folder_that_is_no_suite_is_a_usage_error(cli, suite):
    assert cli("lint", "--suite", str(suite / "nowhere")).code == ExitCode.USAGE


def test_a_suite_without_ops_is_nothing_to_lint(cli, monkeypatch):
    import gradcheck.suite

    empty = gradcheck.suite.Suite((), {}, {}, {}, (), {}, {})
    monkeypatch.setattr(gradcheck.suite, "load", lambda paths: empty)
    assert cli("lint").code == ExitCode.NOTHING
