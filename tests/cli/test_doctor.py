from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest

import gradcheck
from gradcheck import ExitCode
from gradcheck.engine import environment, machine
from gradcheck.metal import NoCompilerError, toolchain
from gradcheck.process import Died, Done
from gradcheck.suite import load


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def workers(monkeypatch):
    """Instead of workers: what is asked of them is answered at once, by function name."""
    answers: dict[str, object] = {"mlx_device": Done("Device(cpu, 0)", 0.1), "probe": Done("", 0.1)}
    monkeypatch.setattr(machine, "run_all", lambda function, asks, **_: ((ask, answers[function.__name__]) for ask in asks))
    return answers


@pytest.fixture
def without(monkeypatch):
    """Make modules look as if they were not installed."""

    def hide(*modules):
        hidden = lambda name, *rest: None if name.partition(".")[0] in modules else find_spec(name, *rest)  # noqa: E731
        for home in ("gradcheck.engine.machine.find_spec", "importlib.util.find_spec"):
            monkeypatch.setattr(home, hidden)

    return hide


def by_name(result):
    return {each["name"]: each for each in json.loads(result.out)}


def test_this_machine_can_run_what_is_built_in(cli, here):
    result = cli("doctor")
    assert result.code == ExitCode.OK, result.out
    for words in (
        gradcheck.__version__,
        sys.executable,
        "✓ mlx",
        "✓ kernel ssm_scan/mlx ",
        "cache of truths",
        "The built-in suite can be checked",
    ):
        assert words in result.out


def test_a_cache_that_cannot_be_written_is_missing_and_is_six(cli, here, workers, monkeypatch):
    (here / "file").write_text("")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(here / "file" / "cache"))
    result = cli("doctor", "--json")
    assert result.code == ExitCode.INCONCLUSIVE
    assert by_name(result)["cache of truths"]["state"] == "missing"
    assert "GRADCHECK_CACHE_DIR" in by_name(result)["cache of truths"]["mend"]


def test_without_mlx_no_built_in_kernel_runs_and_the_command_is_there(cli, here, workers, without):
    without("mlx")
    result = cli("doctor", "--json")
    assert result.code == ExitCode.INCONCLUSIVE
    found = by_name(result)
    assert found["op ssm_scan"]["state"] == "missing"
    assert "needs the package mlx" in found["kernel ssm_scan/mlx"]["what"]
    assert found["mlx"]["mend"].startswith(f"{sys.executable} -m pip install")


def test_an_mlx_that_is_installed_and_does_not_run_is_told(cli, here, workers):
    workers["mlx_device"] = Died("raised", "ImportError: libopenblas.so.0: no such file", "", 0.1)
    workers["probe"] = Done("importing it raises ImportError", 0.1)
    result = cli("doctor", "--json")
    assert result.code == ExitCode.INCONCLUSIVE
    assert "libopenblas" in by_name(result)["mlx"]["what"]
    assert "ImportError" in by_name(result)["kernel ssm_scan/mlx"]["what"]


def test_an_optional_package_that_is_missing_changes_nothing(cli, here, workers, without):
    without("flint", "numba", "libggml")
    result = cli("doctor", "--json")
    assert result.code == ExitCode.OK
    found = by_name(result)
    assert found["python-flint"] == {**found["python-flint"], "state": "optional"}
    assert found["python-flint"]["mend"].endswith("pip install python-flint")
    assert found["kernel ssm_scan/ggml"]["state"] == "optional"


@pytest.fixture
def compiler(monkeypatch):
    """Let the machine have a compiler of Metal kernels, or none, and an Apple GPU, or none."""

    def choose(*, found, gpu=False):
        def find():
            if not found:
                raise NoCompilerError(toolchain.missing([]))
            return toolchain.Toolchain("clang", ("/opt/clang++-19",), (), (), "clang version 19.1.7", "cpu")

        monkeypatch.setattr(toolchain, "find", find)
        monkeypatch.setattr(environment, "device", lambda: environment.APPLE if gpu else "CPU (MLX)")

    return choose


def test_a_compiler_makes_metal_kernels_run_on_the_cpu(cli, here, workers, compiler):
    compiler(found=True)
    result = cli("doctor", "--json")
    assert result.code == ExitCode.OK
    found = by_name(result)
    assert found["compiler of Metal kernels"]["what"] == "clang version 19.1.7, /opt/clang++-19"
    assert found["kernel ssm_scan/metal"]["state"] == "ok"
    assert found["kernel ssm_scan/metal"]["what"].startswith("runs here on the CPU (metal-cpu), by --kernel metal, in f32")
    assert found["kernel ssm_scan/mlx"]["what"].startswith("runs here, in f32")


def test_without_a_compiler_metal_kernels_are_told_what_to_install_and_the_others_run(cli, here, workers, compiler):
    compiler(found=False)
    result = cli("doctor", "--json")
    assert result.code == ExitCode.OK  # the main job can be done
    found = by_name(result)
    for name in ("compiler of Metal kernels", "kernel ssm_scan/metal", "kernel ssm_scan/metal-checkpoint"):
        assert found[name]["state"] == "optional"
        assert "pip install" in found[name]["mend"]
        assert "[cpu]" in found[name]["mend"]
        assert "clang 16 or newer" in found[name]["mend"]
    assert found["kernel ssm_scan/mlx"]["state"] == "ok"


def test_where_there_is_an_apple_gpu_no_compiler_is_needed(cli, here, workers, compiler):
    compiler(found=False, gpu=True)
    found = by_name(cli("doctor", "--json"))
    assert found["compiler of Metal kernels"]["state"] == "ok"
    assert found["kernel ssm_scan/metal"]["what"].startswith("runs here, in f32")


def test_metal_kernels_alone_do_not_run_an_op_without_a_compiler(cli, here, workers, compiler, without, monkeypatch):
    compiler(found=False)
    only = [kernel for kernel in load([]).ops["ssm_scan"].kernels if kernel.metal]
    monkeypatch.setattr(machine, "_unloadable", lambda kernels, *_: ((kernel.name, "gone") for kernel in kernels if kernel not in only))
    result = cli("doctor", "--json")
    assert result.code == ExitCode.INCONCLUSIVE
    assert by_name(result)["op ssm_scan"]["state"] == "missing"


def test_a_broken_suite_is_told_and_is_six(cli, here, workers):
    (here / "oracles").mkdir()
    (here / "oracles/broken.py").write_text("1 / 0")
    result = cli("doctor")
    assert result.code == ExitCode.INCONCLUSIVE
    assert "broken.py" in result.out


def test_bands_of_other_sources_are_told_from_none_at_all(cli, here, workers):
    (here / "reports/published").mkdir(parents=True)
    cli("new", "op", "toy")
    assert "none published" in by_name(cli("doctor", "--json"))["bands of toy"]["what"]
    held = {"seeds": [], "clean": 0, "false_alarms": 0, "rows": 0, "missed": 0, "worst": 0}
    old = {"op": "toy", "sources": "old", "factor": 4, "seeds": [], "ratio": 1, "noise": {}, "bands": [], "held": held, "environment": {}}
    (here / "reports/published/toy.json").write_text(json.dumps(old))
    found = by_name(cli("doctor", "--json"))["bands of toy"]
    assert "other sources" in found["what"]
    assert found["mend"] == "gradcheck calibrate --op toy"


def test_a_command_fits_the_environment(monkeypatch, without, tmp_path):
    monkeypatch.setattr(machine, "_checkout", lambda: None)
    assert machine.install("gradcheck[ggml]") == f"{sys.executable} -m pip install 'gradcheck[ggml]'"
    monkeypatch.setattr(machine, "_checkout", lambda: tmp_path)
    assert machine.install("gradcheck[ggml]") == f"{sys.executable} -m pip install -e '{tmp_path}[ggml]'"
    without("pip")
    assert machine.install("numba") == f"uv pip install --python {sys.executable} numba"
