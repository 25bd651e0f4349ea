"""Every public name can be had, whatever was imported before it, and the package costs nothing until a name is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gradcheck

# Run in a process of its own: import a name from the package before or after the module that holds it, from a clean slate each time.
CHECK = """
import importlib, sys
package, order, *pairs = sys.argv[1:]
for pair in pairs:
    home, name = pair.split(":")
    for module in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
        del sys.modules[module]
    scope = {}
    steps = [f"import {package}.{home}", f"from {package} import {name} as got"]
    for step in steps if order == "module-first" else reversed(steps):
        exec(step, scope)
    exec(f"from {package} import {name} as again", scope)
    want = getattr(importlib.import_module(f"{package}.{home}"), name)
    if scope["got"] is not want or scope["again"] is not want:
        print(pair)
"""
LATE = ("numpy", "mlx", "rich", "click", "rich_click", "pebble", "msgspec")


def python(*arguments: str, cwd: Path | None = None) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, cwd=cwd).stdout


def mistaken(package: str, order: str, pairs: list[str], cwd: Path) -> list[str]:
    return python("-c", CHECK, package, order, *pairs, cwd=cwd).split()


@pytest.mark.parametrize("order", ["module-first", "name-first"])
def test_each_public_name_is_itself_whichever_is_imported_first(order: str):
    pairs = [f"{home}:{name}" for home, names in gradcheck._HOMES.items() for name in names]
    assert len(pairs) > 20
    assert mistaken("gradcheck", order, pairs, Path(gradcheck.__file__).parents[1]) == []


def test_a_name_that_is_also_a_modules_name_would_be_found_out(tmp_path: Path):
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap/op.py").write_text("def op(): ...\n")
    (tmp_path / "trap/__init__.py").write_text("def __getattr__(name):\n    import trap.op\n    return getattr(trap.op, name)\n")
    assert mistaken("trap", "module-first", ["op:op"], tmp_path) == ["op:op"]


def test_importing_the_package_imports_nothing_heavy():
    show = f"import sys, gradcheck; print(*[name for name in {LATE} if name in sys.modules])"
    assert python("-c", show, cwd=Path(gradcheck.__file__).parents[1]).split() == []
    assert python("-c", show.replace("gradcheck", "numpy")).split() == ["numpy"]


def test_type_checkers_see_the_names_that_load():
    tree = ast.parse(Path(gradcheck.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module.removeprefix("gradcheck."), alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert seen == {(home, name) for home, names in gradcheck._HOMES.items() for name in names}


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        _ = gradcheck.nosuch
