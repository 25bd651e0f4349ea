"""A diff is read right, and a change selects the ops whose sources it touches and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck import UsageError
from gradcheck.engine.gate_patch import mismatch, parse_diff, whole
from gradcheck.engine.touched import everything, touched
from gradcheck.suite import load

MODIFIED = """diff --git a/k/scan.py b/k/scan.py
index 1..2 100644
--- a/k/scan.py
+++ b/k/scan.py
@@ -10,4 +10,4 @@ def vjp():
 one
-two
+TWO
+2b
 three
--- a line that was removed and looks like a header
"""


def test_a_hunk_has_its_changed_lines_in_the_new_file():
    (hunk,) = parse_diff(MODIFIED)["k/scan.py"]
    assert (hunk.start, hunk.lines, hunk.first, hunk.last) == (10, ("one", "TWO", "2b", "three"), 11, 13)


def test_lines_that_were_only_removed_are_told_at_one_beside_them():
    (hunk,) = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -5,2 +4,0 @@\n-a\n-b\n")["x.py"]
    assert (hunk.lines, hunk.first, hunk.last) == ((), 4, 4)


@pytest.mark.parametrize(
    "text, files",
    [
        ("", []),
        ("--- a/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", ["x.py"]),
        ("--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+a\n", ["x.py"]),
        ("diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n", ["a.py", "b.py"]),
        ("diff --git a/x y.bin b/x y.bin\nBinary files a/x y.bin and b/x y.bin differ\n", ["x y.bin"]),
        ("diff --git x.sh x.sh\nold mode 100644\nnew mode 100755\n", ["x.sh"]),
        ('--- "a/\\303\\244.py"\n+++ "b/\\303\\244.py"\n@@ -1 +1 @@\n-a\n+b\n', ["ä.py"]),
        ("--- x.py\t2026-01-01 00:00:00\n+++ x.py\t2026-01-02 00:00:00\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n", ["x.py"]),
    ],
)
def test_files_are_told_by_their_old_and_new_names(text: str, files: list[str]):
    assert list(parse_diff(text)) == files


@pytest.mark.parametrize("text", ["hello\n", "@@ -1 +1 @@\n-a\n+b\n"])
def test_what_is_no_diff_is_refused(text: str):
    with pytest.raises(UsageError, match="no unified diff"):
        parse_diff(text)


def test_a_diff_that_is_cut_short_is_refused():
    with pytest.raises(UsageError, match="cut short"):
        parse_diff("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\n+b")


def test_a_diff_of_another_tree_is_seen(tmp_path: Path):
    files = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n")
    assert "no file" in mismatch(files, tmp_path)
    (tmp_path / "x.py").write_text("a\nc\n")
    assert "another text at line 1" in mismatch(files, tmp_path)
    (tmp_path / "x.py").write_bytes(b"b\r\nc\r\n")
    assert mismatch(files, tmp_path) == ""


LINES = st.lists(st.text("abc", max_size=2), max_size=8)


@given(before=LINES, after=LINES, context=st.integers(0, 3))
def test_what_difflib_writes_leads_to_the_new_text(
    before: list[str], after: list[str], context: int, tmp_path_factory: pytest.TempPathFactory
):
    import difflib

    rows = list(difflib.unified_diff(before, after, "a/x", "b/x", n=context, lineterm=""))
    root = tmp_path_factory.mktemp("tree")
    (root / "x").write_text("\n".join(after))
    files = parse_diff("\n".join([*rows, ""]) if rows else "")
    assert mismatch(files, root) == ""
    assert bool(files) == (before != after)
    for hunk in files.get("x", ()):
        assert hunk.start <= hunk.first <= hunk.last <= max(hunk.start + len(hunk.lines) - 1, hunk.start)


def test_a_new_file_changed_as_a_whole():
    assert [(h.first, h.last) for h in whole("a\nb\n")] == [(1, 2)]
    assert whole("") == ()


OP = """
from gradcheck import Kernel, op
from ._draw import draw
@op(source="x", inputs={"h": "B", "x": "B T"}, outputs={"y": "B T", "h_T": "B"}, state="h", terms="B", linear="h x",
    dims={"B": (1, 2), "T": (1, 5)}, regimes={"draw": draw}, kernels=[Kernel("plain", "%(target)s", sources=("scan.py",))])
def %(name)s(h, x):
    "h_t = h + x."
    return h + x, (h + x,)
"""
MUTANT = """
from gradcheck import Edit, Mutant
wrong = Mutant(op="%s", defect="x", why="x", seen_in="x", edits={"plain": Edit("scan.py", "a", "b")})
"""
DRAW = "def draw(rng, shapes):\n    return {name: rng.normal(size=shape) for name, shape in shapes.items()}\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ops, `one` of a package and `two` of a loose file, which share a module."""
    files = {
        "pyproject.toml": "[tool.gradcheck]\nsuites = ['.']\n",
        "README.md": "",
        "common/__init__.py": "",
        "common/sums.py": "from . import deep\n",
        "common/deep.py": "",
        "common/unused.py": "",
        "k/one/__init__.py": "",
        "k/one/scan.py": "from common.sums import total\nfrom ..near import x\n",
        "k/one/back.metal": "",
        "k/one/notes.md": "",
        "k/__init__.py": "",
        "k/near.py": "",
        "loose/scan.py": "import helper\n",
        "loose/helper.py": "",
        "loose/data.txt": "",
        "tests/test_k.py": "",
        "oracles/one.py": OP % {"name": "one", "target": "k.one.scan:f"},
        "oracles/two.py": OP % {"name": "two", "target": "loose/scan.py:f"},
        "oracles/_draw.py": DRAW,
        "mutants/one.py": MUTANT % "one",
        "mutants/_families.py": "",
        "reports/mine.py": "",
        "reports/published/one.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    return tmp_path


@pytest.mark.parametrize(
    "file, ops",
    [
        ("README.md", []),
        ("tests/test_k.py", []),
        ("reports/mine.py", []),
        ("k/one/notes.md", []),
        ("common/unused.py", []),
        ("loose/data.txt", []),
        ("reports/published/one.json", []),
        ("k/one/scan.py", ["one"]),
        ("k/one/back.metal", ["one"]),
        ("k/one/gone.py", ["one"]),
        ("k/near.py", ["one"]),
        ("k/__init__.py", ["one"]),
        ("common/sums.py", ["one"]),
        ("common/deep.py", ["one"]),
        ("loose/scan.py", ["two"]),
        ("loose/helper.py", ["two"]),
        ("oracles/one.py", ["one"]),
        ("oracles/_draw.py", ["one", "two"]),
        ("oracles/_gone.py", ["one", "two"]),
        ("mutants/one.py", ["one"]),
        ("mutants/two.py", ["two"]),
        ("mutants/_families.py", ["one", "two"]),
        ("pyproject.toml", ["one", "two"]),
    ],
)
def test_a_file_selects_the_ops_it_belongs_to(tree: Path, file: str, ops: list[str]):
    found = touched(load(), [file], tree, tree / "pyproject.toml")
    assert list(found.ops) == ops
    assert found.other == (() if ops or file.endswith("one.json") else (file,))


def test_a_kernel_is_told_apart_from_a_neighbour_in_its_package(tree: Path):
    assert touched(load(), ["k/one/scan.py"], tree, None).kernels == {"one": ("plain",)}
    assert touched(load(), ["k/one/other.py"], tree, None).kernels == {}
    assert touched(load(), ["k/one/other.py"], tree, None).sources == {"one": ("k/one/other.py",)}


def test_a_reference_that_changed_and_bands_that_changed_are_told(tree: Path):
    found = touched(load(), ["oracles/_draw.py", "reports/published/one.json"], tree, None)
    assert (found.references, found.bands) == (("one", "two"), ("one",))


def test_a_change_of_gradcheck_itself_selects_every_op(tree: Path):
    (tree / "gradcheck" / "engine").mkdir(parents=True)
    for file in ("gradcheck/numerics/costate.py", "gradcheck/kernels/__init__.py"):
        assert list(touched(load(), [file], tree, None).ops) == ["one", "two"]
    assert touched(load(), ["gradcheck/kernels/other/mlx.py", "gradcheck/README.md"], tree, None).ops == {}


def test_only_ops_of_the_repository_are_meant(tree: Path):
    assert list(everything(load(), tree).ops) == ["one", "two"]
    assert "ssm_scan" in everything(load(), None).ops


def test_a_kernel_that_is_gone_selects_its_op(tree: Path):
    (tree / "k" / "one" / "scan.py").unlink()
    (tree / "k" / "one" / "__init__.py").unlink()
    assert list(touched(load(), ["k/one/scan.py"], tree, None).ops) == ["one"]


SHARED = """
from gradcheck import Kernel, op
from ._draw import draw
@op(source="x", inputs={"h": "B", "x": "B T"}, outputs={"y": "B T", "h_T": "B"}, state="h", terms="B", linear="h x",
    dims={"B": (1, 2), "T": (1, 5)}, regimes={"draw": draw}, kernels=[Kernel("plain", "k.one.wrapped:f", sources=("wrapped.py",))])
def three(h, x):
    "h_t = h + x."
    return h + x, (h + x,)
"""


@pytest.mark.parametrize(
    "file, ops",
    [
        ("k/one/wrapped.py", ["three"]),  # of the one alone, though it lies in a package of both
        ("k/one/late.py", ["three"]),
        ("k/one/scan.py", ["one", "three"]),  # which the wrapper imports
        ("k/one/back.metal", ["one", "three"]),  # nobody says whose it is
        ("k/one/__init__.py", ["one", "three"]),
        ("k/near.py", ["one", "three"]),
    ],
)
def test_of_two_ops_in_one_package_the_one_that_reads_a_file_is_selected(tree: Path, file: str, ops: list[str]):
    (tree / "oracles" / "three.py").write_text(SHARED)
    (tree / "k" / "one" / "wrapped.py").write_text("from .scan import f\ndef g():\n    from . import late\n")
    (tree / "k" / "one" / "late.py").write_text("")
    assert sorted(touched(load(), [file], tree, None).ops) == ops


def test_a_module_that_works_out_what_it_imports_may_read_all_of_its_package(tree: Path):
    (tree / "oracles" / "three.py").write_text(SHARED)
    (tree / "k" / "one" / "wrapped.py").write_text("from importlib import import_module\nf = import_module('.' + 'scan', __package__).f\n")
    assert sorted(touched(load(), ["k/one/scan.py"], tree, None).ops) == ["one", "three"]
    assert list(touched(load(), ["k/one/wrapped.py"], tree, None).ops) == ["three"]
