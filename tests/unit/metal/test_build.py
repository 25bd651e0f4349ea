"""Compiled once, found again, whoever else is at it; and without a compiler it says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck.metal import CompileError, MetalError, NoCompilerError, build, cache, launch, toolchain
from gradcheck.metal import compile as compiler
from gradcheck.metal.compile import Options
from gradcheck.metal.lines import line_table
from gradcheck.metal.signature import Shape, Text, sign
from gradcheck.metal.spaces import declares_pointer
from gradcheck.metal.unit import BODY_LINES, Job, make_unit

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


@pytest.mark.parametrize("change", ["source", "header", "checked", "contract", "math", "compiler", "headers", "runtime"])
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
    if change == "runtime":
        monkeypatch.setattr(build, "runtime_digest", lambda _: "another")
    after = {
        "source": lambda: key("out[0] = 2;"),
        "header": lambda: key(header="int x;"),
        "checked": lambda: key(options=Options(checked=True)),
        "contract": lambda: key(options=Options(contract="off")),
        "math": lambda: key(options=Options(math_mode="fast")),
    }.get(change, key)()
    assert after != before


def test_a_kernel_of_a_copied_package_is_the_same_and_only_the_edited_one_is_compiled(compilations: list[str], tmp_path: Path):
    """As `engine.mutate` copies a package for each mutant: its texts are read from another folder."""
    for package in ("original", "mutant"):
        (tmp_path / package).mkdir()
        for name in ("forward", "backward", "sum"):
            (tmp_path / package / f"{name}.metal").write_text(f"out[0] = a[0]; // {name} {tmp_path}")
    (tmp_path / "mutant/forward.metal").write_text(f"out[0] = a[1]; // {tmp_path}")
    for package in ("original", "mutant"):
        for name in ("forward", "backward", "sum"):
            build.build(job((tmp_path / package / f"{name}.metal").read_text(), name=name), Options(checked=True))
    assert len(compilations) == 4
    assert "a[1]" in compilations[3]


def test_a_kernel_is_bound_to_its_own_runtime_whatever_else_the_process_has_loaded(tmp_path: Path):
    """An imposter defines the runtime's functions for everyone to see, as another version of the runtime would."""
    source = tmp_path / "imposter.cpp"
    source.write_text('extern "C" { void* gcm_threadgroup_memory() { __builtin_trap(); } void __tsan_read4() { __builtin_trap(); } }')
    flags = ["-shared", "-fPIC", "-nostdlib", "-fno-sanitize=all", "-Wno-everything", str(source), "-o", str(tmp_path / "imposter.so")]
    subprocess.run([*toolchain.find().driver, *flags], check=True)
    code = f"""import ctypes, sys
ctypes.CDLL({str(tmp_path / "imposter.so")!r}, mode=ctypes.RTLD_GLOBAL)
import numpy as np
from tests.unit.metal.test_build import job
from gradcheck.metal import abi, build, compile, launch, toolchain
built = build.build(job("threadgroup float s[1]; s[0] = a[0]; out[0] = s[0];"), build.Options(checked=True))
buffers = (launch.Buffer("a", abi.INPUT, np.full(64, 7, np.float32), 4), launch.Buffer("out", abi.OUTPUT, np.zeros(1, np.float32), 4))
done = launch.launch(launch.Launch(compile.runtime(toolchain.find()), built.library, built.entry, "", buffers, (1, 1, 1), (1, 1, 1), True, "in-order", 0, 1))
print(done.outputs[0].view(np.float32)[0], len(done.reports))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.stdout == "7.0 0\n", done.stderr


def test_kernels_of_two_caches_run_in_one_process(tmp_path: Path):
    """Each cache has its copy of the runtime, under one name; both kernels are checked by the copy that they are bound to."""
    code = """import os, numpy as np
from tests.unit.metal.test_build import job
from gradcheck.metal import abi, build, compile, launch, toolchain
for cache in os.environ["CACHES"].split(":"):
    os.environ["GRADCHECK_CACHE_DIR"] = cache
    built = build.build(job("threadgroup float s[1]; s[0] = a[0]; out[0] = s[0];"), build.Options(checked=True))
    buffers = (launch.Buffer("a", abi.INPUT, np.full(64, 7, np.float32), 4), launch.Buffer("out", abi.OUTPUT, np.zeros(1, np.float32), 4, False))
    done = launch.launch(launch.Launch(compile.runtime(toolchain.find()), built.library, built.entry, "", buffers, (1, 1, 1), (1, 1, 1), True, "in-order", 0, 1))
    print(done.outputs[0].view(np.float32)[0], len(done.reports))"""
    build.build(job("out[0] = 1;"), Options(checked=True))
    for name in "ab":
        shutil.copytree(cache.folder(), tmp_path / name / "metal", ignore=shutil.ignore_patterns(".*"))  # what others write now
    environment = {**os.environ, "CACHES": f"{tmp_path / 'a'}:{tmp_path / 'b'}"}
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root, env=environment)
    assert done.stdout == "7.0 0\n7.0 0\n", done.stderr


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


CROSSINGS = {
    "a variable": ("threadgroup float s[4];\ndevice float* q = s;", "", "k.metal:2:15", "device float *' with an lvalue of type 'threadgroup float[4]"),
    "an assignment": ("threadgroup float s[4];\nconst device float* p = a; p = s;", "", "k.metal:2:32", "threadgroup float[4]"),
    "a call": ("threadgroup float s[4];\nout[0] = f(s);", "float f(device float* p) { return p[0]; }\n", "k.metal:2:10", "'device float *' for 1st"),
    "a template": ("threadgroup float s[4];\nout[0] = f(s);", "template <class T> T f(const device T* p) { return *p; }\n", "k.metal:2:10", "deduced type"),
    "private memory": ("float s[4];\nout[0] = f(s);", "float f(device float* p) { return p[0]; }\n", "k.metal:2:10", "from 'float[4]' to 'device"),
    "a return": ("threadgroup float s[4]; f(s);", "device float* f(threadgroup float* p) {\n  return p; }\n", "k.header.metal:2:10", "threadgroup float *"),
    "a field": ("threadgroup float s[4]; S x;\nx.p = s;", "struct S { device float* p; };\n", "k.metal:2:7", "threadgroup float[4]"),
}  # fmt: skip


@pytest.mark.parametrize("way", CROSSINGS)
def test_a_pointer_handed_to_another_address_space_does_not_compile_in_checked_mode(way: str):
    source, header, where, what = CROSSINGS[way]
    with pytest.raises(CompileError, match=rf"{re.escape(where)}: error: .*{re.escape(what)}"):
        build.build(job(source + "\nout[0] = 1;", header), Options(checked=True))
    build.build(job(source + "\nout[0] = 1;", header), PLAIN)  # C++ has nothing against it


@pytest.mark.parametrize(
    "source, header",
    [
        ("threadgroup float s[4];\nthreadgroup float* q = s;\nq[0] = a[0]; out[0] = q[0];", ""),
        ("threadgroup bfloat s[2]; threadgroup bfloat* b = s; b[0] = bfloat(a[0]); float f = b[0]; bfloat c = b[0]; out[0] = f + c;", ""),
        ("const device float4* p = (const device float4*)a; float4 v = p[0]; p += 1; out[0] = dot(v, p[0]) + v.x;", ""),
        ("threadgroup bfloat s[2]; s[0] = bfloat(1); out[0] = f(out, s[0]);", "float f(device float* p, bfloat b) { return b; }\nfloat f(threadgroup float* p, bfloat b) { return b; }\n"),
        ("threadgroup atomic<int> n; threadgroup atomic<int>* m = &n; atomic_store_explicit(m, 1, memory_order_relaxed); out[0] = 1;", ""),
        ("float s[4] = {a[0]}; f(s); out[0] = s[0] + L;", "constant constexpr float L = 2;\nvoid f(thread float* p) { p[0] += 1; }\n"),
    ],
)  # fmt: skip
def test_pointers_that_keep_to_their_address_space_compile(source: str, header: str):
    assert isinstance(build.build(job(source, header), Options(checked=True)), build.Built)


def test_of_many_kernels_the_one_that_crosses_address_spaces_is_wrong(tmp_path: Path):
    good = [job(f"device float* q = out; q[0] = {value}; // {tmp_path}") for value in range(3)]
    bad = job(f"threadgroup float s[1];\ndevice float* q = s; q[0] = 1; // {tmp_path}")
    made = build.build_many([good[0], bad, *good[1:]], Options(checked=True))
    assert [isinstance(one, CompileError) for one in made] == [False, True, False, False]
    assert "k.metal:2:15: error" in str(made[1])


@pytest.mark.parametrize(
    "text, answer",
    [
        ("device float* p = a;", True),
        ("f((const device metal::vec<float, 4>*)a);", True),
        ("void f(thread T& x);", True),
        ("auto p = a + 3;", False),
        ("threadgroup float s[32]; constant float L = 2 * 3; // device float* p", False),
    ],
)
def test_a_text_that_declares_a_pointer_is_told(text: str, *, answer: bool):
    assert declares_pointer(text) is answer


def test_the_swizzles_that_few_kernels_use_are_there_for_those(compilations: list[str], tmp_path: Path):
    # In a macro too, which is why a text is searched and not its tokens.
    texts = ["out[0] = v.xxy.z + v.wzyx.x;", "out[0] = v.TWICE.z;", "out[0] = v.wzyx.x;"]
    units = [
        make_unit((job(f"float4 v = float4(a[0]); {text} // {tmp_path}", "#define TWICE xyzz\n" * ("TWICE" in text)),)) for text in texts
    ]
    assert [unit.defines for unit in units] == [("GCM_ALL_SWIZZLES",), ("GCM_ALL_SWIZZLES",), ()]
    for text in texts:
        build.build(job(f"float4 v = float4(a[0]); {text}", "#define TWICE xyzz\n" * ("TWICE" in text)), PLAIN)


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


@pytest.mark.parametrize("mode, says", [(0o702, "can be written by everybody"), (0o720, "can be written by group"), (0o1702, "everybody")])
def test_a_library_that_others_can_write_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, says: str):
    monkeypatch.setattr("os.getegid", lambda: tmp_path.stat().st_gid + 1)  # else the group is this user's own
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: pytest.fail("it was executed"))
    library = tmp_path / "kernel.so"
    library.write_bytes(b"")
    if tmp_path.stat().st_gid == 0:
        os.chown(library, -1, 4242)
    library.chmod(mode)
    with pytest.raises(MetalError, match=f"{library} is not loaded: it .*{says}.*gradcheck cache clear metal"):
        launch._load(str(library))


def test_a_library_of_another_user_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = tmp_path / "kernel.so"
    library.write_bytes(b"")
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    monkeypatch.setattr("gradcheck.metal.cache._ROOT", 4243)
    with pytest.raises(MetalError, match=f"{library} is not loaded: it belongs to user {library.stat().st_uid}"):
        launch._load(str(library))


def test_a_library_that_is_not_whole_is_compiled_anew():
    made = build.build(job("out[0] = 3;"), PLAIN)
    whole = made.library.read_bytes()
    made.library.write_bytes(whole[: len(whole) // 2])
    again = build.build(job("out[0] = 3;"), PLAIN)
    assert len(again.library.read_bytes()) == len(whole)
    launch._load(str(compiler.runtime(toolchain.find())))
    launch._load(str(again.library))


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
