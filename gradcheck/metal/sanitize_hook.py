"""Inside a watched program: MLX gets our `metal_kernel` as soon as it is imported, and every launch is written down.

`sitecustomize` calls this in every Python process, also in those that never import MLX: so nothing heavy is imported before they do.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from gradcheck.metal.sanitize_gpu import pretend

if TYPE_CHECKING:
    import mlx.core as mx

    from gradcheck.metal.executor import Launched
    from gradcheck.metal.sanitize_notes import Kernel, Note

GPU = "GRADCHECK_SANITIZE_GPU"
"""Whether programs hear that there is a GPU: 1 or 0."""


def install(folder: str) -> None:
    """Watch this process from now on, and write what is seen into the folder."""
    notebook = Notebook(Path(folder))
    make = functools.partial(_watched, notebook)
    sys.meta_path.insert(
        0,
        _After(
            {"mlx.core": lambda module: _into_mlx(module, make, notebook)},
            # For programs that call our own function, or enter our tap.
            {"gradcheck.metal.kernel": lambda module: setattr(module, "metal_kernel", _from_caller(module.metal_kernel, make))},
        ),
    )


def loaded(module: ModuleType) -> None:
    """A module of ours says that it has been loaded: pytest, which rewrites the asserts of its plugins, loads it past every finder."""
    for finder in sys.meta_path:
        if isinstance(finder, _After):
            finder.told(module)


class _After(importlib.abc.MetaPathFinder):
    """Does something with a module once it has been loaded: with others' by loading them, with ours when they say so."""

    def __init__(self, then: dict[str, Callable[[ModuleType], None]], ours: dict[str, Callable[[ModuleType], None]]) -> None:
        self._then, self._ours = then, ours

    def told(self, module: ModuleType) -> None:
        """What is to be done with a module of ours."""
        if module.__name__ in self._ours:
            self._ours[module.__name__](module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As Python's own finder, for the modules that are waited for."""
        if fullname not in self._then:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then[fullname])
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader  # what asks a module for its loader finds the real one
        self._loader.exec_module(module)
        self._then(module)


def _into_mlx(mlx: ModuleType, make: Callable[..., Any], notebook: Notebook) -> None:
    notebook.mark(".mlx")
    mlx.fast.metal_kernel = _from_caller(mlx.fast.metal_kernel, make)
    mlx.disable_compile()  # kernels run when they are called, which in a compiled function is before there are values
    if os.environ.get(GPU, "1") == "1":
        pretend(mlx)


def _from_caller(original: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    """`metal_kernel` that knows who calls it. The original stays in its `__wrapped__`."""

    @functools.wraps(original)
    def metal_kernel(*given: object, **named: object) -> object:
        caller = sys._getframe(1)  # noqa: SLF001 - there is no public name for it
        return make(caller.f_code.co_filename, caller.f_lineno, *given, **named)

    return metal_kernel


def _watched(notebook: Notebook, file: str, line: int, *given: object, **named: object) -> Watched:
    from gradcheck.metal.kernel import cpu_kernel

    return Watched(cpu_kernel(*given, **named), file, line, notebook)  # type: ignore[arg-type] # the program's, looked at there


@dataclass(frozen=True, slots=True)
class Watched:
    """A kernel that is always checked, and whose launches are written down; a finding does not stop the program."""

    kernel: Any
    file: str
    line: int
    notebook: Notebook

    def __call__(self, **arguments: object) -> list[mx.array]:
        """Call it, in whatever thread: what is set here holds in this one."""
        from gradcheck.metal.errors import KernelDied, MetalError
        from gradcheck.metal.observe import observed
        from gradcheck.metal.settings import configured

        def note(launched: Launched) -> None:
            self.notebook.launch(self, launched)

        try:
            with configured(mode="checked", keep_going=True), observed(note):
                return cast("list[mx.array]", self.kernel(**arguments))
        except MetalError as error:
            self.notebook.failure(self, str(error), died=isinstance(error, KernelDied))
            raise


@dataclass(slots=True)
class Notebook:
    """Where one process writes; after a fork the child begins a file of its own."""

    folder: Path
    _owner: int = 0
    _path: Path = Path()
    _numbers: dict[tuple[Kernel, object], int] = field(default_factory=dict)
    _kernels: dict[tuple[str, str, str, int], Kernel] = field(default_factory=dict)
    _turn: Any = field(default_factory=threading.Lock)

    def mark(self, end: str) -> None:
        """Leave a file by which it is known that this process came so far."""
        (self.folder / f"{os.getpid()}{end}").touch()

    def launch(self, watched: Watched, launched: Launched) -> None:
        """Write down a launch."""
        from gradcheck.metal.sanitize_notes import Note, key_of

        with self._turn:
            self._begin()
            first = self._key(watched) not in self._kernels
            kernel = self._kernel(watched)
            new, again = [], []
            for finding in launched.findings:
                key = (kernel, key_of(finding))
                number = self._numbers.get(key)
                if number is None:
                    self._numbers[key] = len(self._numbers)
                    new.append(finding)
                else:
                    again.append((number, finding.count))
            self._write(Note(kernel, tuple(new), tuple(again), warnings=launched.warnings if first else ()))

    def failure(self, watched: Watched, why: str, *, died: bool) -> None:
        """Write down a launch without a result."""
        from gradcheck.metal.sanitize_notes import Note

        with self._turn:
            self._begin()
            self._write(Note(self._kernel(watched), failure=why, died=died))

    def _begin(self) -> None:
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._path = self.folder / f"{self._owner}-{time.monotonic_ns()}.jsonl"
            self._numbers.clear()
            self._kernels.clear()

    def _write(self, note: Note) -> None:
        import msgspec

        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(note) + b"\n")

    @staticmethod
    def _key(watched: Watched) -> tuple[str, str, str, int]:
        text = watched.kernel.text
        return text.header, text.source, watched.file, watched.line

    def _kernel(self, watched: Watched) -> Kernel:
        from gradcheck.metal.sanitize_notes import Kernel

        key = self._key(watched)
        if key not in self._kernels:
            text = watched.kernel.text
            lines = {f"{text.name}.metal": _line(watched.file, text.source), f"{text.name}.header.metal": _line(watched.file, text.header)}
            found = tuple((name, line) for name, line in lines.items() if line)
            self._kernels[key] = Kernel(text.name, f"{watched.file}:{watched.line}", found)
        return self._kernels[key]


def _line(file: str, text: str) -> int:
    """The line of a file on which a text begins, or 0 where it is not there word by word, or more than once."""
    try:
        whole = Path(file).read_text("utf-8")
    except (OSError, ValueError):
        return 0
    at = whole.find(text) if text.strip() else -1
    return 0 if at < 0 or whole.find(text, at + 1) >= 0 else whole.count("\n", 0, at) + 1
