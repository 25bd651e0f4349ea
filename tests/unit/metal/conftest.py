"""One cache of compiled kernels for all these tests, and no settings from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the processes of one run, and by runs that ask for it: to compile the runtime takes seconds."""
    if chosen := os.environ.get("GRADCHECK_TEST_CACHE_DIR"):
        return Path(chosen)
    session = tmp_path_factory.getbasetemp()
    return (session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "metal"


@pytest.fixture(autouse=True)
def _own_cache(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(compiled))
    for name in ("GRADCHECK_METAL", "GRADCHECK_METAL_SCHEDULE", "GRADCHECK_METAL_SEED", "GRADCHECK_METAL_SECONDS", "GRADCHECK_METAL_CXX"):
        monkeypatch.delenv(name, raising=False)
