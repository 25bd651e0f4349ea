"""`pytest --gradcheck`: every kernel at every case, every check and every mutant as an item of pytest.

Loaded by every pytest of an environment that has gradcheck. So nothing heavy is imported until it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradcheck.suite import Suite
    from gradcheck.testing._session import Done, Session, Task

NOTHING = 5
"""Exit status of a run in which nothing was compared: as of `gradcheck run`, and of a pytest that collected nothing."""

LOOKS = 3
"""Failures of one kernel that are looked at closely in one process; the others have one line and the command that looks."""

_COMPARED = "gradcheck compared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; the names are those of `gradcheck run`."""
    group = parser.getgroup("gradcheck", "gradients of kernels")
    group.addoption("--gradcheck", action="store_true", help="Check the kernels of your suite, or of the --gradcheck-op given.")
    group.addoption("--gradcheck-op", action="append", default=[], metavar="NAME", help="Check this op; may be repeated.")
    group.addoption("--gradcheck-kernel", action="append", default=[], metavar="NAME|TARGET", help="Check this kernel; may be repeated.")
    group.addoption("--gradcheck-mutants", default="all", metavar="all|none|NAME,…", help="Which defects to plant.  [default: all]")
    group.addoption("--gradcheck-checks", default="all", metavar="all|none|NAME,…", help="Which checks to make.  [default: all]")
    group.addoption("--gradcheck-cases", default=0, type=int, metavar="N", help="So many cases a branch.  [default: the whole grid]")
    group.addoption("--gradcheck-timeout", default=60.0, type=float, metavar="SECONDS", help="Limit for one case.  [default: 60]")


def pytest_configure(config: pytest.Config) -> None:
    """Plan what is asked for, so that a name that does not exist is an error before anything runs."""
    config.addinivalue_line("markers", "gradcheck: a kernel at a case, or a mutant; made by `pytest --gradcheck`")
    if config.getoption("gradcheck"):
        config.pluginmanager.register(_Plugin(config), "gradcheck session")
    elif given := [name for name in ("op", "kernel") if config.getoption(f"gradcheck_{name}")]:
        raise pytest.UsageError(f"--gradcheck-{given[0]} does nothing without --gradcheck")


@pytest.fixture(scope="session")
def gradcheck_suite(pytestconfig: pytest.Config) -> Suite:
    """The suite that the folder of this run stands for: its ops, mutants and reports, by name."""
    from gradcheck.suite import load

    return load(cwd=pytestconfig.invocation_params.dir)


class WrongKernel(Exception):
    """An item's failure; its text is what is printed."""


class _Plugin:
    """What a run with `--gradcheck` needs. With xdist every worker has one, and so has the controller, which only counts."""

    def __init__(self, config: pytest.Config) -> None:
        from gradcheck._errors import GradcheckError
        from gradcheck.testing._session import Wanted, open_session

        option = config.getoption
        if (count := option("gradcheck_cases")) < 0 or not (option("gradcheck_timeout") > 0):
            raise pytest.UsageError(f"--gradcheck-cases {count}, --gradcheck-timeout {option('gradcheck_timeout')}: need positive numbers")
        wanted = Wanted(
            ops=tuple(option("gradcheck_op")),
            kernels=tuple(option("gradcheck_kernel")),
            mutants=option("gradcheck_mutants"),
            checks=option("gradcheck_checks"),
            cases=str(count or ""),
            timeout=option("gradcheck_timeout"),
        )
        try:
            self.session: Session = open_session(wanted, config.invocation_params.dir)
        except GradcheckError as error:
            raise pytest.UsageError(f"gradcheck: {error}") from error
        self.compared = 0
        self.looked: dict[tuple[str, str], int] = {}
        self.folder: Path = config.invocation_params.dir

    @pytest.hookimpl(tryfirst=True)  # before -k, -m and --lf choose among them
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items, after those of the project."""
        from gradcheck.testing._session import tasks

        root = _Group.from_parent(session, name="gradcheck", nodeid="gradcheck")
        groups: dict[tuple[str, ...], _Group] = {(): root}
        for task in tasks(self.session):
            for path in ((task.op,), (task.op, task.kernel)):
                if path not in groups:
                    groups[path] = groups[path[:-1]].below(path[-1])
            above = groups[task.op, task.kernel]
            items.append(_Item.from_parent(above, name=task.name, task=task, plugin=self))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what was compared; the controller of xdist hears of it here too."""
        if report.when == "call":
            self.compared += sum(int(str(value)) for name, value in report.user_properties if name == _COMPARED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the worker. A run that has compared nothing has failed, whatever else passed."""
        self.session.close()
        if (
            exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
            and not self.compared
            and not _only_collects(session.config)
        ):
            session.exitstatus = NOTHING

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """What was compared, what could not run here, and whether there was anything."""
        skipped = [report for report in terminalreporter.stats.get("skipped", []) if report.nodeid.startswith("gradcheck::")]
        if _only_collects(config):
            return
        terminalreporter.section("gradcheck")
        for reason in dict.fromkeys(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)):
            terminalreporter.write_line(f"not compared: {reason.removeprefix('Skipped: ')}")
        if self.compared:
            terminalreporter.write_line(f"{self.compared} comparisons")
        else:
            terminalreporter.write_line("nothing was compared, which is no pass", red=True)


class _Group(pytest.Collector):
    """A part of a node id: `gradcheck`, an op, or a kernel."""

    def below(self, name: str) -> _Group:
        """The group of this name in it."""
        group: _Group = _Group.from_parent(self, name=name)
        return group

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Nothing: the items are made in one go."""
        return ()


class _Item(pytest.Item):
    """A kernel at a case, a check of it, or a mutant of it."""

    def __init__(self, *, task: Task, plugin: _Plugin, **rest: Any) -> None:  # noqa: ANN401 - pytest's own
        super().__init__(**rest)
        self.task, self.plugin = task, plugin
        self.add_marker("gradcheck")

    def runtest(self) -> None:
        """Make the comparison in a worker, and say what became of it."""
        done = self.plugin.session.run(self.task)
        self.user_properties.append((_COMPARED, str(done.compared)))
        if done.outcome == "skipped":
            pytest.skip(done.why)
        if done.outcome == "failed":
            raise WrongKernel("\n".join(self._explained(done)))

    def _explained(self, done: Done) -> Iterator[str]:
        """The reason; what `gradcheck replay` prints of it; and how to have that again."""
        yield done.why
        if done.item is None:
            return
        which = self.task.op, self.task.kernel
        self.plugin.looked[which] = self.plugin.looked.get(which, 0) + 1
        if self.plugin.looked[which] <= LOOKS:
            yield from ("", self._close(done))
        import shlex

        mutant = ["--mutant", done.item.mutant] if done.item.mutant else []
        yield f"\nreplay     {shlex.join(['gradcheck', 'replay', done.item.case, '--kernel', done.item.kernel, *mutant])}"

    def _close(self, done: Done) -> str:
        import contextlib

        from gradcheck._errors import GradcheckError
        from gradcheck.engine.closeup import closeup
        from gradcheck.testing._told import told

        assert done.item is not None
        with contextlib.chdir(self.plugin.folder):
            try:
                seen = closeup(
                    done.item.case, kernel=done.item.kernel, mutant=done.item.mutant, timeout=self.plugin.session.limits.seconds or 60.0
                )
            except GradcheckError as error:
                return f"no closer look: {error}"
        return "\n".join(told(seen))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401 - pytest's own
        """The text of a wrong kernel, without a traceback through pytest."""
        return str(excinfo.value) if isinstance(excinfo.value, WrongKernel) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the op is declared, and the item's name."""
        return Path(self.plugin.session.suite.files[self.task.op]), None, f"{self.task.op} {self.task.kernel} {self.task.name}"


def _only_collects(config: pytest.Config) -> bool:
    return bool(config.getoption("collectonly") or config.getoption("help", default=False))
