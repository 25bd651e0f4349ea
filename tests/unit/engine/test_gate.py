"""How the gate decides: what it adds up, what it allows, and what a change took out of a suite. No kernel runs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck import Evidence, ExitCode, MutantVerdict, Outcome, Run, Verdict, WorkItem
from gradcheck.engine.gate import _decided, _Ran, _unseen
from gradcheck.engine.gate_base import changed_since, find_base
from gradcheck.engine.gate_change import Change
from gradcheck.engine.gate_terms import terms
from gradcheck.engine.gate_weaker import Weaker, weaker
from gradcheck.engine.touched import Touched
from gradcheck.suite import Gate, load

ITEM = WorkItem("one", "plain", "one/B1,T1/f32/draw/0")
SURVIVED = Run(
    "id", "", "one", {}, {}, (), (MutantVerdict("plain", "m", "", "full", Outcome.SURVIVED),), (), (), 1, 1, 1.0, ExitCode.SURVIVORS,
    ("1 row of the kill table survived: m",),
)  # fmt: skip
FOUND = Touched({"one": ("k.py is of the kernel plain",)}, kernels={"one": ("plain",)})


def decide(run: Run, *, allowed: int = 0, less: Weaker | None = None, findings=(), stale=None):
    rules = terms(Gate(), None, Gate(max_survivors=allowed), {})
    change = Change(Path("/repo"), {}, "base x")
    return _decided(change, rules, FOUND, less or Weaker(), (), [_Ran(run, list(findings))], stale or {}, ())


def test_survivors_fail_unless_so_many_are_allowed():
    assert decide(SURVIVED).exit_code is ExitCode.SURVIVORS
    passed = decide(SURVIVED, allowed=1)
    assert (passed.exit_code, passed.runs[0].exit_code, passed.runs[0].reasons) == (ExitCode.OK, ExitCode.OK, ())
    assert "1 mutants survive and 0 were taken out; 1 are allowed" in passed.notes


def test_a_mutant_that_is_taken_out_counts_as_one_that_survives():
    less = Weaker(mutants=(("one", "gone", "plain"), ("one", "gone", "other")))
    fine = replace(SURVIVED, kills=(), exit_code=ExitCode.OK, reasons=())
    assert decide(fine, less=less).exit_code is ExitCode.SURVIVORS
    assert decide(fine, less=less, allowed=1).exit_code is ExitCode.OK
    assert decide(SURVIVED, less=less, allowed=1).exit_code is ExitCode.SURVIVORS


def test_an_allowed_survivor_allows_nothing_else():
    shrank = (ExitCode.SURVIVORS, "d a: the separation shrank")
    found = decide(SURVIVED, allowed=1, findings=[shrank])
    assert (found.exit_code, found.runs[0].reasons) == (ExitCode.SURVIVORS, (shrank[1],))
    wrong = replace(SURVIVED, exit_code=ExitCode.WRONG, reasons=("kernel plain is wrong",))
    assert decide(wrong, allowed=1, findings=[shrank]).exit_code is ExitCode.WRONG


def test_a_kernel_that_the_change_touches_and_that_cannot_run_here_is_no_pass():
    rules = terms(Gate(), None, Gate(), {})
    absent = replace(SURVIVED, not_run={"plain": "needs an Apple GPU", "other": "needs an Apple GPU"})
    ((code, text),) = _unseen(absent, rules, FOUND)
    assert code is ExitCode.INCONCLUSIVE
    assert text.startswith("kernel plain, which this change touches, was not run")


def test_a_kernel_that_ran_on_the_cpu_does_not_do_where_a_gpu_is_required():
    rules = terms(Gate(), None, Gate(require_device=("metal",)), {})
    runs = {
        place: replace(SURVIVED, verdicts=(Verdict(ITEM, Outcome.PASSED, "", Evidence(ITEM, "measured", place=place)),))
        for place in ("", "metal", "metal-cpu", "metal-cpu + metal")
    }
    assert [place for place, run in runs.items() if _unseen(run, rules, FOUND)] == ["metal-cpu"]


OP = """
from gradcheck import Kernel, op
def draw(rng, shapes):
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}
def other(rng, shapes):
    return draw(rng, shapes)
@op(source="x", inputs={"h": "B", "x": "B T"}, outputs={"y": "B T", "h_T": "B"}, state="h", terms="B", linear="h x",
    dims={"B": (1, 2), "T": (1, 5)}, regimes={"draw": draw, "other": other},
    kernels=[Kernel("plain", "k.py:f", sources=("k.py",)), Kernel("second", "k.py:g", sources=("k.py",))])
def one(h, x):
    "h_t = h + x."
    return h + x, (h + x,)
"""
MUTANTS = """
from gradcheck import Edit, Mutant
first = Mutant(op="one", defect="x", why="x", seen_in="x", edits={"plain": Edit("k.py", "a", "b"), "second": Edit("k.py", "c", "d")})
last = Mutant(op="one", defect="x", why="x", seen_in="x", edits={"plain": Edit("k.py", "e", "f")})
"""


def git(folder: Path, *args: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *args], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def suite_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a change that rewrites these files takes out of the suite."""
    base = {
        "gradcheck.toml": "suites = ['.']\n",
        "oracles/one.py": OP,
        "mutants/one.py": MUTANTS,
        "k.py": "f = g = 0\n",
        ".gitignore": "scratch\n",
    }
    root = tmp_path / "repo"
    for name, text in base.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "base")
    monkeypatch.chdir(root)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")

    def compare(name: str, text: str | None) -> Weaker:
        if text is None:
            (root / name).unlink()
        else:
            (root / name).write_text(text)
        found = find_base(root, "main")
        return weaker(found, load(), tuple(changed_since(found)), root / "scratch")

    return compare


def test_a_change_that_leaves_the_suite_alone_takes_out_nothing(suite_at):
    assert suite_at("k.py", "f = g = 1\n") == Weaker()


def test_an_edit_that_is_taken_out_is_told_with_its_kernel(suite_at):
    less = suite_at("mutants/one.py", MUTANTS.replace(', "second": Edit("k.py", "c", "d")', ""))
    assert (less.mutants, less.new) == ((("one", "first", "second"),), frozenset())


def test_a_mutant_with_another_name_or_another_text_is_not_taken_out(suite_at):
    renamed = MUTANTS.replace("last =", "latest =").replace('"a", "b"', '"a2", "b2"')
    less = suite_at("mutants/one.py", renamed)
    assert (less.mutants, less.new) == ((), frozenset())


def test_a_new_mutant_is_told_from_those_that_the_base_has(suite_at):
    new = 'more = Mutant(op="one", defect="x", why="x", seen_in="x", edits={"plain": Edit("k.py", "g", "h")})\n'
    assert suite_at("mutants/one.py", MUTANTS + new).new == {("one/more", "plain")}


def test_all_mutants_of_a_file_that_is_gone_are_taken_out(suite_at):
    assert len(suite_at("mutants/one.py", None).mutants) == 3


def test_a_kernel_and_an_op_that_are_gone_are_told(suite_at):
    less = suite_at("oracles/one.py", OP.replace(', Kernel("second", "k.py:g", sources=("k.py",))', ""))
    assert (less.gone, less.mutants) == (("kernel second of one",), ())
    assert suite_at("oracles/one.py", None).gone == ("op one",)


def test_cases_that_are_taken_out_and_declarations_that_are_softened_are_told(suite_at):
    fewer = suite_at("oracles/one.py", OP.replace('"T": (1, 5)', '"T": (1,)').replace(', "other": other', ""))
    assert fewer.notes == ("one is checked at less than in the base: regime other, T = 5 taken out",)


def test_a_mutant_that_is_declared_harmless_is_told(suite_at):
    less = suite_at("mutants/one.py", MUTANTS.replace('"e", "f")}', '"e", "f")}, expect="harmless", reason="no one reads it"'))
    assert less.notes == ("mutant one/last was expected to be killed and is now declared harmless: no one reads it",)


def test_a_base_that_cannot_be_loaded_is_told(suite_at):
    root = Path.cwd()
    (root / "oracles" / "one.py").write_text("import no_such_module\n")
    git(root, "commit", "-qam", "break")
    less = suite_at("oracles/one.py", OP)
    assert "the base's suite cannot be loaded" in less.notes[0]
