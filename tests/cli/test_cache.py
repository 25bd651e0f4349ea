from __future__ import annotations

import numpy as np
import pytest

from gradcheck import ExitCode, Quantity, Truth
from gradcheck.engine import cache

KEY = cache.key_of({"case": "one"})


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A cache with one truth in it."""
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    one = np.ones(2)
    assert cache.put(KEY, Truth("costate", {"y": Quantity(one, one, one)}, {}), {})
    return tmp_path / "truth" / f"{KEY}.npz"


def test_show_names_every_cache_with_its_files_and_folder(cli, file):
    result = cli("cache", "show")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["cache", "truth", "metal", "lanes"]
    assert str(file.parent) in result.out


def test_verify_names_the_damaged_file_and_is_no_success(cli, file):
    assert cli("cache", "verify", "truth").code == 0
    file.write_bytes(file.read_bytes()[:-1])
    result = cli("cache", "verify", "truth")
    assert result.code == ExitCode.INCONCLUSIVE
    assert str(file) in result.out
    assert "1 damaged" in result.out


def test_clear_takes_away_only_the_cache_that_is_named(cli, file):
    assert cli("cache", "clear", "metal").code == 0
    assert file.exists()
    assert "truth: 0 files" in cli("cache", "clear", "truth", "--older-than", "1").out
    assert "truth: 1 files" in cli("cache", "clear", "truth").out
    assert not file.exists()


@pytest.mark.parametrize("args", [(), ("show", "trut"), ("verify", "--older-than", "1"), ("clean",)])
def test_a_slip_is_a_usage_error_and_takes_nothing_away(cli, file, args):
    assert cli("cache", *args).code == ExitCode.USAGE
    assert file.exists()
