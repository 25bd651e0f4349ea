"""`gradcheck gate`: what it compares with, what it asks for, and what it says. Nothing here runs a kernel."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gradcheck import Band, ExitCode, UsageError
from gradcheck.calibrate.published import Published, Trial
from gradcheck.cli import gate_files, gate_text
from gradcheck.engine import gate_judge
from gradcheck.engine.gate import Gated
from gradcheck.engine.gate_patch import Hunk
from gradcheck.engine.gate_terms import terms
from gradcheck.engine.touched import Touched
from gradcheck.suite import Gate


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *identity, *args], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits and nothing to check."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    for text in ("one\n", "two\n"):
        (folder / "README.md").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", text)
    git(folder, "checkout", "-qb", "pr")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    for name in ("FAIL_UNDER", "MAX_SURVIVORS", "SHRINK", "REQUIRE_DEVICE"):
        monkeypatch.delenv(f"GRADCHECK_{name}", raising=False)
    return folder


def test_a_ref_that_does_not_exist_is_named_with_its_neighbours(repo: Path, cli):
    ended = cli("gate", "--base", "mian")
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "no git ref 'mian'; did you mean 'main'" in ended.err


def test_a_ref_cannot_be_an_option(repo: Path, cli):
    assert cli("gate", "--base=--output=x").code == ExitCode.USAGE
    assert not (repo / "x").exists()


def test_a_shallow_clone_is_told_what_to_do(repo: Path, cli, monkeypatch: pytest.MonkeyPatch):
    git(repo, "commit", "-q", "--allow-empty", "-m", "three")
    git(repo.parent, "clone", "-q", "--depth=1", "--no-single-branch", repo.as_uri(), "shallow")
    monkeypatch.chdir(repo.parent / "shallow")
    git(repo.parent / "shallow", "checkout", "-q", "--detach", "HEAD")
    ended = cli("gate", "--base", "origin/main")
    assert ended.code == ExitCode.USAGE
    assert "fetch-depth: 0" in ended.err
    assert "fetch-depth: 0" in cli("gate", "--base", "HEAD~1").err


def test_histories_without_a_common_commit_are_told(repo: Path, cli):
    git(repo, "checkout", "-q", "--orphan", "other")
    git(repo, "commit", "-qm", "other")
    assert "no commit in common" in cli("gate", "--base", "main").err


def test_no_repository_and_no_git_are_told_apart(repo: Path, cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("gate", "--base", "main")
    assert ended.code == ExitCode.USAGE
    assert "not a git repository" in ended.err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no git here" in cli("gate", "--base", "main").err


@pytest.mark.parametrize("committed", [True, False])
def test_a_change_that_touches_nothing_passes_and_names_its_files(repo: Path, cli, committed):
    (repo / "docs").mkdir()
    (repo / "docs" / "new.md").write_text("x\n")
    if committed:
        git(repo, "add", ".")
        git(repo, "commit", "-qm", "docs")
    ended = cli("gate", "--base", "main", "--json")
    assert ended.code == ExitCode.OK
    told = json.loads(ended.out)
    assert (told["exit_code"], told["runs"], told["touched"], told["other_files"]) == (0, [], {}, ["docs/new.md"])
    assert "has nothing to check" in ended.err


def test_files_are_written_where_nothing_is_checked(repo: Path, cli):
    ended = cli("gate", "--base", "main", "--markdown", "g.md", "--sarif", "g.sarif", "--junit", "g.xml")
    assert ended.code == ExitCode.OK
    assert (repo / "g.md").read_text().startswith(gate_text.MARKER)
    assert json.loads((repo / "g.sarif").read_text())["runs"] == []
    assert 'tests="1"' in (repo / "g.xml").read_text()


def test_a_diff_of_another_tree_is_refused(repo: Path, cli):
    (repo / "c.diff").write_text("--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-one\n+three\n")
    ended = cli("gate", "--in-diff", "c.diff")
    assert ended.code == ExitCode.USAGE
    assert "does not lead to the tree" in ended.err


@pytest.mark.parametrize(
    "args, said",
    [
        (["--base", "main", "--in-diff", "x"], "give one of them"),
        (["--in-diff", "nosuch.diff"], "cannot read the diff nosuch.diff"),
        (["--base", "main", "--markdown", "nosuch/g.md"], "there is no folder"),
        (["--base", "main", "--require-device", "metall"], "did you mean 'metal'"),
        (["--base", "main", "--max-survivors", "-1"], "max-survivors"),
        (["--base", "main", "--shrink", "0.5"], "shrink"),
        (["--base", "main", "--fail-under", "nan"], "no limit"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(repo: Path, cli, args: list[str], said: str):
    ended = cli("gate", *args)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert said in ended.err


def test_a_required_device_that_is_missing_is_no_pass(repo: Path, cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gradcheck.engine.environment.device", lambda: "CPU (MLX)")
    monkeypatch.setenv("GRADCHECK_REQUIRE_DEVICE", "metal")
    ended = cli("gate", "--base", "main")
    assert ended.code == ExitCode.INCONCLUSIVE
    assert "required device missing: metal" in ended.out


# What is asked for


def test_the_environment_may_tighten():
    found = terms(Gate(), None, Gate(fail_under=1.0, max_survivors=2), {"GRADCHECK_FAIL_UNDER": "2", "GRADCHECK_MAX_SURVIVORS": "0"})
    assert (found.fail_under, found.max_survivors, found.shrink) == (2.0, 0, 2.0)


@pytest.mark.parametrize(
    "name, value",
    [("FAIL_UNDER", "0.5"), ("MAX_SURVIVORS", "3"), ("SHRINK", "10"), ("FAIL_UNDER", "nan"), ("MAX_SURVIVORS", "all"), ("SHRINK", "0")],
)
def test_the_environment_may_not_loosen(repo: Path, cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(f"GRADCHECK_{name}", value)
    ended = cli("gate", "--base", "main", "--fail-under", "1")
    assert ended.code == ExitCode.USAGE
    assert f"GRADCHECK_{name} is" in ended.err


def test_a_change_that_loosens_its_own_terms_does_not_help_itself():
    base = Gate(max_survivors=0, fail_under=2.0, require_device=("metal",))
    found = terms(Gate(max_survivors=9, shrink=100.0), base, Gate(), {})
    assert (found.fail_under, found.max_survivors, found.shrink, found.devices) == (2.0, 0, 2.0, ("metal",))
    assert len(found.notes) == 3
    tighter = terms(Gate(fail_under=3.0), base, Gate(), {})
    assert (tighter.fail_under, tighter.notes) == (3.0, ())


def test_the_base_config_is_read_from_the_base(repo: Path, cli):
    (repo / "gradcheck.toml").write_text("[gate]\nmax-survivors = 0\nfail-under = 1.0\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "configure")
    git(repo, "branch", "-f", "main")
    (repo / "gradcheck.toml").write_text("[gate]\nmax-survivors = 9\n")
    told = json.loads(cli("gate", "--base", "main", "--json").out)
    assert (told["terms"]["max_survivors"], told["terms"]["fail_under"]) == (0, 1.0)
    assert any("loosens max-survivors from 0 to 9" in note for note in told["notes"])


# What is worse than the base


def published(separation: float, tolerance: float = 2.0) -> Published:
    band = Band("x", "plain", "f32", "d a", "l2", 1.0, tolerance, 0.5, separation, "m")
    return Published("x", "", 4.0, (0,), 0.5, {}, (band,), Trial((1,), 1, 0, 1, 0, 0.5), {})


def test_bands_that_a_change_loosens_are_seen():
    assert list(gate_judge.loosened(published(1000), published(600), 2)) == []
    ((code, text),) = gate_judge.loosened(published(1000), published(400), 2)
    assert code is ExitCode.SURVIVORS
    assert "shrank from 3.00 to 2.60 decades" in text
    ((_, text),) = gate_judge.loosened(published(1000), published(1000, tolerance=100.0), 2)
    assert "more than 4 times its noise" in text
    ((_, text),) = gate_judge.loosened(published(1000, tolerance=1.0), published(1000, tolerance=3.9), 2)
    assert "grew from 1 to 3.9" in text


def gated(**changes: object) -> Gated:
    plain: dict[str, object] = {
        "exit_code": ExitCode.WRONG,
        "reasons": (),
        "compared": "base x",
        "touched": Touched({"x": ("k.py is of the kernel plain",)}, sources={"x": ("k.py",)}),
        "files": {"k.py": (Hunk(7, ("a",), 7, 9),)},
        "runs": (),
        "stale": {},
        "notes": (),
        "terms": terms(Gate(), None, Gate(), {}),
        "root": Path("/repo"),
    }
    return Gated(**plain | changes)  # type: ignore[arg-type]


def log(results: list[tuple[str, str, str]]) -> str:
    location = [{"physicalLocation": {"artifactLocation": {"uri": "k.py"}, "region": {"startLine": 1}}}]
    told = [{"ruleId": rule, "level": level, "message": {"text": text}, "locations": location} for rule, level, text in results]
    return json.dumps({"runs": [{"automationDetails": {"id": "gradcheck/x/"}, "results": told}]})


def test_annotations_are_ten_at_most_the_worst_first():
    many = [("survivor", "warning", f"w{n}") for n in range(9)] + [("wrong-gradient", "error", f"e{n}") for n in range(3)]
    rows = gate_files.marks(gated(), [log(many)])
    assert len(rows) == 10
    assert [row.split("::")[-1] for row in rows[:4]] == ["e0", "e1", "e2", "w0"]
    assert rows[-1].endswith("::and 3 more; the summary of this step has them all")
    assert len(gate_files.marks(gated(), [log(many[:10])])) == 10


def test_what_is_wrong_with_a_kernel_stands_at_its_changed_lines_and_a_survivor_at_its_edit():
    wrong, survivor = gate_files.marks(gated(), [log([("wrong-gradient", "error", "x"), ("survivor", "warning", "y")])])
    assert wrong.startswith("::error file=k.py,line=7,endLine=9,")
    assert survivor.startswith("::warning file=k.py,line=1,endLine=1,")


def test_a_text_cannot_begin_a_command_of_its_own():
    (row,) = gate_files.marks(gated(), [log([("survivor", "warning", "a\n::set-output name=x::y\r% \x1b[31m")])])
    assert "\n" not in row
    assert "\r" not in row
    assert "\x1b" not in row
    assert "a%0A::set-output" in row
    assert gate_files.Note("error", "a,b:c", 1, 1, "t", "x").__str__().startswith("::error file=a%2Cb%3Ac,")


def test_a_comment_fits_and_holds_no_markup_of_strangers():
    reasons = tuple(f"<script>alert(1)</script> @everyone | `x` {'y' * 5000} {n}" for n in range(40))
    text = gate_text.markdown(gated(reasons=reasons), lambda run, limit: "")
    assert len(text.encode()) <= 65_536
    assert "<script>" not in text
    assert "@everyone" not in text


def test_junit_fails_where_the_gate_does():
    import xml.etree.ElementTree as ET

    assert ET.fromstring(gate_files.junit([], gated(reasons=("a \x00 b",)))).get("failures") == "1"
    assert ET.fromstring(gate_files.junit([], gated(exit_code=ExitCode.OK))).get("failures") == "0"


def test_a_device_is_one_that_exists():
    with pytest.raises(UsageError, match="no device 'cuda'"):
        terms(Gate(require_device=("cuda",)), None, Gate(), {})
