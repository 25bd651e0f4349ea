"""A kernel called as MLX's are gives what MLX's give, or MLX's error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
import pytest

from gradcheck.metal import CompileError, configured, metal_kernel, place

E = "uint e = thread_position_in_grid.x;\n"


def call(source: str, inputs: Sequence[object], shape: Sequence[int], dtype: mx.Dtype = mx.float32, **more: object) -> mx.array:
    names = [f"a{i}" for i in range(len(inputs))]
    about = {
        name: more.pop(name) for name in ("name", "header", "ensure_row_contiguous", "atomic_outputs", "compile_options") if name in more
    }
    kernel = metal_kernel(about.pop("name", "k"), names, ["out"], source, **about)  # type: ignore[arg-type]
    size = int(np.prod(shape))
    given = {"grid": (size, 1, 1), "threadgroup": (min(size, 64), 1, 1), "output_shapes": [shape], "output_dtypes": [dtype]} | more
    (out,) = kernel(inputs=inputs, **given)
    return out


@pytest.fixture(autouse=True, params=["plain", "checked"])
def _mode(request: pytest.FixtureRequest):
    with configured(mode=request.param):
        yield


def test_it_says_where_it_runs():
    assert place() == ("metal" if mx.metal.is_available() else "metal-cpu")


def test_each_element_by_its_own_thread():
    a = mx.arange(100).astype(mx.float32).reshape(4, 25)
    out = call(E + "out[e] = 2 * a0[e];", [a], (4, 25))
    assert out.dtype == mx.float32
    assert mx.array_equal(out, 2 * a)


@pytest.mark.parametrize(
    "dtype",
    [mx.float32, mx.float16, mx.bfloat16, mx.int8, mx.int16, mx.int32, mx.int64, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.bool_],
    ids=lambda dtype: str(dtype).rpartition(".")[2],
)
def test_values_of_every_dtype_go_in_and_out_unchanged(dtype: mx.Dtype):
    a = (mx.arange(40) % 2 if dtype == mx.bool_ else mx.arange(40)).astype(dtype)
    out = call(E + "out[e] = a0[e];", [a], (40,), dtype)
    assert out.dtype == dtype
    assert mx.array_equal(out, a)


def test_scalars_small_inputs_and_template_arguments():
    source = E + "T x = a0; out[e] = flag ? x + a1[2] + n : 0;"
    template = [("flag", True), ("n", -3), ("T", mx.float16)]
    assert call(source, [0.5, mx.array([1, 2, 3])], (6,), template=template).tolist() == [0.5] * 6
    assert call(source, [0.5, mx.array([1, 2, 3])], (6,), template=[("flag", False), *template[1:]]).tolist() == [0] * 6


def test_two_outputs_of_two_dtypes():
    kernel = metal_kernel("two", ["a"], ["lo", "hi"], E + "lo[e] = a[e]; hi[e] = a[e] / 256;")
    lo, hi = kernel(
        inputs=[mx.array([1, 257, 700])],
        output_shapes=[(3,), (3,)],
        output_dtypes=[mx.uint8, mx.int32],
        grid=(3, 1, 1),
        threadgroup=(3, 1, 1),
    )
    assert (lo.tolist(), lo.dtype) == ([1, 1, 188], mx.uint8)
    assert (hi.tolist(), hi.dtype) == ([0, 1, 2], mx.int32)


def test_a_kernel_without_inputs():
    assert call(E + "out[e] = e;", [], (5,)).tolist() == [0, 1, 2, 3, 4]


def test_rows_are_copied_next_to_each_other_unless_told_otherwise():
    a = mx.arange(24).astype(mx.float32).reshape(4, 6).T
    assert mx.array_equal(call(E + "out[e] = a0[e];", [a], (6, 4)), a)
    strided = E + "out[e] = a0[e / 4 * a0_strides[0] + e % 4 * a0_strides[1]];"
    assert mx.array_equal(call(strided, [a], (6, 4), ensure_row_contiguous=False), a)
    assert mx.array_equal(call(strided, [a], (6, 4)), a)
    assert not mx.array_equal(call(E + "out[e] = a0[e];", [a], (6, 4), ensure_row_contiguous=False), a)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[:, ::2], lambda a: a[1:3], lambda a: mx.broadcast_to(a[:1], (4, 6)), lambda a: a[::-1], lambda a: a.astype(mx.bfloat16).T],
    ids=["every second", "slice", "broadcast", "reversed", "bfloat16"],
)
def test_strided_inputs_are_read_by_mlx_s_own_index_function(view: Callable[[mx.array], mx.array]):
    a = view(mx.arange(24).astype(mx.float32).reshape(4, 6))
    out = call(E + "out[e] = a0[elem_to_loc(e, a0_shape, a0_strides, a0_ndim)];", [a], a.shape, a.dtype, ensure_row_contiguous=False)
    assert mx.array_equal(out, a)


def test_attributes_are_where_the_thread_is():
    source = """
        uint3 g = threadgroup_position_in_grid, t = thread_position_in_threadgroup, n = threads_per_threadgroup;
        uint3 p = thread_position_in_grid, all = threads_per_grid;
        bool right = p.x == g.x * 4 + t.x && p.y == g.y * 2 + t.y && all.x == 10 && all.y == 4 && threads_per_simdgroup == 32
            && thread_index_in_threadgroup == t.x + n.x * t.y && n.x == (g.x == 2 ? 2 : 4) && threadgroups_per_grid.x == 3;
        out[p.x + 10 * p.y] = right;
    """
    assert call(source, [], (4, 10), mx.bool_, grid=(10, 4, 1), threadgroup=(4, 2, 1)).all()


def test_threads_of_a_threadgroup_share_memory_and_meet_at_barriers():
    source = """
        threadgroup float s[64];
        uint l = thread_position_in_threadgroup.x;
        s[l] = a0[thread_position_in_grid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[thread_position_in_grid.x] = s[63 - l];
    """
    a = mx.arange(128).astype(mx.float32)
    assert mx.array_equal(call(source, [a], (128,)), a.reshape(2, 64)[:, ::-1].reshape(128))


def test_lanes_of_a_simdgroup_add_up():
    a = mx.arange(64).astype(mx.float32)
    out = call("out[thread_position_in_grid.x] = simd_sum(a0[thread_position_in_grid.x]);", [a], (64,))
    assert out.tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


def test_a_literal_is_a_float_in_a_template_too():
    source = E + "out[e] = e ? sizeof(HALF * T(1)) : 0.1 * T(3) == 0.1f * T(3);"  # in double 0.1 * 3 is another number
    assert call(source, [], (2,), header="#define HALF 0.5\n", template=[("T", mx.float32)]).tolist() == [1, 4]


def test_helpers_stand_in_the_header():
    header = "template <typename T> T twice(T x) { return x + x; }"
    assert call(E + "out[e] = twice(a0[e]);", [mx.ones(9)], (9,), header=header).tolist() == [2] * 9


def test_one_name_and_two_texts_are_two_kernels():
    first, second = (call(E + f"out[e] = {value};", [], (4,), name="same") for value in (1, 2))
    assert (first.tolist(), second.tolist()) == ([1] * 4, [2] * 4)


def test_one_kernel_takes_inputs_of_any_dtype():
    kernel = metal_kernel("any", ["a"], ["out"], E + "out[e] = a[e] + a[e];")
    for dtype in (mx.float16, mx.float32, mx.int32):
        (out,) = kernel(
            inputs=[mx.full((9,), 3, dtype)], output_shapes=[(9,)], output_dtypes=[dtype], grid=(9, 1, 1), threadgroup=(9, 1, 1)
        )
        assert (out.tolist(), out.dtype) == ([6] * 9, dtype)


def test_init_value_is_what_an_output_holds_before():
    out = call("if (thread_position_in_grid.x == 1) out[1] = 5;", [], (3,), mx.bfloat16, init_value=1.5)
    assert out.tolist() == [1.5, 5, 1.5]


def test_atomic_outputs():
    source = "atomic_fetch_add_explicit(&out[thread_position_in_grid.x % 2], 1, memory_order_relaxed);"
    out = call(source, [], (2,), mx.int32, atomic_outputs=True, init_value=0, grid=(100, 1, 1), threadgroup=(32, 1, 1))
    assert out.tolist() == [50, 50]


def test_arrays_of_no_elements():
    out = call(E + "if (a0_shape[0]) out[e] = a0[e];", [mx.zeros((0, 3))], (2,), init_value=7.0)
    assert out.tolist() == [7, 7]
    assert call(E + "out[e] = 1;", [], (0,), grid=(0, 1, 1), threadgroup=(1, 1, 1)).shape == (0,)


@pytest.mark.parametrize("mode, fast", [("safe", 0), ("fast", 1)])
def test_the_math_mode_reaches_the_compiler(mode: str, fast: int):
    source = "#if defined(__FAST_MATH__) && __FAST_MATH__\nout[0] = 1;\n#else\nout[0] = 0;\n#endif\n"
    assert call(source, [], (1,), compile_options={"math_mode": mode}).tolist() == [fast]


def test_verbose_prints_the_source(capsys: pytest.CaptureFixture[str]):
    call(E + "out[e] = 1;", [], (3,), name="shown", verbose=True)
    said = capsys.readouterr().out
    assert said.startswith("Generated source code for `shown`:\n```\n[[kernel]] void custom_kernel_shown_float32(")
    assert "out[e] = 1;" in said


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"output_names": []}, "at least one output"),
        ({"compile_options": {"math_mode": "precise"}}, "'safe', 'relaxed', or 'fast'"),
        ({"compile_options": {"other": "x"}}, "Unknown compile option `other`"),
        ({"compile_options": ["math_mode"]}, "to be a dict"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused_when_it_is_made(changes: dict[str, object], message: str):
    arguments = {"name": "k", "input_names": ["a"], "output_names": ["out"], "source": ""} | changes
    with pytest.raises(ValueError, match=message):
        metal_kernel(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"inputs": []}, "Expected `inputs` to have size 1 but got size 0"),
        ({"output_shapes": []}, "Expected `output_shapes` to have size 1 but got size 0"),
        ({"output_dtypes": [mx.float32] * 2}, "Expected `output_dtypes` to have size 1 but got size 2"),
        ({"template": [("T", 1.5)]}, "Invalid template argument"),
        ({"threadgroup": (1025, 1, 1)}, "1025.*1024"),
        ({"threadgroup": (0, 1, 1)}, "no thread"),
        ({"grid": (-1, 1, 1)}, "below zero"),
        ({"stream": mx.cpu}, "Only supports the GPU"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changes: dict[str, object], message: str):
    kernel = metal_kernel("k", ["a"], ["out"], "out[0] = a[0];")
    arguments = {
        "inputs": [mx.ones(3)],
        "output_shapes": [(3,)],
        "output_dtypes": [mx.float32],
        "grid": (1, 1, 1),
        "threadgroup": (1, 1, 1),
    }
    with pytest.raises(ValueError, match=message):
        kernel(**(arguments | changes))


def double(x: mx.array) -> mx.array:
    return call(E + "out[e] = 2 * a0[e];", [x], x.shape)


def test_a_gradient_through_a_bare_kernel_raises_and_is_not_zero():
    with pytest.raises(ValueError, match=r"vjp.*Not implemented for CustomKernel"):
        mx.grad(lambda x: double(x).sum())(mx.ones(3))
    with pytest.raises(ValueError, match=r"jvp.*Not implemented for CustomKernel"):
        mx.jvp(double, [mx.ones(3)], [mx.ones(3)])


def test_a_gradient_beside_a_kernel_is_what_it_is():
    y = mx.ones(3)
    assert mx.grad(lambda x: (x * double(y)).sum())(mx.ones(3)).tolist() == [2] * 3


def test_a_kernel_with_a_vjp_of_its_own_can_be_trained():
    function = mx.custom_function(double)
    function.vjp(lambda primals, cotangent, output: double(cotangent))
    assert mx.grad(lambda x: function(x).sum())(mx.ones(3)).tolist() == [2] * 3


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap])
def test_a_transformation_that_has_no_values_yet_is_told(transform: Callable[..., Callable[[mx.array], mx.array]]):
    with pytest.raises(ValueError, match=r"within mx\.compile or mx\.vmap"):
        transform(double)(mx.ones((2, 3)))


def test_what_does_not_compile_is_told_in_the_kernel_s_own_lines():
    with pytest.raises(CompileError) as caught:
        call("float x = 1;\n  out[0] = wrong(x);", [], (1,), name="mine")
    assert "mine.metal:2:12: error: use of undeclared identifier 'wrong'\n    out[0] = wrong(x);\n             ^" in str(caught.value)
    with pytest.raises(CompileError, match=r"mine\.header\.metal:2:1: error"):
        call("out[0] = 1;", [], (1,), name="mine", header="\nwrong f();")
    with pytest.raises(CompileError, match=r"mine\.metal:1:1: error: Metal has no double"):
        call("double x = 1; out[0] = x;", [], (1,), name="mine")


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import mlx.core as mx\nfrom gradcheck.metal import metal_kernel\nprint('begin')\n"
        "k = metal_kernel('k', [], ['out'], 'out[0] = 4;')\n"
        "print(k(inputs=[], output_shapes=[(1,)], output_dtypes=[mx.float32], grid=(1, 1, 1), threadgroup=(1, 1, 1))[0].item())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "begin\n4.0\n", done.stderr
