"""Metal text becomes C++ text, line by line; comments and strings stay as they are, and of macros all but literals."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck.metal.collectives import collective_names, waits
from gradcheck.metal.edits import Edit, apply
from gradcheck.metal.rewrite import rewrite
from gradcheck.metal.tokens import tokenize


def new(text: str, header: str = "") -> str:
    return rewrite(text, collective_names(header, text)).text


@given(st.text(alphabet=st.sampled_from(list("ab1.eE+-\"'/*\\\n#<>(){};R ")), max_size=60))
def test_tokens_together_are_the_text(text: str):
    assert "".join(token.text for token in tokenize(text)) == text


@pytest.mark.parametrize(
    "declared, variables",
    [
        ("threadgroup float a[32];", {"a": "float[32]"}),
        ("threadgroup float a[4][N + 1], b;", {"a": "float[4][N + 1]", "b": "float"}),
        ("threadgroup vec<float, 4> v[8];", {"v": "vec<float, 4>[8]"}),
        ("threadgroup metal::vec<T, M<2>::n> v;", {"v": "metal::vec<T, M<2>::n>"}),
        ("threadgroup unsigned int n;", {"n": "unsigned int"}),
        ("threadgroup atomic_uint n[2];", {"n": "atomic_uint[2]"}),
        ("alignas(16) threadgroup float4 z[3];", {"z": "float4[3]"}),
        ("threadgroup typename A::B x[2];", {"x": "typename A::B[2]"}),
    ],
)
def test_threadgroup_variables_come_from_the_runtime(declared: str, variables: dict[str, str]):
    want = "; ".join(
        f'auto& {name} = *gcm::threadgroup_variable<threadgroup {kind}, struct gcm_tag_{name}>("{name}")'
        for name, kind in variables.items()
    )
    assert new(declared) == f"{want};"


@pytest.mark.parametrize(
    "text",
    [
        "threadgroup float* p = a;",
        "void f(threadgroup float* p, threadgroup const T& q);",
        "x = (threadgroup float*)y;",
        "g<threadgroup float>(y);",
        "// threadgroup float a[3];",
        '"threadgroup float a[3];"',
        "#define A threadgroup float a[3];\n",
        "const threadgroup half4* row = s + 4;",
    ],
)
def test_whatever_else_says_threadgroup_stays(text: str):
    assert new(text) == text


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = 0; i < n; i++) { x += simd_sum(i); }",
        "for (int i = 0; i < n; i++) x += simd_sum(i);",
        "while (simd_any(x > 0)) x--;",
        "do { x = simd_max(x); } while (x < 3);",
        "do x = simd_max(x); while (x < 3);",
        "for (;;) if (a) { b(); } else x = simd_sum(x);",
        "for (auto& v : q) { simdgroup_barrier(mem_flags::mem_none); }",
    ],
)
def test_a_loop_with_a_collective_is_marked_and_its_body_ticks(loop: str):
    marked = new(f"a; {loop} b;")
    assert re.sub(r"\{ gcm::loop_mark (\w+); (.*)\{ \1\.tick\(\); (.*) \}(.*) \} b;", r"\2\3\4 b;", marked) == f"a; {loop} b;"
    assert marked.count("{") == marked.count("}")


def test_a_loop_without_one_is_not_marked():
    text = "for (int i = 0; i < n; i++) { x += i; } while (y) { uint simd_lane_id = thread_index_in_simdgroup; } simd_sum(x);"
    assert new(text) == text


def test_a_function_of_the_header_that_contains_a_collective_counts_as_one():
    header = "float two(float x) { return one(x); } float one(float x) { return simd_sum(x); } float none(float x) { return x; }"
    assert "loop_mark" in new("for (;;) two(1);", header)
    assert "loop_mark" not in new("for (;;) none(1);", header)
    assert "loop_mark" in new("for (;;) RED(1);", "#define RED(x) simd_sum(x)\n")


def test_nested_loops_without_braces_are_marked_from_the_outside():
    marked = new("for (;;) for (;;) simd_sum(x); for (;;) simd_sum(y);")
    assert marked.count("loop_mark") == 3
    assert marked.startswith("{ gcm::loop_mark gcm_loop_1; for (;;) { gcm_loop_1.tick(); { gcm::loop_mark gcm_loop_2; for")
    assert marked.count("{") == marked.count("}")


def test_a_function_with_a_collective_is_told_where_it_is_called():
    told = "gcm::here gcm_from = gcm::here()"
    mark = " gcm::loop_mark gcm_call(gcm_from);"
    header = "template <class T> T f(T x, int n) { return simd_sum(x); }\nstruct S { float g() const { return f(1.0f, 2); } };\n"
    assert new(header) == header.replace("int n)", f"int n, {told})").replace("g()", f"g({told})").replace("{ return", f"{{{mark} return")


@pytest.mark.parametrize(
    "header",
    [
        "float f(float x) { return x; } float g(float x) { return simd_sum(x); } auto h = &g;",
        "float f(float x); float f(float x) { return simd_sum(x); }",
        "template <class... A> float f(A... a) { return simd_sum((a + ...)); }",
        "template <> float f<float>(float x) { return simd_sum(x); }",
        "float f(void) { return simd_sum(1.0f); }",
        "constexpr float f(float x) { return simd_sum(x); }",
        "kernel void f(device float* x) { x[0] = simd_sum(1.0f); }",
    ],
)
def test_a_function_that_cannot_take_one_more_argument_stays(header: str):
    assert new(header) == header


def test_the_index_of_threadgroup_memory_is_no_macro():
    header = "kernel void f(threadgroup float* s [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {}"
    assert new(header) == header.replace("[[threadgroup(0)]]", "[[gcm_index(0)]]")


@pytest.mark.parametrize("before", ["#pragma unroll\n", "  #pragma clang loop unroll(full)\n", "  # pragma unroll (4)\n"])
def test_a_hint_to_unroll_does_not_stand_between_a_mark_and_its_loop(before: str):
    marked = new(f"x = 1;\n{before}for (int i = 0; i < 4; i++) x += simd_sum(i);\n#pragma unroll\nfor (;;) y();")
    assert marked.count("#pragma unroll") == 1
    assert marked.count("\n") == 4
    assert new(f"{before}for (;;) y();") == f"{before}for (;;) y();"


def test_a_pragma_operator_or_macro_stays_before_its_loop():
    assert new('_Pragma("unroll") for (;;) simd_sum(x);').startswith('{ gcm::loop_mark gcm_loop_1; _Pragma("unroll") for')
    assert new("UNROLL for (;;) simd_sum(x);").startswith("{ gcm::loop_mark gcm_loop_1; UNROLL for")
    assert new("if (f(x)) for (;;) simd_sum(x); else y();").startswith("if (f(x)) { gcm::loop_mark")


def test_overloads_by_address_space_are_one_function():
    header = (
        "template <typename T> T load(const device T* p, uint i) { return p[i]; }\n"
        "template <typename T> T load(const constant T* other, uint j) { return other[j]; }\n"
        "template <typename T> T load(threadgroup T* p, uint i) { return p[i]; }\n"
        "struct S { int x; int get() const device { return x; }\n int get() const thread { return x; } };\n"
    )
    kept = new(header)
    assert [line.startswith("template") for line in kept.split("\n")] == [True, False, True, False, False, False]
    assert kept.count("get()") == 1
    assert kept.count("\n") == header.count("\n")


def test_functions_that_differ_otherwise_stay_and_a_true_redefinition_is_left_to_the_compiler():
    header = "float f(device float* p) { return 1; }\nfloat f(device half* p) { return 2; }\nint g(int x) { return 1; }\nint g(int y) { return 1; }\n"
    assert new(header) == header


def test_literals_of_half_and_bfloat():
    assert new("a = 1.0H + 2bf - 1.5e-3BF + 0xbf + 3.0h;") == "a = 1.0_h + 2_bf - 1.5e-3_bf + 0xbf + 3.0h;"


def test_literals_without_a_suffix_are_float_in_macros_too():
    text = "#define A 0.5 /* 1.5 */ \\\n * .5\n#if 1\na = 1. + 1e-3 + 0x1.8p3 + 2.0f + 3 + 0x1e3 + x1.y + v.x2 + 1e5;"
    assert new(text) == "#define A 0.5f /* 1.5 */ \\\n * .5f\n#if 1\na = 1.f + 1e-3f + 0x1.8p3f + 2.0f + 3 + 0x1e3 + x1.y + v.x2 + 1e5f;"


@given(st.data())
def test_a_column_of_the_new_text_leads_to_the_same_character_of_the_old(data: st.DataObject):
    text = data.draw(st.text(alphabet="abcdef\n", min_size=1, max_size=40))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    edits = [Edit(start, end, data.draw(st.text(alphabet="XY", max_size=4))) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    edited = apply(text, edits)
    old = text.split("\n")
    assert edited.text.count("\n") == text.count("\n")
    for i, line in enumerate(edited.text.split("\n"), start=1):
        for column, character in enumerate(line, start=1):
            if character not in "XY":
                assert old[i - 1][edited.column(i, column) - 1] == character


def test_overlapping_edits_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        apply("abcdef", [Edit(0, 3, ""), Edit(2, 4, "")])


@pytest.mark.parametrize(
    "source, header, answer",
    [
        ("out[0] = thread_index_in_simdgroup + threadgroup_position_in_grid.x;", "", False),
        ("uint simd_lane_id = thread_index_in_simdgroup;", "", False),
        ("out[0] = simd_sum(1);", "", True),
        ("threadgroup float a[3];", "", True),
        ("threadgroup_barrier(mem_flags::mem_none);", "", True),
        ("atomic_fetch_add_explicit(&out[0], 1, memory_order_relaxed);", "", True),
        ("// simd_sum(1)", "", False),
        ("out[0] = f(1);", "float f(float x) { return simd_sum(x); }", True),
        ("out[0] = g(1);", "float f(float x) { return simd_sum(x); } float g(float x) { return x; }", False),
    ],
)
def test_what_waits_is_told_from_what_does_not(source: str, header: str, answer: object):
    assert waits(source, header) is answer
