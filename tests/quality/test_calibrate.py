"""`gradcheck calibrate` from the command line, on a small suite: what it publishes is what `run` judges by, and a wrong kernel gets nothing approved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gradcheck import ExitCode
from gradcheck.calibrate.published import Published

HELLO = Path(__file__).parents[1] / "testdata" / "hello"
SEEDS = ("--seeds", "0", "--held", "1")


def gradcheck(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "gradcheck", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)


def calibrate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return gradcheck(folder, "calibrate", "--op", "leaky_scan", "--kernel", "plain", *words)


def published(folder: Path) -> Published:
    return msgspec.json.decode((folder / "reports/published/leaky_scan.json").read_bytes(), type=Published)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("calibrated") / "hello"
    shutil.copytree(HELLO, folder)
    return folder, calibrate(folder, *SEEDS)


def test_a_right_kernel_is_calibrated_and_tried_on_seeds_that_set_no_tolerance(calibrated):
    folder, done = calibrated
    assert done.returncode == ExitCode.OK, done.stderr
    made = published(folder)
    assert (made.seeds, made.held.seeds, made.held.false_alarms, made.held.missed) == ((0,), (1,), 0, 0)
    assert made.held.clean > 50
    assert {band.dtype for band in made.bands} == {"f32", "f16"}
    assert all(band.defect > band.tolerance > band.noise for band in made.bands if band.quantity.startswith("d ") and band.metric == "l2")
    assert "0 false alarms" in done.stdout
    assert "drop_decay" in (folder / "reports/published/README.md").read_text("utf-8")


def test_a_run_judges_by_what_was_published_and_leaves_a_mutant_alone_once_it_was_seen(calibrated, tmp_path: Path):
    folder, _ = calibrated
    shutil.copytree(HELLO, tmp_path / "hello")
    words = ("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f32", "--mutants", "drop_decay", "--checks", "none")
    by_them, without = gradcheck(folder, *words), gradcheck(tmp_path / "hello", *words)
    assert (by_them.returncode, without.returncode) == (0, 0), by_them.stdout + without.stdout
    assert ["bands published" in " ".join(done.stdout.split()) for done in (by_them, without)] == [True, False]

    def items(done: subprocess.CompletedProcess[str]) -> int:
        (line,) = (line for line in done.stdout.splitlines() if " items · " in line)
        return int(line.split(" · ")[1].split()[0].replace(",", ""))

    assert items(by_them) < items(without)


def test_a_kernel_that_is_wrong_is_a_false_alarm_at_every_held_out_case(tmp_path: Path):
    folder = tmp_path / "hello"
    shutil.copytree(HELLO, folder)
    kernel = folder / "hello/leaky.py"
    kernel.write_text(kernel.read_text("utf-8").replace("return carried, dx, da", "return 2 * carried, dx, da"), "utf-8")
    done = calibrate(folder, *SEEDS)
    assert done.returncode == ExitCode.INCONCLUSIVE, done.stdout + done.stderr
    made = published(folder)
    assert 0 < made.held.false_alarms <= made.held.clean
    assert f"{made.held.alarms} in {made.held.clean} clean runs" in done.stdout


@pytest.mark.parametrize("words", [("--seeds", "0", "--held", "0"), ("--seeds", "", "--held", "1"), ("--seeds", "0", "--held", "x")])
def test_seeds_that_cannot_be_are_refused_and_nothing_is_written(tmp_path: Path, words: tuple[str, ...]):
    folder = tmp_path / "hello"
    shutil.copytree(HELLO, folder)
    done = calibrate(folder, *words)
    assert done.returncode == ExitCode.USAGE
    assert "seed" in done.stderr or "range" in done.stderr
    assert not (folder / "reports/published").exists()


def test_a_kernel_calibrated_later_must_take_the_seeds_of_the_others(calibrated):
    folder, _ = calibrated
    before = published(folder)
    done = calibrate(folder, "--seeds", "2", "--held", "3")
    assert done.returncode == ExitCode.USAGE
    assert "[0]" in done.stderr
    assert published(folder) == before
