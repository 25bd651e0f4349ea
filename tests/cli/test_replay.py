"""`gradcheck replay`, on the op that `gradcheck new op` writes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gradcheck import ExitCode, Outcome
from gradcheck.cli import main
from gradcheck.cli.replay import pytest_function

CASE = "toy/B2,T5,D3/f32/near-one/7"
KERNEL = "kernels/toy.py:kernel"


@pytest.fixture
def toy(tmp_path, tmp_path_factory, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "truths"))
    assert main(["new", "op", "toy"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def wrong(toy):
    """A kernel file with one place changed."""

    def write(find: str, replace: str) -> str:
        text = (toy / "kernels/toy.py").read_text()
        assert text.count(find) == 1
        (toy / "kernels/wrong.py").write_text(text.replace(find, replace))
        return "kernels/wrong.py:kernel"

    return write


def test_a_right_kernel_agrees_and_every_quantity_is_shown(cli, toy):
    result = cli("replay", CASE, "--kernel", "numpy")
    assert result.code == ExitCode.OK
    assert result.out.startswith("PASSED  numpy")
    for quantity in ("y", "h_T", "d h", "d a", "d x"):
        assert f"✓ {quantity} " in result.out
    assert "worst elements" not in result.out


def test_details_of_what_passes_are_there_for_the_asking(cli, toy):
    result = cli("replay", CASE, "--kernel", "numpy", "--all")
    assert "d x  [B T D]" in result.out
    assert "by time step: 0 of 5 out of the noise" in result.out


def test_an_error_at_one_step_of_one_row_is_found_there(cli, toy, wrong):
    result = cli("replay", CASE, "--kernel", wrong("return G, da, dx", "dx[1, 3, 2] *= 1.001\n        return G, da, dx"))
    assert result.code == ExitCode.WRONG
    assert "✗ d x" in result.out
    assert "✓ d a" in result.out
    assert "d a  [" not in result.out
    first = next(line for line in result.out.splitlines() if "±" in line)
    assert first.split("  ")[1] == "b=1, t=3, d=2"
    assert "by time step: 1 of 5 out of the noise, first at t = 3; worst at t = 3" in result.out
    assert "by head (D): 1 of 3 out of the noise, first at d = 2" in result.out
    assert "by row: 1 of 2 out of the noise, first at b = 1" in result.out


def test_a_value_that_is_not_finite_is_shown_as_such(cli, toy, wrong):
    result = cli("replay", CASE, "--kernel", wrong("return G, da, dx", "da[0, 2, 1] = np.nan\n        return G, da, dx"))
    assert result.code == ExitCode.WRONG
    assert "b=0, t=2, d=1" in result.out
    assert "not finite" in result.out


@pytest.mark.parametrize(
    "mutant, case, word, code",
    [
        ("drop_decay", CASE, "KILLED", ExitCode.OK),
        ("toy/drop_decay", CASE, "KILLED", ExitCode.OK),
        ("seed_with_zeros", CASE.replace("near-one", "near-one@y"), "SURVIVED", ExitCode.SURVIVORS),
        ("canary", CASE, "KILLED", ExitCode.OK),
        ("null", CASE, "SURVIVED", ExitCode.OK),
    ],
)
def test_a_mutant_is_seen_or_not(cli, toy, mutant, case, word, code):
    result = cli("replay", case, "--kernel", "numpy", "--mutant", mutant)
    assert (result.code, result.out.split()[0]) == (code, word)


@pytest.mark.parametrize("edit", ["G = = G", "G = G * no_such_name"])
def test_a_mutant_that_does_not_run_is_unviable_and_no_kill(cli, toy, edit):
    text = (toy / "mutants/toy.py").read_text()
    (toy / "mutants/broken.py").write_text(
        text.replace('"G = G")', f'"{edit}")').replace("drop_decay", "broken").replace("seed_with", "_seed_with")
    )
    result = cli("replay", CASE, "--kernel", "numpy", "--mutant", "broken")
    assert (result.code, result.out.split()[0]) == (ExitCode.ROTTEN, "UNVIABLE")


def test_a_kernel_without_a_backward_is_told_to_be_that(cli, toy):
    (toy / "kernels/half.py").write_text(
        "from toy import kernel as whole\n\nclass kernel:\n    arrays = 'numpy'\n    forward = whole.forward\n"
    )
    result = cli("replay", CASE, "--kernel", "kernels/half.py:kernel")
    assert result.code == ExitCode.NOTHING
    assert "it has no backward" in result.out
    result = cli("replay", CASE, "--kernel", "kernels/half.py:kernel", "--forward-only")
    assert result.code == ExitCode.OK
    assert "d x" not in result.out


def test_a_mutant_that_no_longer_matches_is_stale(cli, toy):
    file = toy / "kernels/toy.py"
    file.write_text(file.read_text().replace("G = G * a[:, t]", "G = a[:, t] * G"))
    result = cli("replay", CASE, "--kernel", "numpy", "--mutant", "drop_decay")
    assert result.code == ExitCode.ROTTEN
    assert "drop_decay" in result.err


@pytest.mark.parametrize(
    "change, word, reason",
    [
        ("import os; os.abort()", "CRASHED", "SIGABRT"),
        ("raise ValueError('no such chunk')", "FAILED", "no such chunk"),
    ],
)
def test_a_kernel_that_dies_is_an_outcome_with_its_reason(cli, toy, wrong, change, word, reason):
    result = cli("replay", CASE, "--kernel", wrong("return G, da, dx", f"{change}\n        return G, da, dx"))
    assert (result.code, result.out.split()[0]) == (ExitCode.WRONG, word)
    assert reason in result.out


def test_a_hang_is_an_outcome(cli, toy, wrong):
    kernel = wrong("return G, da, dx", "import time; time.sleep(60)\n        return G, da, dx")
    result = cli("replay", CASE, "--kernel", kernel, "--timeout", "3")
    assert (result.code, result.out.split()[0]) == (ExitCode.INCONCLUSIVE, "TIMEOUT")


@pytest.mark.parametrize(
    "args, words",
    [
        ((CASE, "--kernel", "nmpy"), "'numpy'"),
        ((CASE, "--kernel", "numpy", "--mutant", "drop_decoy"), "'drop_decay'"),
        ((CASE, "--kernel", "numpy", "--mutant", "all"), "One at a time"),
        ((CASE.replace("f32", "f16"), "--kernel", "numpy"), "claims f32"),
        ((CASE.replace("near-one", "far"), "--kernel", "numpy"), "near-one"),
        (("toy/T5", "--kernel", "numpy"), "need 5"),
        ((CASE, "--kernel", "oracles/toy.py:toy"), "the reference itself"),
        ((CASE,), "--kernel"),
    ],
)
def test_a_name_that_does_not_fit_is_a_usage_error(cli, toy, args, words):
    result = cli("replay", *args)
    assert result.code == ExitCode.USAGE
    assert words in result.err
    assert not result.out


def _function(code):
    scope: dict[str, object] = {}
    exec(code, scope)
    (function,) = [value for name, value in scope.items() if name.startswith("test_")]
    return function


def test_the_pytest_function_passes_for_a_right_kernel_and_fails_for_a_wrong_one(cli, toy, wrong):
    _function(cli("replay", CASE, "--kernel", KERNEL, "--pytest").out)()
    kernel = wrong("return G, da, dx", "return -G, da, dx")
    with pytest.raises(AssertionError, match=r"(?s)wrong\.py.*differs.*✗ d h"):
        _function(cli("replay", CASE, "--kernel", kernel, "--pytest").out)()


def test_the_pytest_function_of_a_mutant_fails_where_the_defect_is_not_seen(cli, toy):
    _function(cli("replay", CASE, "--kernel", "numpy", "--mutant", "seed_with_zeros", "--pytest").out)()
    unseen = CASE.replace("near-one", "near-one@y")
    with pytest.raises(AssertionError, match=Outcome.SURVIVED.value):
        _function(cli("replay", unseen, "--kernel", "numpy", "--mutant", "seed_with_zeros", "--pytest").out)()


def test_the_pytest_function_carries_every_choice():
    code = pytest_function(CASE, "a/b.py:f", mutant="toy/m", suites=("there",), forward_only=True)
    for text in ("def test_m_in_b_f_is_seen():", '"toy/m",\n        "a/b.py:f"', 'suites=["there"]', "forward_only=True"):
        assert text in code


def test_the_pytest_function_uses_public_names_alone():
    for mutant in ("", "toy/m"):
        code = pytest_function(CASE, "a/b.py:f", mutant=mutant)
        imported = [line for line in code.splitlines() if "import" in line]
        assert imported == [f"from gradcheck.testing import {'assert_killed' if mutant else 'assert_grads'}"]


def test_a_process_that_replays_a_wrong_kernel_exits_with_one(toy, wrong):
    kernel = wrong("return G, da, dx", "return -G, da, dx")
    args = [sys.executable, "-m", "gradcheck", "replay", CASE, "--kernel", kernel]
    ran = subprocess.run(args, capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.WRONG, ran.stdout + ran.stderr
