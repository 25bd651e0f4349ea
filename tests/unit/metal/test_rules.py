"""What Metal forbids is found with its place, and what only looks like it is not."""

from __future__ import annotations

import pytest

from gradcheck.metal.rules import breaches


@pytest.mark.parametrize(
    "text, line, column, what",
    [
        ("int x;\n  double y = 1;", 2, 3, "double"),
        ("goto end; end:;", 1, 1, "goto"),
        ("float* p = new float[3];", 1, 12, "new"),
        ("delete p;", 1, 1, "delete"),
        ("try { } catch (...) { }", 1, 1, "try"),
        ("throw 1;", 1, 1, "throw"),
        ("struct A { virtual int f(); };", 1, 12, "virtual"),
        ("float f(float x) { return x > 0 ? f(x - 1) : 0; }", 1, 35, "f calls itself"),
        ("int g(int x) { return h(x); } int h(int x) { return g(x); }", 1, 23, "g calls h, which calls it"),
    ],
)
def test_what_metal_does_not_have_is_an_error_at_its_place(text: str, line: int, column: int, what: str):
    first = breaches(text)[0]
    assert (first.line, first.column, first.warning) == (line, column, False)
    assert what in first.message


@pytest.mark.parametrize(
    "text",
    [
        "// double\n",
        '"goto"',
        "struct A { A(const A&) = delete; };",
        "int doubled = renew + try_it;",
        "#define D double\n",
        "float f(float2 x) { return f(x.x); } float f(float x) { return x; }",
        "template <int n> int g() { return n ? g<n - 1>() : 0; }",
        "half pow(half x) { return metal::pow(x); }",
        "float leaf(float x) { return x; } float one(float x) { return leaf(x) + leaf(x); }",
        "[[kernel]] void k(device float* p [[buffer(0)]]) { p[0] = p[p[1]]; }",
    ],
)
def test_what_only_looks_like_it_is_none(text: str):
    assert breaches(text) == ()


def test_a_lambda_is_a_warning():
    (found,) = breaches("auto f = [&](int x) { return x; };")
    assert found.warning
    assert "lambda" in found.message
