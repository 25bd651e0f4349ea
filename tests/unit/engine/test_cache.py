"""The truth cache: bit for bit, safe between processes, and never a reason for a run to fail."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradcheck import Quantity, Truth
from gradcheck.engine import cache

KEY = cache.key_of({"case": "ssm_scan/B1,T1/f32/ordinary/0"})
SPECIAL = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, np.nextafter(1, 2)])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path))
    return tmp_path / "truth"


def quantity(values: np.ndarray) -> Quantity:
    return Quantity(values, np.abs(values), -values)


def truth(values: np.ndarray = SPECIAL) -> Truth:
    return Truth("costate", {"y": quantity(values), "s_T": quantity(values[:2])}, {"x": quantity(values[::-1])})


def bits(kept: Truth) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    arrays = [(name, array) for name, q in kept.quantities().items() for array in (q.value, q.error, q.majorant)]
    return [(name, str(array.dtype), array.shape, array.tobytes()) for name, array in arrays]


quantities = st.builds(
    Quantity,
    *[hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=2), elements=st.floats(width=64))] * 3,
)
named = st.dictionaries(st.text(max_size=5), quantities, max_size=3)
extras = st.dictionaries(st.text(max_size=5), st.floats() | st.integers() | st.lists(st.floats(), max_size=3), max_size=3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.builds(Truth, st.text(max_size=8), named, named), extras)
def test_what_was_put_is_what_is_got_bit_for_bit(kept: Truth, also: dict[str, object]) -> None:
    assert cache.put(KEY, kept, also)
    found = cache.get(KEY)
    assert found is not None
    again, extras_again = found
    assert again.oracle == kept.oracle
    assert (list(again.outputs), list(again.gradients)) == (list(kept.outputs), list(kept.gradients))
    assert bits(Truth("", again.outputs, {})) == bits(Truth("", kept.outputs, {}))
    assert bits(Truth("", again.gradients, {})) == bits(Truth("", kept.gradients, {}))
    assert repr(extras_again) == repr(also), "repr tells -0.0 from 0.0 and lets nan equal nan"


def test_special_numbers_keep_their_sign_and_payload() -> None:
    payload = np.array([0x7FF8_0000_0000_1234, 0xFFF8_0000_0000_0001], np.uint64).view(np.float64)
    kept = truth(np.concatenate([SPECIAL, payload]))
    assert cache.put(KEY, kept, {})
    found = cache.get(KEY)
    assert found is not None
    assert bits(found[0]) == bits(kept)


def test_a_key_never_put_is_a_miss() -> None:
    assert cache.get(KEY) is None


def test_a_key_depends_on_every_part_and_on_where_one_ends() -> None:
    parts = [{"a": "1", "b": "2"}, {"a": "2", "b": "1"}, {"a": "1b", "": "2"}, {"a": "1b2"}, {"a": "1"}, {"ab": "1"}, {}]
    assert len({cache.key_of(part) for part in parts}) == len(parts)
    assert cache.key_of({"a": "1", "b": "2"}) == cache.key_of({"b": "2", "a": "1"})


def test_a_source_digest_follows_contents_and_names_but_not_the_place(tmp_path: Path) -> None:
    def tree(name: str, step: str = "y = x", helper: str = "_h.py", metal: str = "y = x;") -> str:
        package = tmp_path / name / "numerics"
        package.mkdir(parents=True)
        (package / helper).write_text(step)
        (package / "backward.metal").write_text(metal)
        (package / "compiled.so").write_bytes(b"\0" + name.encode())  # no text, so no source
        single = tmp_path / name / "math.py"
        single.write_text("pi = 3")
        return cache.source_digest([single, package])

    assert tree("here") == tree("there")
    assert len({tree("same"), tree("edited", step="y = -x"), tree("renamed", helper="_k.py"), tree("metal", metal="y = -x;")}) == 4


@pytest.mark.parametrize("damage", ["empty", "short", "bit", "foreign", "other key", "pickle"])
def test_a_file_that_is_not_whole_is_a_miss_and_is_replaced(folder: Path, damage: str) -> None:
    assert cache.put(KEY, truth(), {"k": 1})
    path = folder / f"{KEY}.npz"
    content = bytearray(path.read_bytes())
    if damage == "empty":
        content = bytearray()
    elif damage == "short":
        content = content[:-7]
    elif damage == "bit":
        content[len(content) // 3] ^= 4
    elif damage == "foreign":
        content = bytearray(b"PK\x03\x04 not ours at all" * 9)
    elif damage == "other key":
        assert cache.put(cache.key_of({"other": ""}), truth(), {})
        content = bytearray((folder / f"{cache.key_of({'other': ''})}.npz").read_bytes())
    else:
        np.savez(path, numbers=np.array([object()], dtype=object), allow_pickle=True)
        content = bytearray(path.read_bytes())
    path.write_bytes(content)
    assert cache.get(KEY) is None
    assert cache.put(KEY, truth(), {"k": 1})
    found = cache.get(KEY)
    assert found is not None
    assert found[1] == {"k": 1}


def test_every_single_flipped_bit_is_noticed(folder: Path) -> None:
    assert cache.put(KEY, truth(SPECIAL[:1]), {})
    path = folder / f"{KEY}.npz"
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        broken = bytearray(whole)
        broken[place] ^= 1 << place % 8
        path.write_bytes(broken)
        assert cache.get(KEY) is None, f"byte {place}"


def test_numpy_itself_can_open_the_files_without_pickle(folder: Path) -> None:
    assert cache.put(KEY, truth(), {})
    with np.load(folder / f"{KEY}.npz", allow_pickle=False) as stored:
        assert stored["numbers"].dtype == np.float64


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "file"))
    assert not cache.put(KEY, truth(), {})
    assert cache.get(KEY) is None


def test_a_full_disk_is_no_error_and_leaves_nothing_behind(folder: Path) -> None:
    assert cache.put(KEY, truth(), {"old": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        kept = cache.put(KEY, truth(np.arange(1e4)), {"new": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not kept
    found = cache.get(KEY)
    assert found is not None
    assert found[1] == {"old": 1}, "what was there is still there"
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.npz"]


HAMMER = """
import sys, time
import numpy as np
from gradcheck import Quantity, Truth
from gradcheck.engine import cache
mine, key, seen = float(sys.argv[1]), sys.argv[2], set()
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + 0.7
while time.monotonic() < end or (len(seen) < 2 and time.monotonic() < end + 20):  # on a busy machine they meet late
    values = np.full(20_000, mine)
    assert cache.put(key, Truth("costate", {"y": Quantity(values, values, values)}, {}), {"writer": mine})
    truth, extras = cache.get(key)  # never a miss, once somebody has put it
    found = np.unique(truth.outputs["y"].value)
    assert found.tolist() == [extras["writer"]], found
    seen.add(extras["writer"])
print(sorted(seen))
"""


def test_four_processes_that_put_and_get_one_key_always_see_a_whole_truth(folder: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(i), KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=60)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert any(text.count(",") for text in said), f"they never met, so nothing was tested: {said}"
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.npz"]


def test_a_hit_costs_a_few_milliseconds() -> None:
    assert cache.put(KEY, Truth("costate", {}, {name: quantity(np.ones(10_000)) for name in "abcdef"}), {})
    start = time.process_time()
    for _ in range(20):
        assert cache.get(KEY)
    assert (time.process_time() - start) / 20 < 0.02
