"""The generated function is the one that MLX generates."""

from __future__ import annotations

import pytest

from gradcheck.metal.signature import ATTRIBUTES, Shape, Text, render, sign

PLAIN = Text("k", ("a",), ("out",), "out[thread_position_in_grid.x] = a[0];")


def head(text: Text, shapes: list[Shape], outputs: list[str], template: tuple[tuple[str, object], ...] = ()) -> str:
    return sign(text, shapes, outputs, template).head  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ndim, size, declared",
    [
        (1, 8, "const device float* a"),
        (1, 7, "const constant float* a"),
        (0, 1, "const constant float& a"),
        (2, 0, "const constant float* a"),
    ],
)
def test_a_small_input_is_constant_and_a_scalar_a_reference(ndim: int, size: int, declared: str):
    assert f"{declared} [[buffer(0)]]" in head(PLAIN, [Shape.of("float32", ndim, size)], ["float32"])


def test_facts_of_an_input_follow_it_in_the_order_of_mlx_and_only_those_the_body_names():
    text = Text("k", ("a", "b"), ("out",), "out[0] = a_ndim + a_strides[0] + a_shape[0] + b_shape[1];")
    signature = sign(text, [Shape.of("float32", 2, 64)] * 2, ["float32"])
    assert [p.name for p in signature.parameters] == ["a", "a_shape", "a_strides", "a_ndim", "b", "b_shape", "out"]
    assert "device float* out [[buffer(6)]]" in signature.head


def test_a_scalar_has_no_facts():
    text = Text("k", ("a",), ("out",), "out[0] = a; // a_shape")
    assert [p.name for p in sign(text, [Shape.of("int32", 0, 1)], ["float32"]).parameters] == ["a", "out"]


def test_every_attribute_that_is_named_is_a_parameter_and_no_other():
    for name, kind in ATTRIBUTES.items():
        text = Text("k", (), ("out",), f"out[0] = {name};")
        assert f"{kind} {name} [[{name}]]" in head(text, [], ["uint32"])
    assert "[[thread_index_in_simdgroup]]" not in head(PLAIN, [Shape.of("float32", 1, 9)], ["float32"])


def test_template_arguments_are_bools_ints_and_types():
    signature = sign(PLAIN, [Shape.of("float32", 1, 9)], ["float16"], (("flag", True), ("n", -3), ("T", "bfloat16")))
    assert signature.template == "template <bool flag, int n, typename T>"
    assert signature.arguments == "<1, -3, bfloat16_t>"


def test_names_of_functions_tell_calls_apart():
    calls = [
        ([Shape.of("float32", 1, 9)], ["float32"], ()),
        ([Shape.of("float32", 1, 3)], ["float32"], ()),
        ([Shape.of("float32", 0, 1)], ["float32"], ()),
        ([Shape.of("float16", 1, 9)], ["float32"], ()),
        ([Shape.of("float32", 1, 9)], ["int32"], ()),
        ([Shape.of("float32", 1, 9)], ["float32"], (("n", 1),)),
        ([Shape.of("float32", 1, 9)], ["float32"], (("n", -1),)),
    ]
    assert len({sign(PLAIN, *call).function for call in calls}) == len(calls)


def test_atomic_outputs_are_atomics():
    text = Text("k", (), ("out",), "", atomic_outputs=True)
    assert "device atomic<float>* out [[buffer(0)]]" in head(text, [], ["float32"])


def test_the_whole_source_is_header_function_and_instance():
    text = Text("k", (), ("out",), "out[0] = twice(N);", header="int twice(int x) { return 2 * x; }\n")
    signature = sign(text, [], ["int32"], (("N", 4),))
    assert render(text, signature) == (
        "int twice(int x) { return 2 * x; }\ntemplate <int N>\n[[kernel]] void custom_kernel_k_4_int32(\n  device int32_t* out [[buffer(0)]]) {\n"
        'out[0] = twice(N);\n}\n\ntemplate [[host_name("custom_kernel_k_4_int32")]] [[kernel]] decltype(custom_kernel_k_4_int32<4>) custom_kernel_k_4_int32<4>;\n'
    )
