from __future__ import annotations

import sys
from pathlib import Path

import mlx.core as mx
import pytest

import gradcheck
from gradcheck import UsageError
from gradcheck.engine.tap import tap_custom_functions
from gradcheck.engine.target import load_package, load_target

KERNELS = Path(str(gradcheck.__file__)).parent / "kernels"  # of the checkout, or of the wheel


def write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py" if name != "init" else folder / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_module_is_found_by_name_and_the_attribute_may_be_dotted():
    assert load_target("math:pi") == pytest.approx(3.14159, abs=1e-5)
    assert load_target("collections:Counter.most_common").__name__ == "most_common"
    assert load_target("mlx.core:fast.rms_norm") is mx.fast.rms_norm


def test_a_module_of_the_given_folder_is_found_and_the_path_is_put_back(tmp_path):
    write(tmp_path, only_here_1="f = 1")
    before = list(sys.path)
    assert load_target("only_here_1:f", folder=tmp_path) == 1
    assert sys.path == before
    del sys.modules["only_here_1"]


def test_a_file_imports_its_siblings_and_two_folders_do_not_mix_them_up(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, _helper=f"NAME = {name!r}", kernel="from _helper import NAME\n\ndef f():\n    return NAME")
    before = list(sys.path)
    one = load_target("one/kernel.py:f", folder=tmp_path)
    two = load_target(f"{tmp_path}/two/kernel.py:f")
    assert (one(), two()) == ("one", "two")
    assert sys.path == before
    assert "_helper" not in sys.modules


def test_a_file_that_changed_is_loaded_anew(tmp_path):
    write(tmp_path, kernel="f = 1")
    assert load_target("kernel.py:f", folder=tmp_path) == 1
    write(tmp_path, kernel="f = 'changed'")
    assert load_target("kernel.py:f", folder=tmp_path) == "changed"


def test_a_file_of_a_package_may_import_relatively_from_any_level(tmp_path):
    write(tmp_path / "pkg", init="X = 3")
    write(
        tmp_path / "pkg" / "sub", init="", other="Y = 4", kernel="from .. import X\nfrom .other import Y\nimport other\nf = (X, Y, other.Y)"
    )
    assert load_target("pkg/sub/kernel.py:f", folder=tmp_path) == (3, 4, 4)


def test_a_file_named_mlx_does_not_hide_mlx(tmp_path):
    write(tmp_path, mlx="import mlx.core as mx\nf = mx.array")
    assert load_target("mlx.py:f", folder=tmp_path) is mx.array


@pytest.mark.parametrize(
    "target, says",
    [
        ("no.such:thing", "no module 'no'"),
        ("numpi:thing", "did you mean numpy?"),
        ("gradcheck.kernel.ssm_scan:x", "no module in gradcheck 'kernel'; did you mean 'kernels'"),
        ("gradcheck.kernels.ssm_scan.mlx:ssm_scn", "no attribute 'ssm_scn'; did you mean 'ssm_scan'"),
        ("nothing", "is not of the form"),
        (":attr", "is not of the form"),
        ("kernl.py:f", "did you mean kernel.py?"),
        ("nowhere/at/all.py:f", "no file"),
        ("kernel.py:scn", "no attribute 'scn'; did you mean 'scan'?"),
        ("kernel.py:scan.forwrd", "no attribute 'forwrd'; did you mean 'forward'?"),
        ("broken.py:f", "importing it raises SyntaxError"),
        ("needs.py:f", "importing it raises ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("needs:f", "importing it raises ModuleNotFoundError: No module named 'nosuchmodule'"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_what_is_near(tmp_path, target, says):
    write(tmp_path, kernel="class scan:\n    forward = 1", broken="def f(:", needs="import nosuchmodule")
    with pytest.raises(UsageError) as raised:
        load_target(target, folder=tmp_path)
    assert says in str(raised.value)
    assert target in str(raised.value)


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit()", "raise SystemExit('done')"])
def test_a_file_that_ends_the_process_when_it_is_imported_is_a_usage_error(tmp_path, end):
    write(tmp_path, script=f"import sys\n\ndef f(): ...\n\n{end}")
    with pytest.raises(UsageError, match=r"'script.py:f': importing it ends the process by SystemExit\(.*__main__"):
        load_target("script.py:f", folder=tmp_path)


def test_two_copies_of_a_package_live_side_by_side(tmp_path):
    for name in ("a", "b"):
        write(
            tmp_path / name,
            init="",
            other=f"X = {name!r}",
            kernel="from .other import X\n\ndef f():\n    from .other import X as later\n    return X, later",
        )
    a, b = (load_package(tmp_path / name, "kernel", "f") for name in ("a", "b"))
    assert (a(), b()) == (("a", "a"), ("b", "b"))


def test_a_package_that_changed_is_loaded_anew_with_its_modules(tmp_path):
    write(tmp_path / "a", init="", other="X = 1", kernel="from .other import X")
    assert load_package(tmp_path / "a", "kernel", "X") == 1
    write(tmp_path / "a", other="X = 'changed'")
    assert load_package(tmp_path / "a", "kernel", "X") == "changed"


def test_a_folder_that_is_no_package_is_loaded_as_its_file(tmp_path):
    write(tmp_path, helper="X = 1", kernel="from helper import X")
    assert load_package(tmp_path, "kernel", "X") == 1


def test_a_missing_module_of_a_package_is_named(tmp_path):
    write(tmp_path, init="", kernel="")
    with pytest.raises(UsageError, match=r"'kernl'; did you mean 'kernel'\?"):
        load_package(tmp_path, "kernl", "f")


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(lambda: load_package(KERNELS / "ssm_scan", "mlx", "_scan"), id="package"),
        pytest.param(lambda: load_target(f"{KERNELS}/ssm_scan/mlx.py:_scan"), id="file"),
    ],
)
def test_custom_functions_are_tapped_however_a_kernel_is_loaded(load):
    scan = load()
    inputs = [mx.ones(shape) for shape in ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1), (1,), (1, 1, 1, 1), (1, 1, 1, 1))]
    with tap_custom_functions() as calls:
        mx.vjp(scan, inputs, [mx.ones((1, 1, 1, 1))] * 2)
    assert [call.returned for call in calls] == [6]
