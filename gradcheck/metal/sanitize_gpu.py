"""A program that asks MLX for a GPU hears that there is one: else it would not make its Metal kernels, and none would be checked.

MLX's own operations still run on the CPU. A stream or default device on the GPU is one on the CPU, and only the answers differ; an operation
that is given `stream=mx.gpu`, and what MLX tells of a GPU's memory, fails as it does without one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any


def pretend(mlx: ModuleType) -> None:
    """Answer for `mlx.core` from now on. The originals stay in the `__wrapped__` of what is put in their place."""
    mlx.metal.is_available = functools.wraps(mlx.metal.is_available)(lambda: True)
    if mlx.is_available(mlx.gpu):  # one of another make: it has streams and a default device of its own
        return
    cpu, gpu = mlx.Device(mlx.cpu, 0), mlx.Device(mlx.gpu, 0)
    # As MLX has it: the default device is the process's, and within `with mx.stream(device)` it is that one.
    chosen = [gpu]
    inner: ContextVar[Any] = ContextVar("device of the innermost stream", default=None)
    whole_stream = mlx.stream

    def device_of(asked: object) -> Any:  # noqa: ANN401 - MLX's
        """The device that is asked for by its kind or itself; None where it is a stream."""
        return next((device for device in (cpu, gpu) if asked in {device, device.type}), None) if _is_device(mlx, asked) else None

    def default_device() -> object:
        return inner.get() or chosen[0]

    def set_default_device(device: object) -> None:
        chosen[0] = device_of(device)

    @contextmanager
    def stream(s: object) -> Iterator[None]:
        device = device_of(s)
        token = inner.set(device or inner.get())
        try:
            with whole_stream(cpu if device is gpu else s):
                yield
        finally:
            inner.reset(token)

    def on_cpu(function: Callable[..., object]) -> Callable[[object], object]:
        return functools.wraps(function)(lambda device: function(cpu if device_of(device) is gpu else device))

    for name, function in (("default_device", default_device), ("set_default_device", set_default_device), ("stream", stream)):
        setattr(mlx, name, functools.wraps(getattr(mlx, name))(function))
    for name in ("new_stream", "new_thread_local_stream", "default_stream"):
        if hasattr(mlx, name):
            setattr(mlx, name, on_cpu(getattr(mlx, name)))


def _is_device(mlx: ModuleType, asked: object) -> bool:
    return isinstance(asked, mlx.Device | mlx.DeviceType)
