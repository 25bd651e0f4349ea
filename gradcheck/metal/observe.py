"""Who is told of launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck.metal.executor import Launched

    Observer = Callable[[Launched], object]

_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("observers of launches", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within the block every launch is told to `observer`, that of a kernel with findings too, before it raises."""
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


def watched() -> bool:
    """Whether anybody is told."""
    return bool(_OBSERVERS.get())


def tell(launched: Launched) -> None:
    """Tell all of them."""
    for observer in _OBSERVERS.get():
        observer(launched)
