"""What the files of a suite may say: read from their text, so that a file that cannot run is checked as well.

Who imports whom inside `gradcheck/` is the import-linter contract of pyproject.toml (`nox -s lint`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradcheck
from gradcheck.suite._roots import FOLDERS, builtin_root

PUBLIC = {*gradcheck.__all__, "math"}
THIRD_PARTY = {"oracles": {"numpy", "numba"}, "mutants": {"numpy"}, "reports": {"numpy", "rich", "jinja2"}}

# Functions that numpy and math compute for floats only, or badly for complex numbers; `gradcheck.math` serves every number.
FLOAT_ONLY = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"),
}
TOLERANCES = {"rtol", "atol"}

FILES = [path for folder in FOLDERS for path in sorted((builtin_root().path / folder).rglob("*.py"))]


def stray_imports(tree: ast.AST, folder: str) -> Iterator[str]:
    """Imports other than the standard library, the folder's third parties, gradcheck's public names and the folder's own files."""
    allowed = {*sys.stdlib_module_names, *THIRD_PARTY[folder]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] not in allowed and alias.name != "gradcheck")
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            yield f"{'.' * node.level}{node.module or ''}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module != "gradcheck.math":
            module = node.module or ""
            if module == "gradcheck":
                yield from (f"gradcheck.{alias.name}" for alias in node.names if alias.name not in PUBLIC)
            elif module.partition(".")[0] not in allowed:
                yield module


def steps(tree: ast.Module) -> list[ast.AST]:
    """An op's step, what it calls in its file, and what is in no function. What draws inputs works on floats alone, and may."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    def named(name: str) -> set[str]:
        return {node.id for part in functions[name].body for node in ast.walk(part) if isinstance(node, ast.Name)} & functions.keys()

    found = {name for name, node in functions.items() if node.decorator_list} or set(functions)  # no op: a file of parts of steps
    while more := {other for name in found for other in named(name)} - found:
        found |= more
    return [*(functions[name] for name in found), *(node for node in tree.body if not isinstance(node, ast.FunctionDef))]


def float_only(tree: ast.Module) -> Iterator[str]:
    """Uses of `np.exp`, `math.log` and their like in steps."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in {"numpy", "math", "cmath"}
    }
    for node in (node for part in steps(tree) for node in ast.walk(part)):
        if isinstance(node, ast.Attribute) and node.attr in FLOAT_ONLY and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield f"{node.value.id}.{node.attr} (line {node.lineno})"
        elif isinstance(node, ast.ImportFrom) and node.module in {"numpy", "math", "cmath"}:
            yield from (f"{node.module}.{alias.name} (line {node.lineno})" for alias in node.names if alias.name in FLOAT_ONLY)


def tolerances(tree: ast.AST) -> Iterator[str]:
    """Keywords by which a comparison is loosened."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in TOLERANCES:
            yield f"{node.arg}= (line {node.value.lineno})"


def test_the_suite_has_files_in_each_folder():
    assert {path.relative_to(builtin_root().path).parts[0] for path in FILES} == set(FOLDERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_suite_file_imports_only_what_it_may(path: Path):
    folder = path.relative_to(builtin_root().path).parts[0]
    assert list(stray_imports(ast.parse(path.read_text(encoding="utf-8")), folder)) == []


def compiled(path: Path) -> bool:
    """Whether a file holds compiled lanes, which are of floats alone and are tried against the reference before they are believed."""
    return any(
        "numba" in ast.dump(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    )


ORACLES = [path for path in FILES if path.parent.name == "oracles" and not compiled(path)]


def test_only_private_files_hold_compiled_lanes():
    assert [path.name for path in FILES if compiled(path) and not path.name.startswith("_")] == []
    assert len(ORACLES) > 1


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.name)
def test_an_oracle_serves_every_number_and_has_no_tolerance(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert list(float_only(tree)) == []
    assert list(tolerances(tree)) == []


@pytest.mark.parametrize(
    "text, stray",
    [
        ("import mlx.core as mx", ["mlx.core"]),
        ("from gradcheck._op import Op", ["gradcheck._op"]),
        ("import gradcheck.kernels.ssm_scan", ["gradcheck.kernels.ssm_scan"]),
        ("from gradcheck import suite", ["gradcheck.suite"]),
        ("from gradcheck.numerics import costate", ["gradcheck.numerics"]),
        ("from ..oracles.ssm_scan import ssm_scan", ["..oracles.ssm_scan"]),
        ("from oracles import ssm_scan", ["oracles"]),
        ("def f():\n    import rich.table", ["rich.table"]),
        ("from rich.table import Table", ["rich.table"]),
        ("from gradcheck import Op, math\nfrom gradcheck.math import exp\nfrom ._draw import x\nimport numpy as np\nimport re", []),
    ],
)
def test_a_stray_import_is_seen(text: str, stray: list[str]):
    assert list(stray_imports(ast.parse(text), "mutants")) == stray


def test_a_report_may_use_rich():
    assert list(stray_imports(ast.parse("from rich.table import Table"), "reports")) == []


@pytest.mark.parametrize(
    "text, found",
    [
        ("import numpy as np\ny = np.exp(x)", ["np.exp (line 2)"]),
        ("import numpy\nf = numpy.log1p", ["numpy.log1p (line 2)"]),
        ("import math\ny = math.tanh(x)", ["math.tanh (line 2)"]),
        ("from numpy import exp, sum", ["numpy.exp (line 1)"]),
        ("from gradcheck import math\ny = math.exp(x)", []),
        ("import numpy as np\ny = np.sum(x)", []),
        ("import numpy as np\ndef f(x):\n    return np.exp(x)", ["np.exp (line 3)"]),
        ("import numpy as np\ndef f(x):\n    return np.exp(x)\n@op()\ndef g(s):\n    return f(s)", ["np.exp (line 3)"]),
        ("import numpy as np\ndef draw(x):\n    return np.exp(x)\n@op(regimes=[draw])\ndef g(s):\n    return s", []),
    ],
)
def test_a_float_only_function_is_seen(text: str, found: list[str]):
    assert list(float_only(ast.parse(text))) == found


def test_a_tolerance_is_seen():
    assert list(tolerances(ast.parse("np.allclose(a, b, rtol=1e-2,\n atol=1)"))) == ["rtol= (line 1)", "atol= (line 2)"]
