"""What can go wrong with a Metal kernel before it has a result. Arguments that do not fit raise ValueError, as in MLX."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck.metal.findings import Finding


class MetalError(RuntimeError):
    """Base of the errors below."""


class NoCompilerError(MetalError):
    """Neither clang nor ziglang is here; the message says how to install one."""


class CompileError(MetalError):
    """The text is not valid Metal, by the compiler or by the rules that Metal adds to C++; the message has the lines."""


class KernelFault(MetalError):
    """The kernel ran and the checker found something.

    Args:
        kernel: its name.
        findings: what was found; the benign ones (same-value races) among them.
    """

    def __init__(self, kernel: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(kernel, findings)
        self.kernel = kernel
        self.findings = findings

    def __str__(self) -> str:
        return "\n".join([f"the checker found {len(self.findings)} in the Metal kernel {self.kernel!r}:", *map(str, self.findings)])


class KernelDied(MetalError):
    """The kernel crashed or hung the process that ran it."""
