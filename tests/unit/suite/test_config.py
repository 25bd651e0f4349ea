"""[tool.gradcheck]."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from gradcheck import UsageError
from gradcheck.suite import _config
from gradcheck.suite._config import normalised, parse_config, project_name, read_config


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


GATE = {
    "fail-under = 2": True,
    "fail-under = -1": False,
    "fail-under = true": False,
    "fail-under = '2'": False,
    "max-survivors = 3": True,
    "max-survivors = -3": False,
    "max-survivors = 0.5": False,
    "shrink = 1.5": True,
    "shrink = 0.5": False,
    "require-device = ['metal']": True,
    "require-device = 'metal'": False,
    "time-budget = 0.5": True,
    "time-budget = 0": False,
    "fail-undr = 1": False,
}


@pytest.mark.parametrize("line, fits", GATE.items())
def test_the_schema_and_the_reader_agree(tmp_path: Path, line: str, fits):
    text = f"[gate]\n{line}\n"
    schema = json.loads((Path(_config.__file__).parent / "config.schema.json").read_text("utf-8"))
    assert jsonschema.Draft202012Validator(schema).is_valid(tomllib.loads(text)) is fits
    file = tmp_path / "gradcheck.toml"
    if fits:
        assert parse_config(file, text.encode()) is not None
    else:
        with pytest.raises(UsageError, match=r"gradcheck\.toml"):
            parse_config(file, text.encode())


def test_the_schema_has_every_key():
    schema = json.loads((Path(_config.__file__).parent / "config.schema.json").read_text("utf-8"))
    assert set(schema["properties"]) == set(_config.KEYS)
    assert set(schema["properties"]["gate"]["properties"]) == set(_config.GATE_KEYS)


def test_a_gate_key_that_does_not_exist_has_a_near_one(tmp_path: Path):
    with pytest.raises(UsageError, match="did you mean 'fail-under'"):
        parse_config(tmp_path / "gradcheck.toml", b"[gate]\nfail_under = 1\n")
    with pytest.raises(UsageError, match="not a table"):
        parse_config(tmp_path / "gradcheck.toml", b"gate = 1\n")


def test_not_a_number_is_no_limit(tmp_path: Path):
    with pytest.raises(UsageError, match=r"gate\.fail-under is nan"):
        parse_config(tmp_path / "gradcheck.toml", b"gate.fail-under = nan\n")
