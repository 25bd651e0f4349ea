"""[tool.gradcheck]."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck import UsageError
from gradcheck.suite._config import normalised, project_name, read_config


def test_the_nearest_file_that_speaks_of_gradcheck_is_read(tmp_path: Path, write):
    write(tmp_path, {"pyproject.toml": "[tool.gradcheck]\nsuites = ['a', 'b']\n", "sub/pyproject.toml": "[tool.other]\n"})
    config = read_config(tmp_path / "sub")
    assert config is not None
    assert config.file == tmp_path / "pyproject.toml"
    assert config.suites == (tmp_path / "a", tmp_path / "b")


def test_no_suites_and_no_key_are_told_apart(tmp_path: Path, write):
    write(tmp_path, {"none/gradcheck.toml": "suites = []\n", "absent/gradcheck.toml": ""})
    none, absent = read_config(tmp_path / "none"), read_config(tmp_path / "absent")
    assert none is not None
    assert none.suites == ()
    assert absent is not None
    assert absent.suites is None


@pytest.mark.parametrize(
    "files, says",
    [
        ({"gradcheck.toml": "suite = ['.']\n"}, r"no \[tool.gradcheck\] key 'suite'; did you mean 'suites'\?.*gradcheck.toml"),
        ({"gradcheck.toml": "suites = '.'\n"}, "suites is '.', need a list"),
        ({"gradcheck.toml": "suites = [1]\n"}, r"suites is \[1\], need a list"),
        ({"gradcheck.toml": "suites = \n"}, "gradcheck.toml is not TOML"),
        ({"pyproject.toml": "[tool]\ngradcheck = 1\n"}, r"\[tool.gradcheck\] is 1, not a table"),
        ({"pyproject.toml": "[tool.gradcheck]\n", "gradcheck.toml": ""}, "keep one of them"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, write, files: dict[str, str], says: str):
    with pytest.raises(UsageError, match=says):
        read_config(write(tmp_path, files))


def test_names_of_projects_compare_as_package_indexes_do(tmp_path: Path, write):
    write(tmp_path, {"pyproject.toml": "[project]\nname = 'Griffin_Kernels'\n"})
    assert project_name(tmp_path / "pyproject.toml") == normalised("griffin.kernels") == "griffin-kernels"
    assert project_name(tmp_path / "nosuch.toml") == ""
