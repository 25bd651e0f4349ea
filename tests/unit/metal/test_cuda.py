"""A Metal text as CUDA: what is made of it, that NVIDIA's compiler takes it, and that what it refuses is told by the Metal line."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from gradcheck.metal import CompileError, NoCompilerError, beside, gpu, metal_kernel, nvrtc
from gradcheck.metal import kernel as kernels
from gradcheck.metal.cuda import SIZE, CudaText, fitted, rewrite, translate
from gradcheck.metal.executor import Launched
from gradcheck.metal.observe import observed
from gradcheck.metal.signature import Shape, Text, sign

SCALED = """\
threadgroup float terms[32];
uint i = thread_position_in_grid.x;
terms[thread_index_in_simdgroup] = static_cast<float>(x[i]);
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = static_cast<T>(simd_sum(terms[thread_index_in_simdgroup]) * 0.5 + x_shape[0]);
"""


def scaled(source: str = SCALED, *, ragged: bool = False, dtype: str = "float16") -> CudaText:
    text = Text("scaled", ("x",), ("out",), source)
    return translate(text, sign(text, [Shape(dtype, scalar=False, small=False)], [dtype], (("T", dtype),)), ragged=ragged)


@pytest.fixture
def compiler() -> nvrtc.Compiler:
    try:
        return nvrtc.find()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("metal", "cuda"),
    [
        ("threadgroup float a[4], b;", "__shared__ alignas(16) float a[4], b;"),
        ("threadgroup float* p = a;", " float* p = a;"),
        ("const device float* p; device const int& q", "const  float* p;  const int& q"),
        ("constant float* p;", "const float* p;"),
        ("const constant float* p;", "const  float* p;"),
        ("float a = 1.0, b = 1e3, c = 1.5f, d = 0x1F;", "float a = 1.0f, b = 1e3f, c = 1.5f, d = 0x1F;"),
        ("half h = 1.5h; bfloat b = 2.0bf;", "half h = half(1.5f); bfloat b = bfloat(2.0f);"),
        ("#include <metal_stdlib>\nx;", "\nx;"),
        ("// a device of 1.0\n", "// a device of 1.0\n"),
        ("#define EPS 1e-3\nEPS;", "#define EPS 1e-3f\nEPS;"),
        ("half h = 1e2h;", "half h = half(1e2f);"),
    ],
)
def test_words_of_metal_become_words_of_cuda(metal: str, cuda: str):
    assert rewrite(metal) == cuda


def test_a_constant_of_the_program_is_one():
    assert rewrite("constexpr constant int LANES = 32;", program=True) == "constexpr  int LANES = 32;"


def test_of_overloads_by_address_space_one_is_left():
    both = "float f(device float* p) { return *p; }\nfloat f(threadgroup float* p) { return *p; }\n"
    assert rewrite(both, program=True).count("float f(") == 1


def test_the_kernel_gets_its_arguments_in_their_own_types():
    text = scaled()
    assert "reinterpret_cast<const ::metal::float16_t*>(x), x_shape.data(), reinterpret_cast<::metal::float16_t*>(out)" in text.source
    assert text.input_names == ("x",)


def test_a_ragged_grid_is_handed_over_and_what_lies_outside_ends_at_once():
    text = scaled(ragged=True)
    assert text.input_names == ("x", SIZE)
    assert f"{SIZE}[0], {SIZE}[1], {SIZE}[2]" in text.source
    assert "at.position.x >= at.grid.x" in text.source


@pytest.mark.parametrize(
    ("grid", "threadgroup", "want"),
    [
        ((64, 4, 1), (32, 4, 1), ((32, 4, 1), False)),
        ((32, 18, 2), (32, 16, 1), ((32, 16, 1), True)),
        ((8, 1, 1), (256, 1, 1), ((8, 1, 1), False)),
        ((300, 1, 1), (256, 1, 1), ((256, 1, 1), True)),
    ],
)
def test_a_threadgroup_is_as_large_as_metal_makes_it(grid: Any, threadgroup: Any, want: Any):
    assert fitted(grid, threadgroup) == want


def test_lanes_that_would_be_others_than_metals_are_refused():
    with pytest.raises(ValueError, match=r"grid \(33, 4, 1\) is no multiple of the threadgroup \(32, 4, 1\)"):
        fitted((33, 4, 1), (32, 4, 1))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_small_kernel_compiles(dtype: str, ragged: bool):  # noqa: FBT001 - a parameter of the test
    text = scaled(ragged=ragged, dtype=dtype)
    assert nvrtc.check(nvrtc.unit(text), "scaled") == ""


@pytest.fixture
def nvidia(compiler: nvrtc.Compiler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that a machine with an NVIDIA GPU would have run: here they are compiled, and give zeros."""
    assert compiler
    names: list[str] = []

    def cuda_kernel(text: CudaText, name: str, _: bool) -> Any:  # noqa: FBT001 - as the one it stands for
        assert nvrtc.check(nvrtc.unit(text), name) == ""
        names.append(name)
        return lambda **asked: [mx.zeros(*one) for one in zip(asked["output_shapes"], asked["output_dtypes"], strict=True)]

    monkeypatch.setattr(gpu, "cuda_kernel", cuda_kernel)
    monkeypatch.setattr(kernels, "place", lambda: "metal-cuda")
    return names


def gradients(function: Any, primals: list[mx.array]) -> None:
    mx.eval(mx.vjp(function, primals, list(function(*primals))))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("branch", ["mamba1", "mamba2"])
def test_the_selective_scan_compiles(branch: str, dtype: mx.Dtype, nvidia: list[str], monkeypatch: pytest.MonkeyPatch):
    from gradcheck.kernels.ssm_scan import metal

    monkeypatch.setattr(beside, "kernel", beside.kernel.__wrapped__)
    B, T, H, P, N, G = 1, 3, 4, 5, 40, 2
    A = (H, N) if branch == "mamba1" else (H,)
    shapes = [(B, H, P, N), (B, T, H, P), (B, T, H), A, (B, T, G, N), (B, T, G, N)]
    gradients(metal.ssm_scan, [mx.zeros(shape, dtype) for shape in shapes])
    assert {"ssm_scan_forward", "ssm_scan_backward", "ssm_scan_sum"} == set(nvidia)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("gate", ["scalar", "vector"])
def test_the_gated_delta_rule_compiles(gate: str, dtype: mx.Dtype, nvidia: list[str], monkeypatch: pytest.MonkeyPatch):
    from gradcheck.kernels.gated_delta import metal

    monkeypatch.setattr(beside, "kernel", beside.kernel.__wrapped__)
    B, T, Hk, Hv, Dk, Dv = 1, 3, 2, 4, 40, 5
    g = (B, T, Hv) if gate == "scalar" else (B, T, Hv, Dk)
    shapes = [(B, T, Hk, Dk), (B, T, Hk, Dk), (B, T, Hv, Dv), g, (B, T, Hv), (B, Hv, Dv, Dk)]
    mask = mx.array([[True, False, True]]) if gate == "vector" else None
    gradients(lambda *primals: metal.gated_delta(*primals, mask), [mx.zeros(shape, dtype) for shape in shapes])
    assert {"gated_delta_forward", "gated_delta_backward", "gated_delta_sum"} == set(nvidia)


@pytest.mark.usefixtures("compiler")
def test_what_does_not_compile_is_told_by_its_line_of_the_metal_text():
    text = scaled(SCALED.replace("simd_sum", "simd_sun"))
    with pytest.raises(CompileError, match=r'scaled\.metal\(5\): error: identifier "simd_sun" is undefined'):
        nvrtc.check(nvrtc.unit(text), "scaled")


def test_without_the_compiler_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    nvrtc.find.cache_clear()
    try:
        with pytest.raises(NoCompilerError, match=r"pip install nvidia-cuda-nvrtc"):
            nvrtc.find()
    finally:
        nvrtc.find.cache_clear()


def test_on_an_nvidia_gpu_the_call_goes_to_mlx_and_is_told_as_metal_cuda(monkeypatch: pytest.MonkeyPatch):
    made: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []

    def cuda_kernel(**asked: Any) -> Any:
        made.append(asked)
        return lambda **arguments: calls.append(arguments) or [mx.zeros((40,))]  # type: ignore[func-returns-value] # None is what is wanted

    monkeypatch.setattr(mx.fast, "cuda_kernel", cuda_kernel)
    monkeypatch.setattr(kernels, "place", lambda: "metal-cuda")
    seen: list[Launched] = []
    scale = metal_kernel("told_as_cuda", ["x"], ["out"], "out[thread_position_in_grid.x] = x[thread_position_in_grid.x] * N;")
    with observed(seen.append):
        for _ in range(2):
            scale(
                inputs=[mx.ones(40)],
                output_shapes=[(40,)],
                output_dtypes=[mx.float32],
                grid=(40, 1, 1),
                threadgroup=(32, 1, 1),
                template=[("N", 2)],
            )
    assert [one.place for one in seen] == ["metal-cuda", "metal-cuda"]
    assert len(made) == 1  # compiled once
    assert made[0]["input_names"] == ["x", SIZE]
    assert calls[0]["grid"] == (64, 1, 1)
    assert calls[0]["inputs"][1].tolist() == [40, 1, 1]
    assert "template" not in calls[0]
