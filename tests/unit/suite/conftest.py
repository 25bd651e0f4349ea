"""Tiny suites on disk: the op is a diagonal recurrence, h_t = a h_{t-1} + x_t."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ORACLE = '''
from gradcheck import Kernel, op

from ._draw import plain


@op(
    source="Martin & Cundy 2018, eq. 5",
    inputs={"x": "B T D", "a": "D", "h0": "B D"},
    outputs={"h": "B T D", "h_T": "B D"},
    state="h0",
    terms="B D",
    linear="x h0",
    dims={"B": [1, 2], "T": [1, 3], "D": [2]},
    regimes={"plain": plain},
    kernels=[Kernel("ops", "kern.scans.decay:decay", sources=("decay.py",))],
)
def decay(h0, x, a):
    """h_t = a h_{t-1} + x_t."""
    h = a * h0 + x
    return h, (h,)
'''
DRAW = '''
def plain(rng, shapes):
    """Every input random: sees a term that is dropped."""
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}
'''
MUTANT = """
from gradcheck import Edit, Mutant

drop_decay = Mutant(
    op="decay", defect="dropped-term", seen_in="a test", why="the gate is loaded and never applied",
    edits={"ops": Edit("decay.py", "h = a * h + x", "h = h + x")},
)
"""
REPORT = """
from gradcheck import report


@report(suffix=".txt")
def decay_lines(run):
    return run.id
"""
KERNEL = "def decay(x, a, h):\n    h = a * h + x\n    return h\n"

FILES = {
    "oracles/decay.py": ORACLE,
    "oracles/_draw.py": DRAW,
    "mutants/decay.py": MUTANT,
    "reports/lines.py": REPORT,
    "kern/scans/__init__.py": "raise RuntimeError('a lint must not import kernels')\n",
    "kern/scans/decay.py": KERNEL,
}

Write = Callable[..., Path]


@pytest.fixture
def write() -> Write:
    """Write files below a folder and give the folder."""

    def write(folder: Path, files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.fixture
def tiny(tmp_path: Path, write: Write) -> Path:
    """A suite with one op, one mutant and one report, beside the kernel's package."""
    return write(tmp_path / "tiny", FILES)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory that is no suite and has no configuration."""
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"
