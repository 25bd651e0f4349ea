"""Run a program in which every Metal kernel is checked, and collect what its processes saw."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradcheck.metal.sanitize_hook import GPU
from gradcheck.metal.sanitize_notes import MLX, STRANGER, Summary, read

SITE = Path(__file__).parent / "sanitize_site"
_SHELL = 128  # a shell's status of a program that a signal ended is this and the signal


@dataclass(frozen=True, slots=True)
class Sanitized:
    """What became of a program and of its kernels.

    Args:
        status: the program's own, as a shell has it: 128 and the signal's number where a signal ended it.
        kernels: what was seen, the wrong ones first.
        watched: whether some process of it imported MLX, so that its kernels would have been seen.
        strangers: Pythons that it started in which gradcheck is not installed.
    """

    command: tuple[str, ...]
    status: int
    kernels: tuple[Summary, ...]
    watched: bool
    strangers: tuple[str, ...]

    @property
    def launches(self) -> int:
        """Launches that were checked, those that died among them."""
        return sum(kernel.launches for kernel in self.kernels)

    @property
    def wrong(self) -> int:
        """How many different things were found, over all kernels, without the benign ones."""
        return sum(kernel.wrong for kernel in self.kernels)

    @property
    def failures(self) -> int:
        """In how many different ways kernels could not be run here."""
        return sum(len(kernel.failures) for kernel in self.kernels)


def sanitize(command: Sequence[str], settings: Mapping[str, str], *, gpu: bool) -> Sanitized:
    """Run it to its end. Its input, output and working directory are this process's own.

    Args:
        command: a program and its arguments. `-m` or a `.py` file in the first place is for this Python; other names are looked for beside
            this Python first, as in an activated environment, then on PATH.
        settings: environment variables of `gradcheck.metal.settings`.
        gpu: tell it that there is a GPU.

    Raises:
        FileNotFoundError: there is no such program.
        PermissionError: it cannot be executed.
    """
    with tempfile.TemporaryDirectory(prefix="gradcheck-sanitize-") as name:
        folder = Path(name)
        path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, **settings, "PYTHONPATH": path, "GRADCHECK_SANITIZE": name, GPU: str(int(gpu))}
        status = _run(_resolved(command), environment)
        return Sanitized(
            tuple(command),
            status,
            read(folder),
            any(folder.glob(f"*{MLX}")),
            tuple(sorted({file.read_text("utf-8") for file in folder.glob(f"*{STRANGER}")})),
        )


def _resolved(command: Sequence[str]) -> list[str]:
    first = command[0]
    if first == "-m" or (first.endswith(".py") and not os.access(first, os.X_OK)):
        return [sys.executable, *command]
    beside = shutil.which(first, path=str(Path(sys.executable).parent)) if os.sep not in first else None
    return [beside or first, *command[1:]]


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    with subprocess.Popen(command, env=dict(environment)) as process, _passed_on(process):
        status = process.wait()
    return status if status >= 0 else _SHELL - status


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within the block signals are the program's: a terminal sends Ctrl-C to both, the others come here only and are passed on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signal.SIGINT: lambda *_: None} | {
        number: lambda number, _: process.send_signal(number) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
