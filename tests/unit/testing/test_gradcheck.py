"""`gradcheck.gradcheck`: right functions pass, in both precisions, and each kind of wrong gradient does not."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradcheck
from gradcheck import UsageError


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[mx.array]:
    rng = np.random.default_rng(seed)
    return [mx.array(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


def scan(x, a):
    h, out = mx.zeros(x.shape[1:], x.dtype), []
    for t in range(x.shape[0]):
        h = a * h + x[t]
        out.append(h)
    return mx.stack(out), h


def attention(q, k, v):
    return mx.softmax(q @ k.T / 2, axis=-1) @ v


def layer_norm(x, g):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / mx.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * g


RIGHT = {
    "softmax": (lambda x: mx.softmax(x, axis=-1), [(3, 5)]),
    "scan": (scan, [(6, 3), (3,)]),
    "matmul chain": (lambda a, b, c: (a @ b) @ c, [(3, 5), (5, 4), (4, 2)]),
    "attention": (attention, [(3, 4), (3, 4), (3, 4)]),
    "layer norm": (layer_norm, [(2, 6), (6,)]),
    "sine of a sum": (lambda x: mx.sin(x.sum()), [(20,)]),
    "an input without effect": (lambda x, y: x * x + 0 * y, [(4,), (4,)]),
    "norm of one": (lambda x: x / mx.sqrt((x * x).sum(axis=-1, keepdims=True)), [(4, 1)]),
}


def short(function):
    """The same, as a kernel that refuses float64."""

    def refusing(*inputs):
        if any(array.dtype == mx.float64 for array in inputs):
            raise ValueError("float64 is not supported")
        return function(*inputs)

    return refusing


def with_vjp(function, change, *, refuse=False):
    """The function with its gradients changed: `change` takes and returns the list of them."""

    @mx.custom_function
    def wrong(*inputs):
        if refuse and any(array.dtype == mx.float64 for array in inputs):
            raise ValueError("float64 is not supported")
        return function(*inputs)

    @wrong.vjp
    def _vjp(primals, cotangents, _outputs):
        cotangents = list(cotangents) if isinstance(cotangents, (tuple, list)) else [cotangents]
        return change(list(mx.vjp(lambda *inputs: _listed(function(*inputs)), list(primals), cotangents)[1]))

    return wrong


def _listed(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _one_element(gradients):
    first = gradients[0]
    flat = mx.concatenate([first.reshape(-1)[:-1], first.reshape(-1)[-1:] * 1.05])
    return [flat.reshape(first.shape), *gradients[1:]]


WRONG = {
    "zero": lambda g: [mx.zeros_like(g[0]), *g[1:]],
    "swapped": lambda g: [g[1], g[0], *g[2:]],
    "1 % too large": lambda g: [g[0] * 1.01, *g[1:]],
    "0.1 % too large": lambda g: [g[0] * 1.001, *g[1:]],
    "NaN": lambda g: [g[0] * float("nan"), *g[1:]],
    "one element": _one_element,
    "the other sign": lambda g: [g[0], -g[1], *g[2:]],
}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in RIGHT if name != "norm of one"])
def test_a_right_function_is_right_in_either_precision(name: str, precision: str):
    function, shapes = RIGHT[name]
    found = gradcheck.gradcheck(function if precision == "float64" else short(function), arrays(*shapes))
    assert found, str(found)
    assert found.precision == precision
    assert found.checked == sum(np.prod(shape) for shape in shapes)


def test_a_gradient_of_zero_up_to_rounding_is_accepted_in_float64():
    function, shapes = RIGHT["norm of one"]
    assert gradcheck.gradcheck(function, arrays(*shapes))
    lost = gradcheck.gradcheck(short(function), arrays(*shapes))
    assert not lost
    assert "lost in the noise" in str(lost)


@pytest.mark.parametrize("refuse", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_seen_in_either_precision(name, refuse):
    square = lambda a, b: (mx.tanh(a) @ b) @ a.T  # noqa: E731 - both gradients have one shape
    found = gradcheck.gradcheck(with_vjp(square, WRONG[name], refuse=refuse), arrays((3, 3), (3, 3)))
    assert not found
    assert found.precision == ("float32" if refuse else "float64")
    assert "d input 0" in str(found)
    assert gradcheck.gradcheck(with_vjp(square, lambda g: g, refuse=refuse), arrays((3, 3), (3, 3))), "the right one passes"


def test_a_dropped_term_names_gradient_element_and_numbers():
    found = gradcheck.gradcheck(lambda x, a: mx.stop_gradient(a) * x + a, {"x": arrays((4,))[0], "a": arrays((4,), seed=1)[0]})
    x, a = found.gradients
    assert (x.problem, a.problem) == ("", "4 of 4 elements differ from the truth")
    assert abs(a.got - a.want) > a.tolerance
    text = str(found)
    for part in ("d a", f"[{a.worst[0]}]", f"want {a.want:.9g}", "tolerance: ", "8 elements"):
        assert part in text


@pytest.mark.parametrize(
    "returned, why",
    [
        (lambda g: g[:1], "missing"),
        (lambda g: [None, g[1]], "None"),
        (lambda g: [g[0][:1], g[1]], "shape"),
        (lambda g: [g[0].astype(np.float64), g[1]], "dtype"),
    ],
)
def test_a_missing_or_misshapen_gradient_is_a_failure(returned, why: str):
    class Kernel:
        def forward(self, a, b):
            return a * b

        def vjp(self, inputs, cotangents):
            return returned([inputs[1] * cotangents[0], inputs[0] * cotangents[0]])

    inputs = [np.array([0.3, 0.7, 1.1], np.float32), np.array([0.9, -0.4, 0.6], np.float32)]
    found = gradcheck.gradcheck(Kernel(), inputs)
    assert not found
    assert why in str(found)


def test_an_object_on_numpy_arrays_is_checked_in_float64():
    class Kernel:
        def forward(self, a, b):
            return a * a * b, a.sum(axis=0)

        def vjp(self, inputs, cotangents):
            (a, b), (w, v) = inputs, cotangents
            return 2 * a * b * w + v, a * a * w

    inputs = [np.array([[0.3, 0.7], [1.1, -2.0]], np.float32), np.array([[0.9, -0.4], [0.6, 1.0]], np.float32)]
    assert gradcheck.gradcheck(Kernel(), inputs).precision == "float64"
    assert gradcheck.gradcheck(Kernel(), inputs)


def test_a_backward_that_raises_is_a_verdict():
    class Kernel:
        def forward(self, a):
            return a * a

        def vjp(self, inputs, cotangents):
            raise IndexError("off by one")

    found = gradcheck.gradcheck(Kernel(), np.ones(3, np.float32))
    assert not found
    assert "IndexError: off by one" in str(found)


def test_relu_is_right_away_from_its_kink_and_told_of_it_at_it():
    relu = lambda x: mx.maximum(x, 0)  # noqa: E731
    assert gradcheck.gradcheck(relu, mx.array([0.5, -1.0, 2.0, -0.25]))
    at = gradcheck.gradcheck(relu, mx.array([0.0, 1.0, -1.0]))
    assert not at
    assert "at or near a kink: slope" in str(at)


def test_a_function_that_draws_anew_each_time_is_told_so_and_no_kink_is_blamed():
    function = lambda x: x * x * (1 + mx.random.uniform(shape=x.shape))  # noqa: E731
    found = gradcheck.gradcheck(function, arrays((6,))[0])
    assert not found
    assert "it is not deterministic: two calls at the same inputs differ in " in str(found)
    assert "fix its seed" in str(found)
    assert "kink" not in str(found)


def test_a_backward_that_draws_anew_each_time_is_told_so():
    noisy = with_vjp(lambda a, b: a * b, lambda g: [g[0], g[1] + mx.random.uniform(shape=g[1].shape)])
    found = gradcheck.gradcheck(noisy, arrays((4,), (4,)))
    assert not found
    assert "differ in d input 1" in str(found)


def test_a_function_that_differs_by_rounding_from_call_to_call_is_right_and_a_wrong_one_is_told_so():
    class Kernel:
        def __init__(self, scale):
            self.scale, self.calls = scale, 0

        def forward(self, a):
            return a * a

        def vjp(self, inputs, cotangents):
            self.calls += 1
            return 2 * inputs[0] * cotangents[0] * np.float32(self.scale * (1 + self.calls % 2 * 2**-23))

    given_ = np.array([0.3, 0.7, 1.1], np.float32)
    assert gradcheck.gradcheck(Kernel(1.0), given_)
    found = gradcheck.gradcheck(Kernel(1.01), given_)
    assert not found
    assert "3 of 3 elements differ from the truth; it is not deterministic: " in str(found)


def test_a_check_that_could_not_see_a_small_error_says_so():
    found = gradcheck.gradcheck(short(lambda x: x * x + 2000.0), arrays((5,)))
    assert found.weak
    assert "weak: " in str(found)
    assert not gradcheck.gradcheck(lambda x: x * x + 2000.0, arrays((5,))).weak


def test_a_function_whose_gradient_is_below_the_noise_is_not_called_right():
    found = gradcheck.gradcheck(short(lambda x: x + 1e6), arrays((4,)))
    assert not found
    assert "lost in the noise" in str(found)


def test_outputs_that_are_not_finite_are_a_failure():
    assert not gradcheck.gradcheck(mx.log, mx.array([1.0, -1.0]))


@pytest.mark.parametrize(
    "function, inputs, why",
    [
        (lambda x: x, [mx.array([1, 2])], "none of the 1 inputs has a floating element"),
        (lambda x: x, [mx.zeros((0,))], "none of the 1 inputs has a floating element"),
        (lambda x: x, [], "none of the 0 inputs"),
        (lambda x: x[:0], [mx.array([1.0])], "no output with an element"),
        (mx.argmax, [mx.array([1.0, 2.0])], "output 0 is uint32"),
        (lambda x: x, [mx.array([float("nan")])], "not finite"),
        (lambda x, y: x + y, [mx.array([1.0]), mx.array([1.0], dtype=mx.float16)], "several dtypes"),
        (3, [mx.array([1.0])], "neither a callable"),
    ],
)
def test_where_nothing_can_be_compared_that_is_an_error(function, inputs, why: str):
    with pytest.raises(UsageError, match=why):
        gradcheck.gradcheck(function, inputs)


def test_half_precision_is_judged_by_its_own_rounding_and_called_weak():
    half = [array.astype(mx.float16) for array in arrays((3, 4), (4, 2))]
    right = gradcheck.gradcheck(lambda a, b: a @ b, half)
    assert right
    assert right.weak, "0.1 % is two roundings of float16"
    assert not gradcheck.gradcheck(with_vjp(lambda a, b: a @ b, lambda g: [g[0] * 1.1, g[1]]), half)


def test_the_same_call_says_the_same():
    function, shapes = RIGHT["attention"]
    assert str(gradcheck.gradcheck(function, arrays(*shapes))) == str(gradcheck.gradcheck(function, arrays(*shapes)))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(["softmax", "scan", "matmul chain", "layer norm"]), refuse=st.booleans())
def test_right_functions_pass_and_a_scale_error_of_1_percent_does_not_whatever_the_numbers(seed, name, refuse):
    function, shapes = RIGHT[name]
    inputs = arrays(*shapes, seed=seed)
    right = gradcheck.gradcheck(short(function) if refuse else function, inputs, seed=seed)
    assert right, str(right)
    assert not gradcheck.gradcheck(with_vjp(function, WRONG["1 % too large"], refuse=refuse), inputs, seed=seed)
