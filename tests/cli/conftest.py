from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from gradcheck import ExitCode, Run
from gradcheck.cli import main
from gradcheck.engine.plan import Request


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Progress:
    stage: Literal["truth", "kernels", "mutants"]
    done: int
    total: int
    label: str
    note: str = ""


@dataclass
class Engine:
    """Stands in for the engine: remembers what it was asked, says what it was told to say, ends as it was told to end."""

    finished: Run
    raises: BaseException | None = None
    says: list[Progress] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)

    def run(self, request: Request, *, folder: Path, tell: Callable[[Progress], None]) -> Run:
        return self._end(request, tell)

    def resume(self, run_id: str | None, *, folder: Path, tell: Callable[[Progress], None]) -> Run:
        return self._end(("resume", run_id), tell)

    def _end(self, asked: object, tell: Callable[[Progress], None]) -> Run:
        self.asked.append(asked)
        for progress in self.says:
            tell(progress)
        if self.raises:
            raise self.raises
        return self.finished


@pytest.fixture
def finished() -> Run:
    return Run("id-1", "gradcheck run --op x", "x", {}, {}, (), (), (), (), 0, 0, 0.1, ExitCode.NOTHING, ("nothing was checked",))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, finished: Run) -> Engine:
    made = Engine(finished)
    module = ModuleType("gradcheck.engine.run")
    vars(module).update(run=made.run, resume=made.resume)
    monkeypatch.setitem(sys.modules, "gradcheck.engine.run", module)
    return made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*args: str) -> Result:
        code = main(args)
        return Result(code, *capsys.readouterr())

    return call
