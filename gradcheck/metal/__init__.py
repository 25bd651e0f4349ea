"""Metal kernels anywhere: one call, shaped like `mx.fast.metal_kernel`, on an Apple GPU or on any CPU, where a checker watches.

Names load on first use, so that looking for a compiler does not import MLX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck.metal.errors import CompileError as CompileError
    from gradcheck.metal.errors import KernelDied as KernelDied
    from gradcheck.metal.errors import KernelFault as KernelFault
    from gradcheck.metal.errors import MetalError as MetalError
    from gradcheck.metal.errors import NoCompilerError as NoCompilerError
    from gradcheck.metal.executor import Launched as Launched
    from gradcheck.metal.findings import Finding as Finding
    from gradcheck.metal.kernel import metal_kernel as metal_kernel
    from gradcheck.metal.kernel import place as place
    from gradcheck.metal.places import Place as Place
    from gradcheck.metal.settings import Settings as Settings
    from gradcheck.metal.settings import configured as configured
    from gradcheck.metal.tapping import Captured as Captured
    from gradcheck.metal.tapping import tap as tap

_HOMES = {
    "errors": ("CompileError", "KernelDied", "KernelFault", "MetalError", "NoCompilerError"),
    "executor": ("Launched",),
    "findings": ("Finding",),
    "kernel": ("metal_kernel", "place"),
    "places": ("Place",),
    "settings": ("Settings", "configured"),
    "tapping": ("Captured", "tap"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME)]  # noqa: PLE0604 - computed from the table above, so the two cannot differ


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
