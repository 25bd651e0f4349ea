"""Where a kernel's package lies, found without importing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradcheck import UsageError
from gradcheck.suite import kernel_package

BOOM = "raise RuntimeError('locating a kernel must not import it')\n"


@pytest.fixture
def site(tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "locpkg/__init__.py": BOOM,
        "locpkg/scan/__init__.py": BOOM,
        "locpkg/scan/mlx.py": BOOM,
        "locpkg/scan/scan.py": BOOM,
        "locpkg/bare/deep/mlx.py": BOOM,  # folders without __init__.py
        "locmodule.py": BOOM,
    }
    monkeypatch.syspath_prepend(write(tmp_path / "site", files))
    return tmp_path / "site"


@pytest.mark.parametrize(
    "target, folder, name",
    [
        ("locpkg.scan.mlx:f", "locpkg/scan", "locpkg.scan"),
        ("locpkg.scan.scan:f", "locpkg/scan", "locpkg.scan"),
        ("locpkg.scan:f", "locpkg/scan", "locpkg.scan"),
        ("locpkg:f", "locpkg", "locpkg"),
        ("locpkg.bare.deep.mlx:f", "locpkg/bare/deep", "locpkg.bare.deep"),
    ],
)
def test_an_installed_package_is_found_and_not_imported(site: Path, target: str, folder: str, name: str):
    assert kernel_package(target, None).folder == site / folder
    assert kernel_package(target, None).name == name
    assert not [module for module in sys.modules if module.startswith("locpkg")]


@pytest.mark.parametrize("base", [".", "src"])
def test_a_checkout_wins_over_the_installed_package(site: Path, tmp_path: Path, write, base: str):
    clone = write(tmp_path / "clone", {f"{base}/locpkg/scan/mlx.py": BOOM})
    assert kernel_package("locpkg.scan.mlx:f", clone).folder == (clone / base / "locpkg/scan").resolve()
    assert kernel_package("locpkg.scan.scan:f", clone).folder == site / "locpkg/scan"  # the clone has no such file


def test_a_file_is_relative_to_its_suite(tmp_path: Path, write):
    write(tmp_path, {"kern/scan.py": BOOM})
    assert kernel_package("kern/scan.py:f", tmp_path).folder == tmp_path / "kern"
    with pytest.raises(UsageError, match=r"there is no file .*kern/nosuch.py"):
        kernel_package("kern/nosuch.py:f", tmp_path)


@pytest.mark.parametrize(
    "target, says",
    [
        ("no.such:thing", "no module 'no'"),
        ("locpkg.nosuch.mlx:f", "no module 'locpkg.nosuch'"),
        ("locpkg.scan.mlx.deeper:f", "no module 'locpkg.scan.mlx.deeper'"),
        ("locmodule:f", "'locmodule' is in no package"),
        ("sys:exit", "'sys' is in no package"),
        ("__main__.x:f", "no module '__main__"),
        ("..:f", "no module ''"),
        ("locpkg.scan.mlx", "is neither"),
        ("locpkg.scan.mlx:", "is neither"),
        (":f", "is neither"),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_target_that_leads_nowhere_is_refused(target: str, says: str):
    with pytest.raises(UsageError, match=says) as caught:
        kernel_package(target, None)
    assert repr(target) in str(caught.value)
