"""A program under `gradcheck sanitize` does what it does, and what its kernels did wrong is told behind it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from gradcheck.cli import main
from tests.cli.conftest import Result

# `kernel(body)` makes a kernel of one input and one output of 64 floats each, in one threadgroup; `launch` calls it.
PRELUDE = """
import sys
import mlx.core as mx

def kernel(body, name="k"):
    return mx.fast.metal_kernel(name=name, input_names=["a"], output_names=["out"], source=body)

def launch(function):
    return function(
        inputs=[mx.ones(64)], output_shapes=[(64,)], output_dtypes=[mx.float32], grid=(64, 1, 1), threadgroup=(64, 1, 1)
    )[0]

CLEAN = "out[thread_position_in_grid.x] = a[thread_position_in_grid.x];"
NEXT = '''
    uint e = thread_position_in_grid.x;
    out[e] = a[e + 1];
'''
"""

Sanitize = Callable[..., Result]


@pytest.fixture
def sanitize(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Sanitize:
    """Runs a program that begins with the prelude; files it writes lie in `tmp_path`."""
    session = tmp_path_factory.getbasetemp()
    shared = (session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "metal"
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", os.environ.get("GRADCHECK_TEST_CACHE_DIR") or str(shared))
    monkeypatch.chdir(tmp_path)

    def call(program: str, *options: str) -> Result:
        (tmp_path / "program.py").write_text(PRELUDE + textwrap.dedent(program))
        code = main(["sanitize", *options, "--", "python", "program.py", "an argument"])
        return Result(code, *capfd.readouterr())

    return call


def test_a_read_past_the_end_is_told_with_its_lines_and_the_program_goes_on(sanitize: Sanitize):
    result = sanitize("y = launch(kernel(NEXT, 'next'))\nprint('went on', y.shape, sys.argv[1:])\n", "--json", "found.json")
    assert (result.code, result.out) == (1, "went on (64,) ['an argument']\n")
    line = 1 + PRELUDE.split("\n").index("    out[e] = a[e + 1];")
    assert "next, made at program.py:6: 1 launch\n  out of bounds: read of 4 bytes, 0 bytes past the end of 'a'" in result.err
    assert f"    next.metal:3:14 (program.py:{line})\n        out[e] = a[e + 1];\n" in result.err
    assert "1 finding in 1 kernel of 1, 1 launch, on metal-cpu; python ended with status 0; exit 1" in result.err
    found = json.loads(Path("found.json").read_text())
    assert (found["status"], found["exit_code"], found["launches"], found["findings"]) == (0, 1, 1, 1)
    ((finding,),) = [kernel["findings"] for kernel in found["kernels"]]
    assert (finding["kind"], finding["benign"], finding["thread"], finding["launches"]) == ("out of bounds", False, 63, 1)
    assert finding["places"] == [{"file": "next.metal", "line": 3, "column": 14, "text": "    out[e] = a[e + 1];", "line_in_python": line}]


def test_clean_kernels_leave_the_program_its_own_status_and_output(sanitize: Sanitize):
    program = "k = kernel(CLEAN)\nlaunch(k), launch(k)\nprint('said')\nprint('complained', file=sys.stderr)\nsys.exit(42)\n"
    result = sanitize(program, "--json", "-")
    said, _, written = result.out.partition("\n")
    assert (result.code, said) == (42, "said")
    assert result.err.startswith("complained\ngradcheck: 0 findings in 0 kernels of 1, 2 launches")
    assert json.loads(written)["kernels"] == [
        {
            "name": "k",
            "made_at": f"{Path.cwd() / 'program.py'}:6",
            "launches": 2,
            "findings": [],
            "died": [],
            "could_not_be_run": [],
            "warnings": [],
        }
    ]


def test_benign_races_are_told_and_fail_nothing(sanitize: Sanitize):
    result = sanitize("launch(kernel('out[thread_position_in_grid.x] = 1.0f; out[0] = 1.0f;'))")
    assert result.code == 0, result.err
    assert "benign: race, same value" in result.err


@pytest.mark.parametrize("program, why", [("", "called no kernel"), ("kernel(CLEAN)\nsys.exit(3)", "called no kernel")])
def test_no_launch_is_a_status_of_its_own(sanitize: Sanitize, program: str, why: str):
    result = sanitize(program)
    assert result.code == 5
    assert f"No Metal kernel was launched: the program imported MLX, and {why}" in result.err


def test_a_python_that_keeps_us_out_is_said(sanitize: Sanitize, capfd: pytest.CaptureFixture[str]):
    assert main(["sanitize", "--", "python", "-I", "-c", "print('alone')"]) == 5
    said = capfd.readouterr()
    assert said.out == "alone\n"
    assert "no Python process that could be watched imported MLX (`python -I`" in said.err


def test_a_program_that_crashes_has_its_launches_told(sanitize: Sanitize):
    result = sanitize("launch(kernel(CLEAN))\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert result.code == 128 + signal.SIGSEGV
    assert "1 launch, on metal-cpu; python ended with status 139; exit 139" in result.err


def test_a_kernel_that_hangs_is_a_finding_though_the_program_swallows_it(sanitize: Sanitize):
    program = """
    try:
        launch(kernel("volatile int go = 1; while (go) {} out[thread_position_in_grid.x] = a[0];", "forever"))
    except RuntimeError:
        print("swallowed")
    """
    result = sanitize(program, "--timeout", "2")
    assert (result.code, result.out) == (1, "swallowed\n"), result.err
    assert "forever" in result.err


def test_a_kernel_that_does_not_compile_is_not_taken_for_checked(sanitize: Sanitize):
    program = """
    launch(kernel(CLEAN))
    try:
        launch(kernel("out[0] = undeclared;", "bad"))
    except RuntimeError:
        pass
    """
    result = sanitize(program)
    assert result.code == 6
    assert "bad.metal:1:10: error: use of undeclared identifier 'undeclared'" in result.err


def test_child_processes_and_threads_are_seen_and_added_up(sanitize: Sanitize):
    program = """
    import subprocess, threading
    wrong = kernel(NEXT)
    if sys.argv[1] == "child":
        launch(wrong)
        sys.exit()
    thread = threading.Thread(target=lambda: print(launch(wrong).shape))
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "program.py", "child"], check=True)
    """
    result = sanitize(program)
    assert (result.code, result.out) == (1, "(64,)\n"), result.err
    assert "k, made at program.py:6: 2 launches" in result.err
    assert "(2 times in 2 launches)" in result.err
    assert "1 finding in 1 kernel of 1, 2 launches" in result.err


def test_a_program_that_asks_for_a_gpu_is_told_there_is_one_unless_it_shall_not(sanitize: Sanitize):
    program = """
    if mx.metal.is_available():
        launch(kernel(CLEAN))
    print(mx.metal.is_available(), mx.default_device() == mx.gpu)
    with mx.stream(mx.cpu):
        print(mx.default_device() == mx.cpu)
    with mx.stream(mx.new_stream(mx.gpu)):
        print((mx.ones(2) + 1).tolist())
    """
    assert sanitize(program).out == "True True\nTrue\n[2.0, 2.0]\n"
    if not _has_gpu():
        quiet = sanitize("print(mx.metal.is_available(), mx.default_device() == mx.gpu)", "--no-gpu")
        assert (quiet.code, quiet.out) == (5, "False False\n")


def _has_gpu() -> bool:
    import mlx.core as mx

    return mx.is_available(mx.gpu)


def test_a_compiled_function_launches_its_kernel(sanitize: Sanitize):
    result = sanitize("k = kernel(CLEAN)\nprint(mx.compile(lambda: launch(k) + 1)()[0].item())\n")
    assert (result.code, result.out) == (0, "2.0\n"), result.err


def test_kernels_of_our_own_function_are_seen(sanitize: Sanitize):
    program = """
    from gradcheck.metal import metal_kernel, place
    mx.fast.metal_kernel = None
    launch(metal_kernel("ours", ["a"], ["out"], NEXT))
    print(place())
    """
    result = sanitize(program)
    assert (result.code, result.out) == (1, "metal-cpu\n"), result.err
    assert "ours, made at program.py" in result.err


def test_the_users_own_sitecustomize_still_runs(sanitize: Sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("import sys; sys.mine = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    result = sanitize("print(sys.mine, any('sanitize_site' in entry for entry in sys.path))\nlaunch(kernel(CLEAN))")
    assert (result.code, result.out) == (0, "True False\n"), result.err


def test_a_signal_reaches_the_program(tmp_path: Path):
    """SIGTERM to gradcheck is the program's to handle, and its status is reported as ever."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "gradcheck", "sanitize", "--", str(script.name)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.terminate()
        _, err = process.communicate()
        killer.cancel()
    assert time.monotonic() - began < 30
    assert process.returncode == 5
    assert "waits.py ended with status 7" in err


def test_a_program_that_is_not_there_is_a_usage_error(capfd: pytest.CaptureFixture[str]):
    assert main(["sanitize", "--", "no-such-program"]) == 2
    assert "no-such-program cannot be run: No such file" in capfd.readouterr().err
    assert main(["sanitize"]) == 2


def test_our_own_function_is_watched_whoever_loads_it(sanitize: Sanitize):
    """pytest loads the modules of its plugins by itself, ahead of every other finder; and kernels may be made before MLX is imported."""
    result = sanitize("""
        import importlib.machinery, importlib.util

        class Mine:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return importlib.machinery.PathFinder.find_spec(name, path, target) if name.startswith("gradcheck.") else None

        sys.meta_path.insert(0, Mine)
        from gradcheck.metal import metal_kernel
        launch(metal_kernel(name="k", input_names=["a"], output_names=["out"], source=CLEAN))
    """)
    assert result.code == 0, result.err
    assert "0 findings in 0 kernels of 1, 1 launch," in result.err


@pytest.mark.checkout
def test_the_how_to_s_test_passes_as_pasted_in_a_pytest_that_is_watched(sanitize: Sanitize, capfd: pytest.CaptureFixture[str]):
    page = (Path(__file__).parents[2] / "docs/how-to/run-without-a-gpu.md").read_text()
    (code,) = re.findall(r"```python\n(# test_kernel\.py\n.*?)```", page, re.DOTALL)
    Path("test_kernel.py").write_text(code)
    assert main(["sanitize", "--", "-m", "pytest", "-q", "test_kernel.py"]) == 0, capfd.readouterr()
    said = capfd.readouterr()
    assert "1 passed" in said.out
    assert "0 findings in 0 kernels of 1, 3 launches" in said.err


def test_a_python_without_gradcheck_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare/bin/python"
    assert main(["sanitize", "--", str(python), "-c", "print('alone')"]) == 5
    said = capfd.readouterr()
    assert said.out == "alone\n"
    assert f"not watched: {python} has no gradcheck. Install it there" in said.err
