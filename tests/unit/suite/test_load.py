"""What a folder declares, and what happens when two declare the same."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

from gradcheck import SuiteError, UsageError
from gradcheck.suite import find_op, load, mutants_of


def test_a_foreign_folder_loads_exactly_as_ours(tiny: Path, elsewhere: Path):
    suite = load([tiny], cwd=elsewhere)
    op = suite.ops["decay"]
    assert op.file == suite.files["decay"] == str(tiny / "oracles/decay.py")
    assert op.maths == "h_t = a h_{t-1} + x_t."
    assert [mutant.id for mutant in mutants_of(suite, "decay")] == ["decay/drop_decay"]
    assert suite.files["decay/drop_decay"] == str(tiny / "mutants/decay.py")
    assert suite.reports["decay_lines"].suffix == ".txt"
    assert suite.homes["decay"].path == tiny
    assert suite.homes["decay"].origin == "folder"
    ours = load(cwd=elsewhere)
    assert set(ours.ops) == set(suite.ops) - {"decay"}  # ours come along, through the same door
    assert ours.roots == suite.roots[:-1]


def test_a_loaded_step_computes(tiny: Path, elsewhere: Path):
    op = load([tiny], cwd=elsewhere).ops["decay"]
    state, (term,) = op.step(np.array([[2.0]]), x=np.array([[1.0]]), a=np.array([0.5]))
    assert state == term == 2.0


def test_no_top_level_name_is_taken_and_the_source_can_be_inspected(tiny: Path, elsewhere: Path):
    op = load([tiny], cwd=elsewhere).ops["decay"]
    assert not {"oracles", "mutants", "reports"} & set(sys.modules)
    assert inspect.getsourcefile(op.step) == op.file
    assert "a * h0 + x" in inspect.getsource(op.step)
    assert sys.modules[op.step.__module__].__file__ == op.file


def test_two_suites_may_have_files_of_one_name(tiny: Path, elsewhere: Path, tmp_path: Path, write):
    other = {name: text.replace("decay", "growth") for name, text in _texts(tiny).items()}
    second = write(tmp_path / "second", {"oracles/decay.py": other["oracles/decay.py"], "oracles/_draw.py": other["oracles/_draw.py"]})
    suite = load([tiny, second], cwd=elsewhere)
    assert suite.ops["growth"].file == str(second / "oracles/decay.py")
    assert suite.ops["decay"].file == str(tiny / "oracles/decay.py")
    assert inspect.getsourcefile(suite.ops["growth"].regimes["plain"].draw) == str(second / "oracles/_draw.py")


def test_a_suite_may_add_mutants_to_an_op_of_another(tiny: Path, elsewhere: Path, tmp_path: Path, write):
    more = write(tmp_path / "more", {"mutants/extra.py": _texts(tiny)["mutants/decay.py"].replace("drop_decay", "lose_decay")})
    suite = load([tiny, more], cwd=elsewhere)
    assert [mutant.name for mutant in mutants_of(suite, "decay")] == ["drop_decay", "lose_decay"]


def test_private_files_and_variables_declare_nothing(tiny: Path, elsewhere: Path, write):
    text = _texts(tiny)["mutants/decay.py"]
    write(tiny, {"mutants/_family.py": text.replace("drop_decay", "hidden"), "mutants/more.py": text.replace("drop_decay", "_base")})
    assert [mutant.name for mutant in mutants_of(load([tiny], cwd=elsewhere), "decay")] == ["drop_decay"]


def test_a_value_that_another_file_imports_is_declared_once_where_it_is_written(tiny: Path, elsewhere: Path, write):
    write(tiny, {"oracles/another.py": "from .decay import decay\nalias = decay\n"})
    assert load([tiny], cwd=elsewhere).files["decay"] == str(tiny / "oracles/decay.py")


@pytest.mark.parametrize(
    "source, name",
    [
        ("oracles/decay.py", "op 'decay'"),
        ("mutants/decay.py", "mutant 'decay/drop_decay'"),
        ("reports/lines.py", "report 'decay_lines'"),
    ],
)
def test_a_clash_names_both_files(tiny: Path, elsewhere: Path, tmp_path: Path, write, source: str, name: str):
    texts, copy = _texts(tiny), f"{source.partition('/')[0]}/copy.py"
    other = write(tmp_path / "other", {copy: texts[source], "oracles/_draw.py": texts["oracles/_draw.py"]})
    with pytest.raises(SuiteError) as caught:
        load([tiny, other], cwd=elsewhere)
    assert name in str(caught.value)
    assert str(tiny / source) in str(caught.value)
    assert str(other / copy) in str(caught.value)


def test_a_name_declared_twice_in_one_suite_is_a_clash_too(tiny: Path, elsewhere: Path, write):
    write(tiny, {"reports/again.py": _texts(tiny)["reports/lines.py"]})
    with pytest.raises(SuiteError, match=r"report 'decay_lines' is declared in .*again.py and in .*lines.py"):
        load([tiny], cwd=elsewhere)


@pytest.mark.parametrize(
    "text, error, says",
    [
        ("import nosuchpackage.deep\n", ModuleNotFoundError, "Install what provides 'nosuchpackage'"),
        ("x = = 1\n", SyntaxError, "line 1"),
        ("x = 1\nx / 0\n", ZeroDivisionError, "broken.py:2"),
        ("import sys\nsys.exit(3)\n", SystemExit, "SystemExit: 3"),
        ("from gradcheck import nosuchname\n", ImportError, "nosuchname"),
        ("from ._helper import x\n", ZeroDivisionError, "_helper.py:1"),
        ("import sys; sys.path[:0] = [__file__.rpartition('/oracles')[0]]\nfrom kern import scans\n", RuntimeError, "broken.py:2"),
        (
            "from .decay import decay\nfrom gradcheck import SuiteError\nraise SuiteError('op o: no regime')\n",
            SuiteError,
            "op o: no regime",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_error(
    tiny: Path, elsewhere: Path, write, monkeypatch: pytest.MonkeyPatch, text: str, error: type, says: str
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(tiny, {"oracles/broken.py": text, "oracles/_helper.py": "x = 1 / 0\n"})
    with pytest.raises(SuiteError) as caught:
        load([tiny], cwd=elsewhere)
    assert str(tiny / "oracles/broken.py") in str(caught.value)
    assert says in str(caught.value)
    assert isinstance(caught.value.__cause__, error)


def test_a_file_that_is_mended_loads(tiny: Path, elsewhere: Path, write):
    write(tiny, {"reports/broken.py": "1 / 0\n"})
    with pytest.raises(SuiteError, match="ZeroDivisionError"):
        load([tiny], cwd=elsewhere)
    write(tiny, {"reports/broken.py": "fine = 1\n"})
    assert "decay" in load([tiny], cwd=elsewhere).ops


def test_a_file_whose_name_is_no_module_name_is_refused(tiny: Path, elsewhere: Path, write):
    write(tiny, {"mutants/gated-delta.py": ""})
    with pytest.raises(SuiteError, match="'gated-delta' is no module name"):
        load([tiny], cwd=elsewhere)


def test_a_misspelt_op_is_refused_with_the_near_name(tiny: Path, elsewhere: Path):
    suite = load([tiny], cwd=elsewhere)
    assert find_op(suite, "decay") is suite.ops["decay"]
    with pytest.raises(UsageError, match="no op 'decey'; did you mean 'decay'"):
        find_op(suite, "decey")
    with pytest.raises(UsageError, match="no op 'decey'"):
        mutants_of(suite, "decey")


def _texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
