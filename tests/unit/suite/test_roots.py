"""Which suites are found, and which of two copies of one is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradcheck import SuiteError, UsageError
from gradcheck.suite import Root, _roots, load
from gradcheck.suite._roots import find_roots


def folders(paths=(), *, cwd: Path) -> list[Path]:
    return [root.path for root in find_roots(paths, cwd)[0] if root.origin == "folder"]


def install(site: Path, write, *, name: str = "Griffin_Kernels", value: str = "griffin.verify") -> Path:
    """A distribution with an entry point, as pip would lay it out."""
    info = f"{name}-1.0.dist-info"
    write(
        site,
        {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/entry_points.txt": f"[gradcheck.suites]\ngriffin = {value}\n",
            "griffin/__init__.py": "raise RuntimeError('finding a suite must not import its parents')\n",
            "griffin/verify/reports/griffin.py": "from gradcheck import Report\nlines = Report('griffin', '.txt', str)\n",
        },
    )
    return site


def test_the_working_directory_is_a_suite_if_it_holds_one(tiny: Path, elsewhere: Path):
    assert folders(cwd=tiny) == [tiny]
    assert folders(cwd=elsewhere) == []


def test_a_lone_reports_folder_in_the_working_directory_is_not_run_unasked(elsewhere: Path, write):
    write(elsewhere, {"reports/monthly.py": "raise RuntimeError('none of our business')\n"})
    assert folders(cwd=elsewhere) == []
    assert folders([elsewhere], cwd=elsewhere) == [elsewhere]


def test_paths_stand_before_the_configuration_and_that_before_the_working_directory(tiny: Path, tmp_path: Path, write):
    other = write(tmp_path / "other", {"oracles/none.py": "", "pyproject.toml": ""})
    write(tiny, {"pyproject.toml": '[tool.gradcheck]\nsuites = ["../other"]\n'})
    assert folders(cwd=tiny) == [other]
    assert folders([tiny], cwd=tiny) == [tiny]
    assert folders([Path("../tiny")], cwd=other) == [tiny]


def test_the_configuration_is_looked_for_upwards(tiny: Path, write):
    write(tiny, {"gradcheck.toml": 'suites = ["."]\n', "deep/er/pyproject.toml": "[project]\nname = 'x'\n"})
    assert folders(cwd=tiny / "deep/er") == [tiny]


def test_a_symlink_a_dot_and_the_absolute_path_are_one_root(tiny: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(tiny)
    paths = [tmp_path / "link", Path(), tiny, tiny / "oracles/.."]
    assert folders(paths, cwd=tiny) == [tiny]
    assert "decay" in load(paths, cwd=tiny).ops


def test_a_folder_that_is_no_suite_is_refused(elsewhere: Path, write):
    with pytest.raises(UsageError, match="has none of the folders oracles, mutants, reports"):
        folders([elsewhere], cwd=elsewhere)
    with pytest.raises(UsageError, match="nosuch: it is not a folder"):
        folders([Path("nosuch")], cwd=elsewhere)
    write(elsewhere, {"gradcheck.toml": 'suites = ["nosuch"]\n'})
    with pytest.raises(UsageError, match=r"nosuch, which .*gradcheck.toml names"):
        folders(cwd=elsewhere)


def test_an_installed_distribution_offers_a_suite(tmp_path: Path, elsewhere: Path, write, monkeypatch: pytest.MonkeyPatch):
    site = install(tmp_path / "site", write)
    monkeypatch.syspath_prepend(site)
    suite = load(cwd=elsewhere)
    assert Root(site / "griffin/verify", "installed", "griffin-kernels") in suite.roots
    assert suite.reports["griffin"].suffix == ".txt"
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    assert "griffin" not in load(cwd=elsewhere).reports


@pytest.mark.parametrize("value, says", [("griffin.nosuch", "there is no such package"), ("griffin", "has none of oracles")])
def test_a_broken_entry_point_names_its_distribution(
    tmp_path: Path, elsewhere: Path, write, monkeypatch: pytest.MonkeyPatch, value: str, says: str
):
    monkeypatch.syspath_prepend(install(tmp_path / "site", write, value=value))
    with pytest.raises(SuiteError) as caught:
        load(cwd=elsewhere)
    assert "'Griffin_Kernels'" in str(caught.value)
    assert says in str(caught.value)
    assert "GRADCHECK_NO_PLUGINS=1" in str(caught.value)


@pytest.mark.parametrize("layout", [".", "src"])
def test_a_checkout_replaces_the_installed_copy_and_says_so(
    tmp_path: Path, elsewhere: Path, write, monkeypatch: pytest.MonkeyPatch, layout: str
):
    site = install(tmp_path / "site", write)
    monkeypatch.syspath_prepend(site)
    text = (site / "griffin/verify/reports/griffin.py").read_text()
    clone = write(
        tmp_path / "clone",
        {"pyproject.toml": "[project]\nname = 'griffin.kernels'\n", f"{layout}/griffin/verify/reports/griffin.py": text},
    )
    mine = (clone / layout / "griffin/verify").resolve()
    suite = load([mine], cwd=elsewhere)
    assert suite.files["griffin"] == str(mine / "reports/griffin.py")
    assert suite.notes == (f"suite griffin-kernels: using the checkout {mine} instead of the installed {site / 'griffin/verify'}",)


def test_another_project_of_the_same_content_is_a_clash_not_a_replacement(
    tmp_path: Path, elsewhere: Path, write, monkeypatch: pytest.MonkeyPatch
):
    site = install(tmp_path / "site", write)
    monkeypatch.syspath_prepend(site)
    text = (site / "griffin/verify/reports/griffin.py").read_text()
    fork = write(tmp_path / "fork", {"pyproject.toml": "[project]\nname = 'fork'\n", "reports/griffin.py": text})
    with pytest.raises(SuiteError, match="report 'griffin' is declared in"):
        load([fork], cwd=elsewhere)


def test_a_suite_among_a_projects_test_data_does_not_replace_the_projects_own(tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch):
    shipped = write(tmp_path / "site/gradcheck/_suite", {"oracles/a.py": ""})
    monkeypatch.setattr(_roots, "builtin_root", lambda: Root(shipped, "built-in", "gradcheck"))
    clone = write(
        tmp_path / "clone", {"pyproject.toml": "[project]\nname = 'gradcheck'\n", "oracles/a.py": "", "tests/hello/oracles/b.py": ""}
    )
    roots, notes = find_roots([clone / "tests/hello"], tmp_path)
    assert (shipped in [root.path for root in roots], notes) == (True, ())
    roots, notes = find_roots([clone], tmp_path)
    assert (shipped in [root.path for root in roots], len(notes)) == (False, 1)


def test_gradcheck_without_its_suite_says_so(tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, {"site/gradcheck/suite/_roots.py": "", "site/reports/strange.py": ""})
    monkeypatch.setattr(_roots, "__file__", os.fspath(tmp_path / "site/gradcheck/suite/_roots.py"))
    with pytest.raises(SuiteError, match="install gradcheck anew"):
        _roots.builtin_root()
