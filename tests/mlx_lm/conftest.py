"""mlx-lm with its Metal kernels on the checked executor, and at the end of the session the table of the worst errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradcheck.metal.tapping import Captured

ROWS: pytest.StashKey[list[str]] = pytest.StashKey()


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    """The tap, within which mlx-lm is imported; a finding is for the tests to look at."""
    if find_spec("mlx_lm") is None:
        pytest.skip("mlx-lm is not installed: nox -s mlx_lm")
    from gradcheck.metal import tap

    with pytest.MonkeyPatch.context() as patch:
        own = Path(os.environ.get("GRADCHECK_TEST_CACHE_DIR") or tmp_path_factory.getbasetemp() / "metal")
        patch.setenv("GRADCHECK_CACHE_DIR", str(own))
        with tap(pretend_gpu=True, keep_going=True, seconds=300.0) as seen:
            yield seen


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[str]:
    """Lines of the table."""
    return request.config.stash.setdefault(ROWS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for i, row in enumerate(terminalreporter.config.stash.get(ROWS, [])):
        if not i:
            terminalreporter.section("mlx-lm's Metal kernels, checked on metal-cpu, against float64")
        terminalreporter.write_line(row)
