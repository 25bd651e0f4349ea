"""Each kind of rot is found, and a sound suite has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck.suite import Problem, lint, load

EDIT = 'Edit("decay.py", "h = a * h + x", "h = h + x")'


def problems(folder: Path) -> list[Problem]:
    """Those of this folder; the built-in suite has its own test."""
    return [problem for problem in lint(load([folder], cwd=folder)) if str(folder) in problem.where]


def test_a_sound_suite_has_no_problem_and_its_kernels_are_not_imported(tiny: Path):
    assert problems(tiny) == []


def test_the_built_in_suite_is_sound(elsewhere: Path):
    suite = load(cwd=elsewhere)
    assert suite.ops
    assert [str(problem) for problem in lint(suite)] == []


@pytest.mark.parametrize(
    "file, old, new, kind, says",
    [
        ("mutants/decay.py", "h = a * h + x", "h = a * hh + x", "stale", "Nearest is line 2: 'h = a * h + x'"),
        ("kern/scans/decay.py", "h = a * h + x", "h = x + a * h", "stale", "Nearest is line 2: 'h = x + a * h'"),
        ("mutants/decay.py", '"h = a * h + x"', '"h\\n    retrun h"', "stale", r"Nearest is line 2: 'h = a * h + x\n    return h'"),
        (
            "kern/scans/decay.py",
            "return h\n",
            "h = a * h + x\n",
            "ambiguous",
            "matches 2 places in {folder}/kern/scans/decay.py (lines 2, 3)",
        ),
        ("mutants/decay.py", '"h = h + x"', '"h = a * h + x"', "rule", "are the same text: 'h = a * h + x'"),
        ("mutants/decay.py", '"h = a * h + x"', '" "', "rule", "`find` is blank"),
        ("mutants/decay.py", 'op="decay"', 'op="decey"', "missing", "no op 'decey'; did you mean 'decay'"),
        ("mutants/decay.py", 'op="decay"', 'op="decay", variants=("fast",)', "missing", "no variant of decay 'fast'"),
        ("mutants/decay.py", 'op="decay"', 'op="decay", dtypes=("f64",)', "missing", "no dtype of decay 'f64'"),
        ("mutants/decay.py", '{"ops":', '{"oops":', "missing", "no kernel of decay 'oops'; did you mean 'ops'"),
        ("mutants/decay.py", 'Edit("decay.py"', 'Edit("deecay.py"', "missing", "'deecay.py'; did you mean 'decay.py'"),
        ("mutants/decay.py", f'{{"ops": {EDIT}}}', "{}", "rule", "edits no kernel"),
        ("mutants/decay.py", 'why="the gate is loaded and never applied"', 'why=" "', "rule", "`why` is empty"),
        ("mutants/decay.py", 'defect="dropped-term"', 'defect=""', "rule", "`defect` is empty"),
        ("mutants/decay.py", 'seen_in="a test"', 'seen_in=""', "rule", "`seen_in` is empty"),
        ("mutants/decay.py", 'op="decay"', 'op="decay", expect="harmless"', "rule", "expected to be harmless and gives no reason"),
        ("mutants/decay.py", 'op="decay"', 'op="decay", expect="alive"', "rule", "expect is 'alive', need one of killed"),
        ("mutants/decay.py", "drop_decay =", "canary =", "rule", "the name 'canary' has a meaning of its own"),
        ("oracles/decay.py", "Martin & Cundy 2018, eq. 5", "", "rule", "cites no source"),
        ("oracles/decay.py", '"""h_t = a h_{t-1} + x_t."""', "", "rule", "has no docstring; write its equations"),
        ("oracles/_draw.py", '"""Every input random: sees a term that is dropped."""', "", "rule", "the regime 'plain' has no docstring"),
        ("oracles/decay.py", "kern.scans.decay:decay", "nosuchkern.scans:decay", "missing", "there is no module 'nosuchkern'"),
        ("oracles/decay.py", 'sources=("decay.py",)', 'sources=("decay.py", "b.metal")', "missing", "its source 'b.metal' is not in"),
        ("kern/scans/decay.py", "def decay", "import kern.scans.other\ndef decay", "rule", "decay.py:1 imports its own package"),
        ("kern/scans/decay.py", "def decay", "from kern.scans.other import x\ndef decay", "rule", "decay.py:1 imports its own package"),
        ("kern/scans/decay.py", "def decay", "from kern import scans\ndef decay", "rule", "decay.py:1 imports its own package"),
        ("kern/scans/decay.py", "def decay", "from ..scans import other\ndef decay", "rule", "decay.py:1 imports its own package"),
        ("kern/scans/decay.py", "def decay", "def  = decay", "rule", "cannot be parsed"),
    ],
)
def test_each_problem_is_found_and_told(tiny: Path, file: str, old: str, new: str, kind: str, says: str):
    text = (tiny / file).read_text()
    assert old in text
    (tiny / file).write_text(text.replace(old, new, 1))
    found = problems(tiny)
    assert any(problem.kind == kind and says.format(folder=tiny) in problem.what for problem in found), [str(each) for each in found]


@pytest.mark.parametrize(
    "text", ["from .other import x", "from . import other", "from kern import scans2", "import kern", "from .. import y"]
)
def test_an_import_that_stays_in_the_copy_or_leaves_for_elsewhere_is_no_problem(tiny: Path, text: str):
    file = tiny / "kern/scans/decay.py"
    file.write_text(f"{text}\n{file.read_text()}")
    assert problems(tiny) == []


def test_a_kernel_that_requires_what_is_not_here_is_left_out(tiny: Path):
    file = tiny / "oracles/decay.py"
    file.write_text(file.read_text().replace("kern.scans.decay:decay", "nosuchkern.scans:decay"))
    assert [problem.kind for problem in problems(tiny)] == ["missing"]


def test_and_without_its_requirement_it_is_left_out(tiny: Path):
    file = tiny / "oracles/decay.py"
    text = file.read_text().replace("kern.scans.decay:decay", "nosuchkern.scans:decay")
    file.write_text(text.replace('sources=("decay.py",)', 'sources=("decay.py",), requires="nosuchkern"'))
    assert problems(tiny) == []


TRAINED = """
import numpy as np
from gradcheck import Trained

b = Trained(op="decay", through="a", slope=lambda a: a * (1 - a), source="a = sigmoid(b)", axes="D")
"""


def test_what_is_trained_behind_an_input_is_loaded_by_name_and_is_no_problem(tiny: Path):
    (tiny / "oracles/trained.py").write_text(TRAINED)
    (one,) = (one for one in load([tiny], cwd=tiny).trained.values() if one.op == "decay")
    assert (one.id, one.through, one.axes) == ("decay/b", "a", "D")
    assert problems(tiny) == []


@pytest.mark.parametrize(
    "old, new, kind, says",
    [
        ('op="decay"', 'op="decey"', "missing", "no op 'decey'; did you mean 'decay'"),
        ('through="a"', 'through="A"', "missing", "no input of decay with a gradient 'A'"),
        ('axes="D"', 'axes="T"', "missing", "no axis of a 'T'"),
        ("a * (1 - a)", "np.log(a)", "rule", "one finite number per element of a, and is not in the regime 'plain'"),
        ("a * (1 - a)", "a.sum()", "rule", "one finite number per element of a"),
        ("a * (1 - a)", "a.nosuch", "rule", "its slope cannot be had in the regime 'plain': AttributeError"),
        ("a = sigmoid(b)", "", "rule", "cites no source"),
    ],
)
def test_a_trained_input_that_could_not_be_carried_to_is_told(tiny: Path, old: str, new: str, kind: str, says: str):
    assert old in TRAINED
    (tiny / "oracles/trained.py").write_text(TRAINED.replace(old, new, 1))
    found = problems(tiny)
    assert any(problem.kind == kind and says in problem.what for problem in found), [str(each) for each in found]


def test_an_expected_survivor_with_a_reason_is_no_problem(tiny: Path):
    file = tiny / "mutants/decay.py"
    file.write_text(file.read_text().replace('op="decay"', 'op="decay", expect="equivalent", reason="x is zero there"'))
    assert problems(tiny) == []
