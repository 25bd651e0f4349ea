from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from gradcheck import Edit, StaleMutant, UsageError
from gradcheck.engine.mutate import copy_with_edit, diff

EDIT = Edit("maths.py", "a + b", "a - b")


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "kernel"
    files = {
        "__init__.py": "",
        "maths.py": "def f(a, b):\r\n    return a + b\r\n",
        "metal/backward.metal": "// source",
        "__pycache__/x.pyc": "",
        ".git/HEAD": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_whole_package_is_copied_with_the_edit_and_without_caches(package, tmp_path):
    copy = copy_with_edit(package, EDIT, "minus", tmp_path / "into")
    assert files(copy) == {"__init__.py": b"", "maths.py": b"def f(a, b):\r\n    return a - b\r\n", "metal/backward.metal": b"// source"}
    assert b"a + b" in (package / "maths.py").read_bytes()


def test_the_null_mutant_is_an_identical_copy(package, tmp_path):
    copy = copy_with_edit(package, None, "null", tmp_path / "into")
    assert (copy / "maths.py").read_bytes() == (package / "maths.py").read_bytes()


def test_equal_copies_are_one_folder_and_a_changed_kernel_is_another(package, tmp_path):
    first = copy_with_edit(package, EDIT, "minus", tmp_path / "into")
    assert copy_with_edit(package, EDIT, "minus", tmp_path / "into") == first
    (package / "__init__.py").write_text("X = 1\n")
    assert copy_with_edit(package, EDIT, "minus", tmp_path / "into") != first
    assert copy_with_edit(package, None, "null", tmp_path / "into") != first


def test_processes_that_ask_at_once_get_one_complete_folder(package, tmp_path):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = set(pool.map(copy_with_edit, [package] * 8, [EDIT] * 8, ["minus"] * 8, [tmp_path / "into"] * 8))
    assert [path.name for path in (tmp_path / "into").iterdir()] == [path.name for path in found]
    assert (found.pop() / "metal" / "backward.metal").is_file()


@pytest.mark.parametrize(
    "edit, says",
    [
        (Edit("maths.py", "a * b", ""), "`find` matches 0 places in maths.py"),
        (Edit("maths.py", "a", ""), "`find` matches 2 places"),
        (Edit("gone.py", "a", ""), "has no file gone.py"),
    ],
)
def test_an_edit_that_does_not_match_once_is_stale_and_leaves_nothing_behind(package, tmp_path, edit, says):
    with pytest.raises(StaleMutant, match="mutant old") as raised:
        copy_with_edit(package, edit, "old", tmp_path / "into")
    assert says in str(raised.value)
    assert not (tmp_path / "into").exists()


def test_an_edit_outside_the_package_is_refused(package, tmp_path):
    (tmp_path / "other.py").write_text("a")
    with pytest.raises(UsageError, match="lies outside"):
        copy_with_edit(package, Edit("../other.py", "a", "b"), "stray", tmp_path / "into")


def test_a_folder_that_is_no_package_gives_its_files_and_its_packages_only(package, tmp_path):
    (package / "__init__.py").unlink()
    (package / "helpers").mkdir()
    (package / "helpers" / "__init__.py").write_text("")
    copy = copy_with_edit(package, EDIT, "minus", tmp_path / "into")
    assert set(files(copy)) == {"maths.py", "helpers/__init__.py"}


def test_the_diff_is_unified_and_names_the_file(package):
    assert diff(package, EDIT).splitlines() == [
        "--- a/maths.py",
        "+++ b/maths.py",
        "@@ -1,2 +1,2 @@",
        " def f(a, b):",
        "-    return a + b",
        "+    return a - b",
    ]
