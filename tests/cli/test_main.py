"""What each ending becomes: message, stream and exit status."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradcheck
from gradcheck import ExitCode, GradcheckError, StaleMutant, UsageError


def test_help_loads_nothing_that_computes():
    program = (
        "import sys; from gradcheck.cli import main; code = main(['--help']);"
        "heavy = {'numpy', 'mlx', 'rich', 'msgspec', 'pebble', 'gradcheck.suite', 'gradcheck.engine'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy or code else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for verb in ("run", "list", "lint", "Exit status"):
        assert verb in done.stdout


def test_every_verb_has_help(cli):
    for verb in ("run", "list", "lint"):
        result = cli(verb, "--help")
        assert result.code == 0
        assert f"gradcheck {verb}" in result.out


def test_no_verb_is_a_usage_error(cli):
    assert cli().code == ExitCode.USAGE


def test_a_misspelt_verb_is_a_usage_error_that_suggests_the_right_one(cli):
    result = cli("rnu")
    assert result.code == ExitCode.USAGE
    assert "'run'" in result.err
    assert not result.out


def test_a_misspelt_option_is_a_usage_error_that_suggests_the_right_one(cli):
    result = cli("run", "--kernels", "x")
    assert result.code == ExitCode.USAGE
    assert "--kernel" in result.err
    assert "gradcheck run --help" in result.err


def test_version_is_the_version_of_the_package(cli):
    result = cli("--version")
    assert (result.code, result.out) == (0, f"gradcheck {gradcheck.__version__}\n")


@pytest.mark.parametrize("code", list(ExitCode))
def test_the_gate_of_the_run_is_the_exit_status(cli, engine, finished, code):
    engine.finished = gradcheck.Run(**{name: getattr(finished, name) for name in finished.__slots__} | {"exit_code": code})
    assert cli("run", "--op", "x").code == int(code)


@pytest.mark.parametrize(
    "error, code",
    [
        (UsageError("no op 'x'"), ExitCode.USAGE),
        (GradcheckError("no op 'x'"), ExitCode.USAGE),
        (StaleMutant("no op 'x'"), ExitCode.ROTTEN),
    ],
)
def test_an_error_of_the_user_is_its_message_and_no_traceback(cli, engine, error, code):
    engine.raises = error
    result = cli("run", "--op", "x")
    assert (result.code, result.err, result.out) == (code, "gradcheck: no op 'x'\n", "")


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), SystemExit(0), SystemExit("oops")])
def test_anything_else_is_a_bug_with_a_traceback_even_an_exit_with_success(cli, engine, error):
    engine.raises = error
    result = cli("run", "--op", "x")
    assert result.code == ExitCode.BUG
    assert "Traceback" in result.err
    assert "this is a bug in gradcheck" in result.err
    assert not result.out


def test_an_interrupted_run_says_how_to_go_on(cli, engine):
    engine.raises = KeyboardInterrupt()
    result = cli("run", "--op", "x")
    assert result.code == ExitCode.INTERRUPTED
    assert "gradcheck run --resume" in result.err
    assert "Traceback" not in result.err


def test_a_message_cannot_draw_on_the_screen(cli, engine):
    engine.raises = UsageError("no op '\x1b[2J'")
    assert "\x1b" not in cli("run", "--op", "x").err
