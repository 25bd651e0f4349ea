"""See every Metal kernel that a program launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import mlx.core as mx

from gradcheck.metal.executor import Launched
from gradcheck.metal.findings import Finding
from gradcheck.metal.kernel import metal_kernel
from gradcheck.metal.observe import observed
from gradcheck.metal.settings import configured


@dataclass(slots=True)
class Captured:
    """What a tap has seen so far, in the order of the launches."""

    launches: list[Launched] = field(default_factory=list)

    @property
    def sources(self) -> dict[str, str]:
        """The whole Metal source of each kernel that was launched, once: of its last launch, by the kernel's name."""
        return {launched.text.name: launched.source for launched in self.launches}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that the checker found, benign races too."""
        return tuple(finding for launched in self.launches for finding in launched.findings)


@contextmanager
def tap(*, pretend_gpu: bool = False, **changes: object) -> Iterator[Captured]:
    """Within the block `mx.fast.metal_kernel` makes our kernels, and what they launch is captured.

    A kernel that is made in the block stays ours after it. A kernel that MLX made before the block, by a module imported earlier, is not
    seen: enter the block before the import. Kernels of `gradcheck.metal.metal_kernel` are seen whenever they were made.

    Args:
        pretend_gpu: programs that ask MLX whether there is a GPU hear that there is, so that they make and call their kernels. MLX itself
            still computes on the CPU, and what else a program asks of a GPU fails.
        changes: to the settings within the block, see `Settings`: `mode="plain"`, `schedule="random"`, …

    Raises:
        ValueError: settings that there are not.
    """
    captured = Captured()
    with ExitStack() as stack:
        stack.enter_context(configured(**changes))
        stack.enter_context(observed(captured.launches.append))
        stack.enter_context(patch.object(mx.fast, "metal_kernel", metal_kernel))
        if pretend_gpu:
            gpu = mx.Device(mx.gpu, 0)
            stack.enter_context(patch.object(mx.metal, "is_available", lambda: True))
            stack.enter_context(patch.object(mx, "default_device", lambda: gpu))
        yield captured
