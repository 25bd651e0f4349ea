"""Where a run happens: versions, platform, device, commit. Written into the run, so that a figure can be traced."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gradcheck

APPLE = "Apple GPU (MLX)"


DEVICES = {"metal": "an Apple GPU"}
"""What a kernel may require that is no module, and what that is in words."""


def lacking(requires: str) -> str:
    """What a kernel that requires this module or device lacks here, `the package mlx, which is not installed`; or nothing.

    Neither the module nor MLX is imported.
    """
    if requires in DEVICES:
        return "" if device() == APPLE else f"{DEVICES[requires]}, which this machine has not"
    try:
        found = not requires or importlib.util.find_spec(requires) is not None
    except ModuleNotFoundError:  # a dotted name whose parent is missing
        found = False
    return "" if found else f"the package {requires}, which is not installed"


def environment(cwd: Path) -> dict[str, str]:
    """Facts about this machine, by name."""
    return {
        "gradcheck": gradcheck.__version__,
        "from": str(Path(str(gradcheck.__file__)).parent),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "mlx": _version("mlx"),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "device": device(),
        "cores": str(os.cpu_count() or 1),
        "commit": _commit(cwd),
    }


def device() -> str:
    """What runs MLX kernels here. Told from the platform, without importing MLX, and never more than is known."""
    if _version("mlx") == "not installed":
        return "no MLX"
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return APPLE
    return "NVIDIA GPU (MLX)" if any(_version(f"mlx-cuda-{major}") != "not installed" for major in (12, 13)) else "CPU (MLX)"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit(cwd: Path) -> str:
    """Commit of the repository around `cwd`, with a + where the tree has changes; empty outside of one."""
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=cwd, capture_output=True, text=True, timeout=10, check=True)  # noqa: S607
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=cwd, capture_output=True, text=True, timeout=10, check=True)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
