from __future__ import annotations

import mlx.core as mx
import pytest

from gradcheck.engine.tap import TappedFunction, tap_custom_functions

A, B = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])


def product(gradients):
    """a · b, whose VJP returns what `gradients(a, b, cotangent)` says."""

    @mx.custom_function
    def f(a, b):
        return a * b

    @f.vjp
    def product_vjp(primals, cotangent, _):
        return gradients(*primals, cotangent)

    return f


def right(a, b, w):
    return b * w, a * w


def differentiate(gradients):
    with tap_custom_functions() as calls:
        _, found = mx.vjp(product(gradients), [A, B], [mx.ones(2)])
    return [gradient.tolist() for gradient in found], calls


def test_mlx_itself_silently_takes_a_cotangent_for_a_gradient_that_was_not_returned():
    _, found = mx.vjp(product(lambda _a, b, w: (b * w,)), [A, B], [mx.array([5.0, 5.0])])
    assert found[1].tolist() == [5.0, 5.0]


def test_a_right_vjp_passes_unchanged():
    found, calls = differentiate(right)
    assert found == [[3.0, 4.0], [1.0, 2.0]]
    assert [(c.function, c.returned, c.problems, c.note) for c in calls] == [("product_vjp", 2, ("", ""), "")]


@pytest.mark.parametrize(
    "gradients, problems",
    [
        (lambda _a, b, w: (b * w,), ("", "missing: the vjp returned 1 gradients for 2 inputs")),
        (lambda _a, b, w: b * w, ("", "missing: the vjp returned 1 gradients for 2 inputs")),
        (lambda *_: (), ("missing: the vjp returned 0 gradients for 2 inputs",) * 2),
        (lambda *_: None, ("missing: the vjp returned 0 gradients for 2 inputs",) * 2),
        (lambda a, _b, w: (None, a * w), ("is None", "")),
        (lambda _a, b, w: (b * w, 0.0), ("", "not an array: float")),
        (lambda a, b, w: ((b * w)[:1], a * w), ("has shape (1,), want (2,)", "")),
    ],
    ids=["one too few", "a bare array", "an empty tuple", "nothing", "None", "a number", "wrong shape"],
)
def test_what_is_wrong_with_a_vjp_is_written_down_and_becomes_nan(gradients, problems):
    found, (call,) = differentiate(gradients)
    assert call.problems == problems
    for gradient, problem in zip(found, problems, strict=True):
        assert all(x != x for x in gradient) == bool(problem)  # noqa: PLR0124 - NaN
    assert all(problem in call.note for problem in problems)


def test_one_gradient_too_many_is_noted():
    found, (call,) = differentiate(lambda a, b, w: (b * w, a * w, a))
    assert found == [[3.0, 4.0], [1.0, 2.0]]
    assert call.note == "the vjp product_vjp returned 3 gradients for 2 primals; too many"


def masked(gradients):
    @mx.custom_function
    def f(a, mask, b):
        return mx.where(mask, a * b, 0.0)

    f.vjp(lambda primals, w, _: gradients(*primals, w))
    return f


def test_none_for_a_mask_moves_every_later_gradient_up_so_it_is_a_problem():
    mask = mx.array([True, False])
    with tap_custom_functions() as calls:
        f = masked(lambda a, m, b, w: (m * b * w, None, m * a * w))
        mx.vjp(lambda a, b: f(a, mask, b), [A, B], [mx.ones(2)])
    assert calls[0].problems == ("", "is None", "")


def test_no_gradient_for_a_mask_that_comes_last_is_fine():
    @TappedFunction
    def f(a, mask):
        return mx.where(mask, a, 0.0)

    f.vjp(lambda primals, w, _: (primals[1] * w,))
    with tap_custom_functions() as calls:
        _, (gradient,) = mx.vjp(lambda a: f(a, mx.array([True, False])), [A], [mx.ones(2)])
    assert gradient.tolist() == [1.0, 0.0]
    assert calls[0].note == ""


def test_the_tap_lets_jvp_vmap_and_decorator_chains_through():
    with tap_custom_functions():
        f = mx.custom_function(lambda x: x * 2).vjp(lambda _p, w, _o: w * 7).vmap(lambda x, axis: (x * 5, axis)).jvp(lambda _p, t: t * 3)
    assert isinstance(f, mx.custom_function)
    assert f(A).tolist() == [2.0, 4.0]
    assert mx.grad(lambda x: f(x).sum())(A).tolist() == [7.0, 7.0]
    assert mx.vmap(f)(A).tolist() == [5.0, 10.0]
    assert mx.jvp(f, [A], [mx.ones(2)])[1][0].tolist() == [3.0, 3.0]


def test_the_tap_is_gone_after_the_block_and_blocks_nest():
    original = mx.custom_function
    with tap_custom_functions() as outer:
        f = product(right)
        with tap_custom_functions() as inner:
            mx.vjp(f, [A, B], [mx.ones(2)])
        mx.vjp(f, [A, B], [mx.ones(2)])
    assert mx.custom_function is original
    assert (len(outer), len(inner)) == (1, 1)
    mx.vjp(f, [A, B], [mx.ones(2)])
    assert (len(outer), len(inner)) == (1, 1)
