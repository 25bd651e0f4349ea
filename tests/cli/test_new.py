from __future__ import annotations

import pytest

from gradcheck import ExitCode


@pytest.fixture
def empty(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "truths"))
    return tmp_path


def written(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))


def test_a_new_op_lints_runs_and_kills_its_two_mutants_in_under_sixty_lines(cli, empty):
    result = cli("new", "op", "gated_linear")
    assert result.code == ExitCode.OK
    assert written(empty) == ["kernels/gated_linear.py", "mutants/gated_linear.py", "oracles/gated_linear.py"]
    assert sum(len((empty / file).read_text().splitlines()) for file in written(empty)) < 60
    assert "gated_linear" not in cli("lint").out
    result = cli("run", "--op", "gated_linear", "--mutants", "all", "--cases", "4", "--jobs", "1")
    assert result.code == ExitCode.OK, result.out
    assert "2 of 2 mutants killed" in result.out


def test_a_new_mutant_lints_and_is_killed(cli, empty):
    cli("new", "op", "toy")
    result = cli("new", "mutant", "slip", "--op", "toy")
    assert "gradcheck run --op toy --kernel numpy --mutants slip" in result.out
    assert "slip" not in cli("lint").out
    result = cli("run", "--op", "toy", "--mutants", "slip", "--cases", "2", "--jobs", "1")
    assert result.code == ExitCode.OK, result.out
    assert "1 of 1 mutant killed" in result.out


def test_a_new_mutant_of_a_built_in_op_lints(cli, empty):
    assert cli("new", "mutant", "slip", "--op", "ssm_scan").code == ExitCode.OK
    assert "slip" not in cli("lint").out


def test_a_new_kernel_runs_and_is_found_wrong_until_it_is_filled_in(cli, empty):
    cli("new", "op", "toy")
    assert cli("new", "kernel", "mine", "--op", "toy").code == ExitCode.OK
    run = ("run", "--op", "toy", "--kernel", "kernels/mine.py:mine", "--cases", "2", "--jobs", "1")
    result = cli(*run)
    assert result.code == ExitCode.WRONG
    assert "is wrong in y" in result.out
    file = empty / "kernels/mine.py"
    zeros = next(line for line in file.read_text().splitlines() if "mx.zeros" in line)
    indent = zeros[: len(zeros) - len(zeros.lstrip())]
    file.write_text(file.read_text().replace(zeros, f"{indent}h = a[:, t] * h + x[:, t]\n{indent}ys.append(h)"))
    assert cli(*run).code == ExitCode.OK


def test_a_new_report_renders(cli, empty):
    cli("new", "op", "toy")
    cli("run", "--op", "toy", "--cases", "1", "--jobs", "1")
    assert cli("new", "report", "brief").code == ExitCode.OK
    assert "toy: exit" in cli("report", "--format", "brief").out


def test_a_folder_that_the_suites_do_not_cover_is_said(cli, empty):
    (empty / "gradcheck.toml").write_text("suites = []\n")
    assert "gradcheck lint --suite ." in cli("new", "op", "toy").out
    assert "gradcheck report --format brief --suite ." in cli("new", "report", "brief").out


@pytest.mark.parametrize("file", ["oracles/toy.py", "kernels/toy.py", "mutants/toy.py"])
def test_nothing_is_overwritten_and_nothing_is_half_written(cli, empty, file):
    (empty / file).parent.mkdir()
    (empty / file).write_text("# mine\n")
    result = cli("new", "op", "toy")
    assert result.code == ExitCode.USAGE
    assert file in result.err
    assert written(empty) == [file]
    assert (empty / file).read_text() == "# mine\n"


@pytest.mark.parametrize(
    "args, words",
    [
        (("op", "9lives"), "'9lives'"),
        (("op", "lambda"), "'lambda'"),
        (("op", "_private"), "'_private'"),
        (("op", "ssm_scan"), "is taken by"),
        (("op", "toy", "--op", "ssm_scan"), "leave out --op"),
        (("report", "terminal"), "is taken by"),
        (("mutant", "slip"), "--op"),
        (("mutant", "slip", "--op", "ssm_scn"), "'ssm_scan'"),
        (("kernel", "mine", "--op", "ssm_scn"), "'ssm_scan'"),
        (("mutant", "drop_dA_path", "--op", "ssm_scan"), "is taken by"),
        (("oracle", "toy"), "oracle"),
    ],
)
def test_what_cannot_be_made_is_a_usage_error(cli, empty, args, words):
    result = cli("new", *args)
    assert result.code == ExitCode.USAGE
    assert words in result.err
    assert written(empty) == []


def test_an_op_without_a_sign_to_flip_says_so(cli, empty):
    cli("new", "op", "toy")
    (empty / "kernels/toy.py").write_text("kernel = None\n")
    result = cli("new", "mutant", "slip", "--op", "toy")
    assert result.code == ExitCode.USAGE
    assert "by hand" in result.err
