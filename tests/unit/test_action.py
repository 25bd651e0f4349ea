"""action.yml and the example workflows: what a pull request can write is never run, what is used is pinned, and the steps do their work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gradcheck
from gradcheck.cli._main import verbs
from tests.github_runner import Runner

pytestmark = pytest.mark.checkout

ROOT = Path(gradcheck.__file__).parents[1]
ACTION = ROOT / "action.yml"
WORKFLOWS = sorted((ROOT / "examples" / "workflows").glob("*.yml"))
PLACEHOLDER = "OWNER/gradcheck@0000000000000000000000000000000000000000"

GH = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["FAKE_GH"])
body = next((pathlib.Path(word.partition("@")[2]).read_text() for word in sys.argv if word.startswith("body=@")), None)
with (folder / "calls.jsonl").open("a") as file:
    file.write(json.dumps({{"args": sys.argv[1:], "body": body, "token": os.environ.get("GH_TOKEN", "")}}) + chr(10))
if "--jq" in sys.argv:
    print((folder / "known").read_text() if (folder / "known").exists() else "")
"""


def steps(file: Path) -> list[dict]:
    found = yaml.safe_load(file.read_text("utf-8"))
    jobs = [found["runs"]] if "runs" in found else found["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("file", [ACTION, *WORKFLOWS], ids=lambda file: file.name)
def test_no_expression_stands_in_a_script(file: Path):
    assert [step["name"] for step in steps(file) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("file", [ACTION, *WORKFLOWS], ids=lambda file: file.name)
def test_what_is_used_is_pinned_by_its_hash(file: Path):
    used = [step["uses"] for step in steps(file) if "uses" in step]
    assert [one for one in used if not re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", one)] == []


def test_an_action_is_pinned_to_one_commit_everywhere():
    used = {tuple(step["uses"].split("@")) for file in (ACTION, *WORKFLOWS) for step in steps(file) if "uses" in step}
    assert len({name for name, _ in used}) == len(used)


def test_workflows_ask_for_no_right_they_do_not_need():
    for file in WORKFLOWS:
        found = yaml.safe_load(file.read_text("utf-8"))
        assert found["permissions"] == {}, file
        rights = {key: value for job in found["jobs"].values() for key, value in job["permissions"].items()}
        assert rights.get("contents", "read") == "read", file


def test_workflows_give_inputs_that_the_action_has():
    known = set(yaml.safe_load(ACTION.read_text("utf-8"))["inputs"])
    given = [(file.name, set(step["with"])) for file in WORKFLOWS for step in steps(file) if step.get("uses") == PLACEHOLDER]
    assert {name for name, _ in given} == {"basic.yml", "in-diff.yml", "mac.yml"}
    assert [(name, keys - known) for name, keys in given if keys - known] == []


def test_the_action_gives_options_that_the_gate_has():
    with verbs.make_context("gradcheck", ["gate"]) as parent:
        command = verbs.get_command(parent, "gate")
    known = {option for param in command.params for option in param.opts}
    script = next(step["run"] for step in steps(ACTION) if step.get("id") == "gate")
    given = set(re.findall(r"(--[a-z-]+)", script))
    assert given >= {"--base", "--in-diff", "--fail-under", "--max-survivors", "--require-device", "--time-budget", "--markdown"}
    assert given - known == set()


def git(folder: Path, *args: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *args], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """The action, on a pull request that touches nothing, in a clone as actions/checkout makes one."""
    origin, clone, tools = tmp_path / "origin", tmp_path / "clone", tmp_path / "bin"
    for folder in (origin, tools):
        folder.mkdir()
    git(origin, "init", "-q")
    (origin / "README.md").write_text("a\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "base")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    (clone / "README.md").write_text("b\n")
    git(clone, "commit", "-qam", "docs")
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    environment = {
        "PYTHONPATH": str(ROOT),
        "FAKE_GH": str(tmp_path),
        "GRADCHECK_CACHE_DIR": str(tmp_path / "cache"),
        "GRADCHECK_NO_PLUGINS": "1",
    }
    pull = {"number": 7, "base": {"ref": "main"}, "head": {"repo": {"full_name": "someone/kernels"}}}
    return Runner(ACTION, clone, tmp_path / "temp", {"pull_request": pull}, "pull_request", environment)


INPUTS = {"install": "", "python": sys.executable}


def calls(runner: Runner) -> list[dict]:
    file = Path(runner.environment["FAKE_GH"]) / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_change_that_touches_nothing_passes_and_says_so(runner: Runner):
    assert runner.run(INPUTS) == 0, runner.log
    assert runner.outputs["gate"]["exit-code"] == "0"
    assert "has nothing to check" in runner.summary()
    assert set(runner.used) == {"actions/upload-artifact"}
    assert calls(runner) == []


def test_a_comment_is_written_once_and_then_rewritten(runner: Runner):
    inputs = {**INPUTS, "comment": "true", "sarif": "true"}
    assert runner.run(inputs) == 0, runner.log
    look, post = calls(runner)
    assert look["args"][-2] == "--jq"
    assert post["args"][2:5] == ["--method", "POST", "repos/someone/kernels/issues/7/comments"]
    assert post["body"].startswith("<!-- gradcheck gate: gradcheck -->\n")
    assert post["token"] == "a-token"
    assert "github/codeql-action/upload-sarif" not in runner.used  # there is nothing in it
    (Path(runner.environment["FAKE_GH"]) / "known").write_text("41\n")
    assert runner.run(inputs) == 0, runner.log
    assert calls(runner)[-1]["args"][2:5] == ["--method", "PATCH", "repos/someone/kernels/issues/comments/41"]


def test_a_fork_gets_no_comment(runner: Runner):
    runner.event["pull_request"]["head"]["repo"]["full_name"] = "stranger/kernels"
    assert runner.run({**INPUTS, "comment": "true"}) == 0, runner.log
    assert calls(runner) == []


def test_the_gate_decides_after_all_else_is_done(runner: Runner):
    assert runner.run({**INPUTS, "comment": "true", "base": "origin/mian"}) == 2
    assert "did you mean 'origin/main'" in runner.log
    assert "actions/upload-artifact" in runner.used


@pytest.mark.parametrize("name", ["a b", "$(touch here)", "<!--"])
def test_a_name_that_could_be_more_than_a_name_is_refused(runner: Runner, name: str):
    assert runner.run({**INPUTS, "name": name}) == 2
    assert not (runner.workspace / "here").exists()


def test_what_a_pull_request_names_is_one_word_of_the_command(runner: Runner):
    assert runner.run({**INPUTS, "base": "origin/main; touch here"}) == 2
    assert "no git ref 'origin/main; touch here'" in runner.log
    assert not (runner.workspace / "here").exists()
