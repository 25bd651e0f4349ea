"""Compiled once, found again, whoever else is at it; and without a compiler it says what to install."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck.metal import CompileError, MetalError, NoCompilerError, build, cache, toolchain
from gradcheck.metal import compile as compiler
from gradcheck.metal.compile import Options
from gradcheck.metal.lines import line_table
from gradcheck.metal.signature import Shape, Text, sign
from gradcheck.metal.spaces import space_errors
from gradcheck.metal.unit import BODY_LINES, Job

PLAIN = Options()


def job(source: str, header: str = "", name: str = "k") -> Job:
    text = Text(name, ("a",), ("out",), source, header)
    return Job(text, sign(text, [Shape.of("float32", 1, 64)], ["float32"]))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were compiled."""
    seen: list[str] = []
    before = build.compile_kernel

    def counted(text: str, *rest: object, **more: object) -> str:
        seen.append(text)
        return before(text, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "compile_kernel", counted)
    return seen


def test_a_kernel_is_compiled_once(compilations: list[str], tmp_path: Path):
    mark = f"out[0] = a[0]; // {tmp_path}"
    first, second = (build.build(job(mark), PLAIN) for _ in range(2))
    assert first == second
    assert len(compilations) == 1


@pytest.mark.parametrize("change", ["source", "header", "checked", "contract", "math", "compiler", "headers"])
def test_whatever_the_code_depends_on_is_in_the_key(change: str, monkeypatch: pytest.MonkeyPatch):
    def key(source: str = "out[0] = 1;", header: str = "", options: Options = PLAIN) -> str:
        return build._key(job(source, header), options)

    before = key()
    assert key() == before
    found = toolchain.find()
    if change == "compiler":
        monkeypatch.setattr(toolchain, "find", lambda: replace(found, version="another"))
    if change == "headers":
        monkeypatch.setattr(build, "headers_digest", lambda: "another")
    after = {
        "source": lambda: key("out[0] = 2;"),
        "header": lambda: key(header="int x;"),
        "checked": lambda: key(options=Options(checked=True)),
        "contract": lambda: key(options=Options(contract="off")),
        "math": lambda: key(options=Options(math_mode="fast")),
    }.get(change, key)()
    assert after != before


def test_many_kernels_are_compiled_together_and_each_is_found_alone(compilations: list[str], tmp_path: Path):
    header = "#include <metal_stdlib>\n#define VALUE {}\nfloat value() {{ return VALUE; }} // {}\n"
    jobs = [job("out[0] = value();", header.format(i, tmp_path)) for i in range(5)]
    built = build.build_many(jobs, PLAIN)
    assert all(isinstance(one, build.Built) for one in built)
    assert len({(one.library, one.entry) for one in built if isinstance(one, build.Built)}) == 5
    assert len(compilations) < 5
    compilations.clear()
    assert [build.build(one, PLAIN) for one in jobs] == built
    assert compilations == []


def test_one_wrong_kernel_among_many_does_not_spoil_the_others(tmp_path: Path):
    jobs = [job(f"out[0] = {value}; // {tmp_path}") for value in ("1", "nothing", "2", "3")]
    first, wrong, *others = build.build_many(jobs, PLAIN)
    assert isinstance(wrong, CompileError)
    assert "k.metal:1:10: error: use of undeclared identifier 'nothing'" in str(wrong)
    assert all(isinstance(one, build.Built) for one in (first, *others))


def test_two_processes_at_once_on_an_empty_cache(tmp_path: Path):
    code = (
        "from tests.unit.metal.test_build import job; from gradcheck.metal import build, launch\n"
        "built = build.build(job('out[0] = a[0];'), build.Options())\n"
        "import ctypes; ctypes.CDLL(str(built.library)).gcm_entry; print(built.library)"
    )
    root = str(Path(__file__).parents[3])
    environment = {"GRADCHECK_CACHE_DIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": root, "HOME": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=root)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert [path.name for path in (tmp_path / "metal").iterdir() if path.name.startswith(".")] == []


def test_a_straight_kernel_has_a_loop_and_one_that_waits_has_none():
    assert build.build(job("out[thread_position_in_grid.x] = 1;"), PLAIN).loop == "gcm_loop"
    assert build.build(job("out[thread_position_in_grid.x] = simd_sum(1.0f);"), PLAIN).loop == ""
    assert build.build(job("out[thread_position_in_grid.x] = 1;"), Options(checked=True)).loop == ""


def test_the_line_table_of_a_checked_kernel_is_read():
    built = build.build(job("\n\nout[thread_position_in_grid.x] = a[thread_position_in_grid.x];"), Options(checked=True))
    rows = line_table(built.library)
    assert {line for _, file, line, _ in rows if file == "k.metal"} == {BODY_LINES + 3, BODY_LINES + 4}  # and the closing brace
    assert list(rows) == sorted(rows, key=lambda row: row[0])


def test_a_file_that_is_no_library_has_no_lines(tmp_path: Path):
    (tmp_path / "x.so").write_bytes(b"not an ELF file")
    assert line_table(tmp_path / "x.so") == ()


def test_a_lambda_and_an_uninitialised_variable_are_warnings():
    said = build.build(job("auto f = [&](float x) { return x; };\nfloat y;\nout[0] = f(y);"), Options(checked=True)).warnings
    assert any(one.startswith("k.metal:1:10: warning: a lambda") for one in said)
    assert any("k.metal:3" in one and "uninitialized" in one for one in said)


def test_address_spaces_that_are_mixed_up_are_found_at_their_place():
    (found,) = space_errors(job("threadgroup float s[4];\ndevice float* q = s;\nq[0] = 1;"))
    assert str(found.place) == "k.metal:2:15"
    assert "device float *" in found.message
    assert "threadgroup float" in found.message
    assert space_errors(job("threadgroup float s[4];\nthreadgroup float* q = s;\nq[0] = a[0]; out[0] = q[0];")) == ()


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_zig", lambda: None)
    toolchain._find.cache_clear()
    with pytest.raises(NoCompilerError, match=r"clang 16 or newer on PATH.*pip install 'ziglang>=0.14'.*gradcheck\[cpu\]"):
        toolchain.find()
    toolchain._find.cache_clear()


def test_a_compiler_that_is_named_and_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRADCHECK_METAL_CXX", "/bin/false")
    with pytest.raises(NoCompilerError, match="Tried and not fit: /bin/false: does not run"):
        toolchain.find()


@pytest.mark.parametrize(
    "said, number",
    [
        ("Debian clang version 19.1.7 (3~deb12u1)\nTarget: x", 19),
        ("clang version 22.1.8", 22),
        ("Apple clang version 15.0.0 (clang-1500)", 16),
        ("g++ (Debian 12.2.0) 12.2.0", None),
    ],
)
def test_the_release_of_a_clang_is_read(said: str, number: int | None):
    assert toolchain._number(said) == number


def test_code_is_not_loaded_from_where_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path))
    (tmp_path / "metal").mkdir()
    (tmp_path / "metal").chmod(0o777)
    with pytest.raises(MetalError, match=f"{tmp_path}/metal can be written by everybody.*chmod go-w"):
        cache.folder()
    (tmp_path / "metal").chmod(0o700)
    assert cache.folder() == tmp_path / "metal"


def test_a_cache_that_cannot_be_made_is_replaced_by_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "file"))
    assert cache.folder().stat().st_mode & 0o077 == 0


def test_the_compiler_does_not_hear_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(tmp_path))
    (tmp_path / "hidden.h").write_text("int hidden;")
    with pytest.raises(CompileError, match=r"hidden\.h"):
        build.build(job("out[0] = 1;", "#include <hidden.h>\n"), PLAIN)


def test_every_file_that_is_compiled_is_in_the_package():
    assert (compiler.INCLUDE / "gcm/abi.h").is_file()
    assert list(compiler.RUNTIME.glob("*.cpp"))
