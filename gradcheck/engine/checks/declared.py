"""What a kernel says of itself that a check must know: in its declaration or, of a stranger, by attributes of its own."""

from __future__ import annotations

from collections.abc import Mapping

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._kernel import Kernel
from gradcheck._op import Op
from gradcheck.calibrate.judge import Tolerances
from gradcheck.engine.checks.bench import Bench
from gradcheck.engine.problem import Problem


def bench_of(
    kernel: object,
    declaration: Kernel,
    op: Op,
    case: Case,
    problem: Problem,
    tolerances: Tolerances,
    *,
    forward_only: bool = False,
    sound: bool = True,
) -> Bench:
    """The kernel on the bench, as its declaration says it is, or else its own attributes `deterministic` and `chunks`.

    An attribute of another kind, such as a method of that name, is taken for the kernel's own business.

    Raises:
        UsageError: sizes of chunks are not whole numbers above 0.
    """
    chunks = declaration.chunks or getattr(kernel, "chunks", None)
    chunks = chunks if isinstance(chunks, Mapping) else {}
    if not all(isinstance(keyword, str) and _sizes(sizes) for keyword, sizes in chunks.items()):
        raise UsageError(f"kernel {declaration.name}: chunks = {chunks!r}, need a keyword and its sizes, as in {{'chunk': (16, 64)}}")
    deterministic = declaration.deterministic and getattr(kernel, "deterministic", True) is not False
    sizes = {keyword: tuple(sizes) for keyword, sizes in chunks.items()}
    return Bench(kernel, op, case, problem, tolerances, forward_only, sound, deterministic, sizes)


def _sizes(sizes: object) -> bool:
    return isinstance(sizes, (tuple, list)) and bool(sizes) and all(type(size) is int and size > 0 for size in sizes)
