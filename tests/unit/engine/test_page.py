from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import gradcheck
from gradcheck import Band, UsageError
from gradcheck.calibrate.page import ops_table
from gradcheck.calibrate.published import Published, Trial
from gradcheck.engine.published import page_of, write_page
from gradcheck.suite import load

HERE = Path(gradcheck.__file__).parents[1] / "reports/published"
BAND = Band("scan", "mlx", "f32", "d x", "l2", 2.0, 8.0, 1.5, 2000.0, "late|token")
ONE = Published(
    "scan",
    "digest",
    4.0,
    (0, 1),
    1.6,
    {},
    (BAND, replace(BAND, metric="z", noise=77.0), replace(BAND, quantity="y"), replace(BAND, dtype="f16", defect=None, weakest="")),
    Trial((10,), 1080, 0, 1372, 0, 0.48),
    {"date": "2026-11-30", "device": "CPU (MLX)", "machine": "x86_64", "mlx": "0.32.4"},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scan.json").write_bytes(msgspec.json.encode(ONE))
    (tmp_path / "scan.self.json").write_text('{"source": "another comparison"}')
    return tmp_path


@pytest.mark.checkout
def test_the_published_page_is_that_of_the_published_bands():
    assert (HERE / "README.md").read_text(encoding="utf-8") == page_of(HERE), (
        'write it anew: python -c "from pathlib import Path; from gradcheck.engine.published import write_page; '
        "write_page(Path('reports/published'))\""
    )


def test_a_gradient_has_noise_tolerance_weakest_defect_and_separation(folder: Path):
    text = page_of(folder)
    assert "| `mlx` | f32 | `d x` | 2 | 1.5 | 8 | 2e+03 | 3.0 | `late\\|token` |" in text
    assert "| `mlx` | f16 | `d x` | 2 | 1.5 | 8 | – | – | – |" in text
    assert text.count("\n| `mlx`") == 2  # gradients only, by one metric
    assert "2026-11-30, CPU (MLX), x86_64: mlx 0.32.4." in text
    assert "0 false alarms in 1,080 clean runs" in text


@pytest.mark.parametrize("alarms, said", [(0, "0 false alarms"), (1, "1 false alarm"), (2, "2 false alarms")])
def test_one_false_alarm_is_one(folder: Path, alarms: int, said: str):
    one = replace(ONE, held=replace(ONE.held, false_alarms=alarms))
    (folder / "scan.json").write_bytes(msgspec.json.encode(one))
    assert f": {said} in 1,080 clean runs" in page_of(folder)
    assert f"| {said} in 1,080, 0 missed" in ops_table([load().ops["mamba2"]], [], [replace(one, op="mamba2")])


def test_a_defect_that_is_no_mutant_is_told_from_one(folder: Path):
    spliced = replace(BAND, weakest="zero (spliced in)")
    (folder / "scan.json").write_bytes(msgspec.json.encode(replace(ONE, bands=(spliced,))))
    assert "`zero` *spliced in* |" in page_of(folder)


def test_the_page_is_written_beside_the_bands_and_follows_them(folder: Path):
    before = write_page(folder).read_text(encoding="utf-8")
    (folder / "delta.json").write_bytes(msgspec.json.encode(replace(ONE, op="delta")))
    assert write_page(folder) == folder / "README.md"
    after = (folder / "README.md").read_text(encoding="utf-8")
    assert after != before
    assert after.index("## delta") < after.index("## scan")


def test_a_file_that_is_no_bands_is_named(folder: Path):
    (folder / "broken.json").write_text('{"op": 3}')
    with pytest.raises(UsageError, match=r"broken\.json.*gradcheck calibrate --op broken"):
        page_of(folder)


@pytest.mark.parametrize("place, said", [("metal-cpu", "measured on `metal-cpu`, which is no GPU."), ("metal", "measured on `metal`.")])
def test_the_page_says_where_a_metal_kernel_was_measured_and_a_cpu_is_no_gpu(folder: Path, place: str, said: str):
    trials = {"mlx": ONE.held, "metal": replace(ONE.held, place=place)}
    (folder / "scan.json").write_bytes(msgspec.json.encode(replace(ONE, trials=trials)))
    assert f"\n`metal` was {said}\n" in page_of(folder)
    assert "`mlx` was measured" not in page_of(folder)
