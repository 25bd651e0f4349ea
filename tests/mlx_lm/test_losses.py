"""mlx-lm 0.32.2's loss kernels have a data race; a copy with one barrier more has none. The copy is made here, from the installed text."""

from __future__ import annotations

import mlx.core as mx
import pytest

from gradcheck.metal import configured
from gradcheck.metal.settings import SCHEDULES, Schedule
from gradcheck.metal.tapping import Captured
from tests.mlx_lm import losses

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DTYPES = (mx.float32, mx.float16, mx.bfloat16)
READ, WRITE = "max_q = shared[simd_lane_id * 2 + 0];", "shared[simd_group_id * 2 + 0] = sum_exp_q;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", losses.NAMES)
def test_the_shipped_kernel_is_a_race_with_both_lines(name: str, schedule: Schedule, captured: Captured, rows: list[str]):
    kernel = losses.installed(name)
    del captured.launches[:]
    with configured(schedule=schedule):
        found = losses.run(name, mx.float32, kernel)
    races = [finding for finding in captured.findings if finding.kind == "race"]
    assert {READ, WRITE} in [{place.text.strip() for place in finding.places} for finding in races]
    (launched,) = captured.launches
    rows.append(
        f"{name:<12} shipped  {schedule:<10} {len(launched.wrong)} findings, error {max(one.error for one in found):8.1e} of the largest"
    )


@pytest.mark.parametrize("name", losses.NAMES)
def test_the_shipped_kernel_is_wrong_where_one_simdgroup_runs_ahead(name: str, captured: Captured):
    """In order each simdgroup goes on to its next barrier before the others do: what the race permits."""
    assert max(one.ratio for one in losses.run(name, mx.float32, losses.installed(name))) > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).rpartition(".")[2])
@pytest.mark.parametrize("name", losses.NAMES)
def test_the_repaired_kernel_has_no_finding_and_is_right(name: str, dtype: mx.Dtype, captured: Captured, rows: list[str]):
    kernel = losses.repaired(name)
    for schedule in SCHEDULES if dtype == mx.float32 else SCHEDULES[:1]:
        del captured.launches[:]
        with configured(schedule=schedule):
            found = losses.run(name, dtype, kernel)
        (launched,) = captured.launches
        assert launched.findings == ()
        assert {one.name: one.ratio for one in found if not one.ratio <= 1} == {}
        rows += [
            f"{one.name:<18} repaired {schedule:<10} {str(dtype).rpartition('.')[2]:<9} 0 findings, "
            f"error {one.error:8.1e} of the largest, {one.ratio:6.3f} of its bound"
            for one in found
        ]
