from __future__ import annotations

import io
import subprocess
import sys

import pytest

from gradcheck.cli import progress as progress_module
from gradcheck.cli.output import PIPE_WIDTH, coloured, columns, printable, width

from .conftest import Progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_colour_is_for_terminals():
    assert coloured(Screen())
    assert not coloured(io.StringIO())


@pytest.mark.parametrize("name, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not coloured(Screen())


def test_a_pipe_has_a_width_of_its_own(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert width(io.StringIO()) == PIPE_WIDTH
    assert width(Screen()) == 70


def test_columns_are_aligned_and_cut_at_the_limit():
    rows = [{"op": "a", "why": "first"}, {"op": "longer", "why": ["x", "y"]}]
    assert columns(rows) == "op      why\na       first\nlonger  x y"
    assert columns(rows, limit=10).splitlines()[1] == "a       f…"
    assert columns([]) == ""


def test_control_characters_are_made_visible():
    assert printable("a\x1b[2J\u202eb\nc") == "a�[2J�b\nc"


def test_a_reader_that_has_gone_does_not_change_the_exit_status():
    program = "import sys; from gradcheck.cli.output import emit; emit('x' * 10**6); sys.exit(7)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 7


def test_lines_come_at_the_beginning_the_end_and_now_and_then(capsys):
    clock = iter([0.0, 0.0, 1.0, 11.0, 11.0, 12.0, 13.0])
    tell = progress_module.lines(lambda: next(clock))
    tell(Progress("kernels", 0, 0, "", note="an unfinished run exists"))
    for done in (1, 2, 3, 4):
        tell(Progress("kernels", done, 4, "mlx"))
    tell(Progress("kernels", 4, 4, "mlx"))
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["an unfinished run exists", "kernels 1/4 mlx", "kernels 3/4 mlx", "kernels 4/4 mlx"]
    assert not captured.out


def test_bars_keep_notes_and_what_looks_like_markup(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_module.progress() as tell:
        tell(Progress("truth", 1, 2, "case [red]", note="note [bold]"))
        tell(Progress("truth", 2, 2, "case [red]"))
    assert "case [red]" in screen.getvalue()
    assert "note [bold]" in screen.getvalue()
