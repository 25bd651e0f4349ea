"""A composite action, run step by step as GitHub's runner would; steps that use other actions are written down instead."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_HOLE = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)


@dataclass
class Runner:
    """What a run of an action knows and leaves.

    Args:
        action: the action.yml.
        workspace: where the repository is.
        temp: the runner's folder for files that go with the job.
        event: the event as GitHub writes it.
        name: of the event.
        environment: variables beside those of this process.
    """

    action: Path
    workspace: Path
    temp: Path
    event: Mapping[str, Any]
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""

    def run(self, inputs: Mapping[str, str]) -> int:
        """The exit status of the action."""
        declared = yaml.safe_load(self.action.read_text("utf-8"))
        unknown = set(inputs) - set(declared["inputs"])
        assert not unknown, unknown
        self.temp.mkdir(parents=True, exist_ok=True)
        self._inputs = {name: str(one.get("default", "")) for name, one in declared["inputs"].items()} | dict(inputs)
        status = 0
        for step in declared["runs"]["steps"]:
            condition = str(step.get("if", "true"))
            wanted = self._truth(_HOLE.sub(r"\1", condition))
            if not wanted or (status and "cancelled()" not in condition):
                continue
            if "uses" in step:
                self.used[step["uses"].partition("@")[0]] = {key: self._text(value) for key, value in step["with"].items()}
            else:
                status = self._shell(step) or status
        return status

    def summary(self) -> str:
        """What was appended to the summary of the step."""
        path = self.temp / "summary.md"
        return path.read_text("utf-8") if path.exists() else ""

    def _shell(self, step: Mapping[str, Any]) -> int:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], f"{step['name']}: what an expression gives would be run as a program"
        output, event, script = self.temp / "output", self.temp / "event.json", self.temp / "step.sh"
        output.write_text("")
        event.write_text(json.dumps(self.event))
        script.write_text(step["run"])
        github = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_EVENT_NAME": self.name,
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "GITHUB_REPOSITORY": "someone/kernels",
            "GITHUB_BASE_REF": self.event.get("pull_request", {}).get("base", {}).get("ref", ""),
            "RUNNER_TEMP": str(self.temp),
        }
        own = {key: self._text(value) for key, value in step.get("env", {}).items()}
        folder = self.workspace / self._text(step.get("working-directory", "."))
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=folder,
            env={**os.environ, **github, **self.environment, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        self.log += done.stdout
        if "id" in step:
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done.returncode

    def _text(self, value: object) -> str:
        """The value with what its expressions give."""
        return _HOLE.sub(lambda found: str(self._value(found[1])), str(value))

    def _truth(self, expression: str) -> bool:
        """`a == b && c != d`, which is all that the action uses."""
        return all(self._compared(" ".join(part.split())) for part in expression.split("&&"))

    def _compared(self, part: str) -> bool:
        if part in {"true", "!cancelled()"}:
            return True
        left, sign, right = re.fullmatch(r"(\S+) (==|!=) (\S+)", part).groups()  # type: ignore[union-attr]
        return (self._value(left) == self._value(right)) is (sign == "==")

    def _value(self, name: str) -> str:
        if name.startswith("'"):
            return name.strip("'")
        kind, _, rest = name.partition(".")
        if kind == "inputs":
            return self._inputs[rest]
        if kind == "steps":
            step, _, output = rest.partition(".outputs.")
            return self.outputs.get(step, {}).get(output, "")
        assert kind == "github", name
        found: Any = {"event": self.event, "event_name": self.name, "repository": "someone/kernels", "token": "a-token"}
        for key in rest.split("."):
            found = found.get(key, {})
        return str(found or "")
