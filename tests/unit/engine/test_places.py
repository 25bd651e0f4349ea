from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck import Evidence, ExitCode, MutantVerdict, Outcome, Run, Verdict, WorkItem
from gradcheck.engine.places import places
from gradcheck.suite import load

ROOT = Path(__file__).parents[3]


def run_of(*kernels: str) -> Run:
    items = [WorkItem("ssm_scan", kernel, "ssm_scan/B1,T2/f32/typical/0") for kernel in kernels]
    verdicts = tuple(Verdict(item, Outcome.FAILED, "", Evidence(item, "raised")) for item in items)
    return Run("id", "", "ssm_scan", {}, {}, verdicts, (), (), (), 1, 1, 0.0, ExitCode.WRONG, ())


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    return load([])


def test_a_kernel_of_the_suite_is_found_at_its_definition(suite):
    folder, file, line = places(run_of("mlx"), suite, Path("/nowhere"))["mlx"]
    source = Path(folder, file)
    assert source.name == "mlx.py"
    target = next(kernel.target for kernel in suite.ops["ssm_scan"].kernels if kernel.name == "mlx")
    assert target.rpartition(":")[2] in source.read_text().splitlines()[line - 1]


def test_a_strangers_file_is_named_from_the_working_directory(suite, tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k/scan.py").write_text("import math\n\n\ndef scan(x):\n    return x\n\n\nother = scan\n")
    found = places(run_of("k/scan.py:scan", "k/scan.py:other.best", "k/scan.py:made_elsewhere"), suite, tmp_path)
    assert found == {
        "k/scan.py:scan": ("k", "scan.py", 4),
        "k/scan.py:other.best": ("k", "scan.py", 8),
        "k/scan.py:made_elsewhere": ("k", "scan.py", 1),
    }


@pytest.mark.parametrize("kernel", ["gone.py:scan", "no.such.module:scan", "nonsense", "broken.py:scan"])
def test_a_kernel_that_cannot_be_found_is_left_out(suite, tmp_path, kernel):
    (tmp_path / "broken.py").write_text("def scan(:\n")
    assert places(run_of(kernel), suite, tmp_path) == {}


def test_a_kernel_that_only_has_mutants_is_found_too(suite):
    row = MutantVerdict("mlx", "m", "", "full", Outcome.SURVIVED)
    assert "mlx" in places(replace(run_of(), kills=(row,)), suite, ROOT)


def test_nothing_is_imported(suite, tmp_path):
    (tmp_path / "loud.py").write_text("raise SystemExit(3)\ndef scan(): ...\n")
    assert places(run_of("loud.py:scan"), suite, tmp_path) == {"loud.py:scan": (".", "loud.py", 2)}
