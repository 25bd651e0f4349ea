"""The caches: how much they hold, what of it is damaged, and that it may go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gradcheck import Quantity, Truth, UsageError
from gradcheck.engine import cache
from gradcheck.engine.caches import caches, chosen, clear, sizes, verify
from gradcheck.metal.cache import sum_of
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

ONE = np.ones(3)
KEYS = [cache.key_of({"case": str(number)}) for number in range(3)]


@pytest.fixture(scope="module")
def suite():
    return load([builtin_root().path])


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite):
    """Three truths, and one library with the record of a kernel in it."""
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path))
    for key in KEYS:
        assert cache.put(key, Truth("costate", {"y": Quantity(ONE, ONE, ONE)}, {}), {})
    metal = tmp_path / "metal"
    metal.mkdir()
    (metal / "a.so").write_bytes(b"machine code")
    record = {"library": "a.so", "tag": "", "loop": False, "warnings": [], "sum": sum_of(metal / "a.so")}
    (metal / "k.json").write_text(json.dumps(record))
    return {one.name: one for one in caches(suite)}


def test_what_is_whole_is_found_whole(held):
    assert verify(held["truth"]) == (3, 0, [])
    assert verify(held["metal"]) == (1, 1, [])  # the library is vouched for by its record
    assert sizes(held["truth"].files()).keys() == {cache.folder() / f"{key}.npz" for key in KEYS}


@pytest.mark.parametrize("damage", ["bit", "cut", "renamed", "empty"])
def test_a_damaged_truth_is_named(held, damage):
    file = cache.folder() / f"{KEYS[1]}.npz"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    if damage == "renamed":
        file.rename(file.with_name("0.npz"))
        file = file.with_name("0.npz")
    else:
        file.write_bytes({"bit": bytes(content), "cut": file.read_bytes()[:-1], "empty": b""}[damage])
    right, _, damaged = verify(held["truth"])
    assert right == 2
    (sentence,) = damaged
    assert sentence.startswith(str(file))


@pytest.mark.parametrize("damage, says", [("code", "content is another"), ("gone", "is gone"), ("record", "no record of a kernel")])
def test_a_damaged_kernel_is_named(held, tmp_path, damage, says):
    library, record = tmp_path / "metal" / "a.so", tmp_path / "metal" / "k.json"
    if damage == "code":
        library.write_bytes(b"machine cod3")
    elif damage == "gone":
        library.unlink()
    else:
        record.write_text("{")
    right, _, damaged = verify(held["metal"])
    assert right == 0
    (sentence,) = damaged
    assert sentence.startswith(str(record))
    assert says in sentence


def test_what_is_cleared_is_gone_and_half_written_files_are_left_to_their_writers(held, tmp_path):
    busy = cache.folder() / ".private.tmp"
    busy.write_bytes(b"half")
    gone = clear(held["truth"])
    assert (len(gone), sum(gone.values()) > 0, cache.get(KEYS[0])) == (3, True, None)
    assert busy.exists()
    assert (tmp_path / "metal" / "a.so").exists()
    assert clear(held["truth"]) == {}


def test_only_what_is_old_goes_where_an_age_is_given(held):
    old = cache.folder() / f"{KEYS[0]}.npz"
    os.utime(old, (1e9, 1e9))
    assert list(clear(held["truth"], older_than=30)) == [old]
    assert len(held["truth"].files()) == 2


def test_an_unknown_cache_is_a_usage_error_with_the_names(held):
    with pytest.raises(UsageError, match="no cache 'trut'; did you mean 'truth'"):
        chosen(list(held.values()), ["trut"])
    assert [one.name for one in chosen(list(held.values()), [])] == ["truth", "metal", "lanes"]


def test_a_cache_that_is_not_there_is_empty(tmp_path, monkeypatch, suite):
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "nowhere"))
    for one in caches(suite)[:2]:
        assert (verify(one), clear(one)) == ((0, 0, []), {})
