"""Run the custom-kernel tests of MLX's `test_fast.py` under the tap: `python tests/mlx_custom_kernels.py checked PATH`.

MLX's file says itself which tests need a GPU, so it is told that there is one; its helper module `mlx_tests` is not needed for these.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import types
import unittest
from pathlib import Path
from unittest.mock import patch

import mlx.core as mx

from gradcheck import metal

NAMES = ("test_custom_kernel", "test_custom_metal_kernel")


def main() -> int:
    """The number of tests that failed, or 1 where none was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["plain", "checked"])
    parser.add_argument("path", type=Path)
    asked = parser.parse_args()
    helper = types.ModuleType("mlx_tests")
    helper.MLXTestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["mlx_tests"] = helper
    with (
        patch.object(mx, "is_available", lambda _: True),
        metal.tap(pretend_gpu=True, mode=asked.mode) as captured,
    ):
        spec = importlib.util.spec_from_file_location("test_fast", asked.path)
        if spec is None or spec.loader is None:
            parser.error(f"{asked.path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = [name for name in dir(module.TestFast) if name.startswith(NAMES)]
        result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(map(module.TestFast, found)))
    skipped = len(result.skipped)
    sys.stdout.write(f"{len(found)} tests of {asked.path}, {asked.mode}: {len(captured.launches)} launches, {skipped} skipped\n")
    failed = len(result.failures) + len(result.errors) + skipped
    return failed if found and captured.launches else 1


if __name__ == "__main__":
    sys.exit(main())
