from __future__ import annotations

import functools

import mlx.core as mx
import numpy as np
import pytest

from gradcheck import UsageError
from gradcheck.engine.arrays import arrays_of
from gradcheck.engine.call import Got, NoBackward, call, canary
from gradcheck.engine.tap import tap_custom_functions

# An op of two outputs: y = x · w (elementwise, [3]) and z = sum of x ([1]); `mask` is a constant.
X, W, MASK = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.array([True, True, False])
DY, DZ = np.array([1.0, 0.5, 0.25]), np.array([2.0])
RIGHT = {"x": DY * W + DZ, "w": DY * X}


def product(x, w):
    return x * w, x.sum(keepdims=True)


def product_vjp(inputs, cotangents):
    (x, w), (dy, dz) = inputs, cotangents
    return dy * w + dz, dy * x


class Product:
    """Right, over NumPy; each test replaces what it is about."""

    arrays = "numpy"

    def __init__(self, forward=product, vjp=product_vjp, **attributes):
        self.forward, self.vjp = forward, vjp
        self.__dict__.update(attributes)


def run(kernel, *, dtype="f32", **options):
    return call(kernel, {"x": X, "w": W}, [DY, DZ], dtype=dtype, output_shapes=[(3,), (1,)], differentiable=("x", "w"), **options)


def tapped(gradients):
    """The op as an MLX custom function whose VJP returns what `gradients(inputs, cotangents)` says."""
    with tap_custom_functions():
        f = mx.custom_function(product)
    f.vjp(lambda primals, cotangents, _: gradients(primals, cotangents))
    return f


def custom(x, w):
    return tapped(product_vjp)(x, w)


KERNELS = {
    "mlx callable": product,
    "mlx custom function": custom,
    "numpy object": Product(),
    "mlx object": Product(arrays="mlx"),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_kind_of_kernel_yields_values_in_float64(kernel, dtype):
    if dtype == "bf16" and getattr(kernel, "arrays", "mlx") == "numpy":
        with pytest.raises(UsageError, match="numpy arrays cannot take bf16"):
            run(kernel, dtype=dtype)
        return
    got = run(kernel, dtype=dtype)
    assert [g.value.tolist() for g in got.outputs] == [(X * W).tolist(), [X.sum()]]
    assert {name: g.value.tolist() for name, g in zip(RIGHT, got.gradients, strict=True)} == {k: v.tolist() for k, v in RIGHT.items()}
    assert got.notes == ()
    assert all(g.value.dtype == np.float64 for g in (*got.outputs, *got.gradients))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_canary_has_the_outputs_of_its_kernel_and_gradients_of_zeros(kernel):
    got = run(canary(kernel))
    assert [g.value.tolist() for g in got.outputs] == [(X * W).tolist(), [X.sum()]]
    assert [g.value.tolist() for g in got.gradients] == [[0, 0, 0], [0, 0, 0]]


BAD_GRADIENTS = {
    "one too few": (lambda p, c: product_vjp(p, c)[:1], ["", "missing: the vjp returned 1 gradients for 2 inputs"]),
    "none at all": (lambda _p, _c: (), ["missing: the vjp returned 0 gradients for 2 inputs"] * 2),
    "None for one": (lambda p, c: (None, product_vjp(p, c)[1]), ["is None", ""]),
    "a number": (lambda p, c: (product_vjp(p, c)[0], 1.0), ["", "not an array: "]),
    "wrong shape": (lambda p, c: (product_vjp(p, c)[0][:2], product_vjp(p, c)[1]), ["has shape (2,), want (3,)", ""]),
}


@pytest.mark.parametrize("gradients, problems", BAD_GRADIENTS.values(), ids=BAD_GRADIENTS)
@pytest.mark.parametrize("kind", ["mlx custom function", "mlx object", "numpy object"])
def test_a_gradient_that_does_not_fit_is_a_problem_of_that_gradient(kind, gradients, problems):
    got = run(tapped(gradients)) if kind == "mlx custom function" else run(Product(vjp=gradients, arrays=kind.split()[0]))
    for gradient, problem in zip(got.gradients, problems, strict=True):
        assert gradient.problem.startswith(problem)
        assert (gradient.value is None) == bool(problem) == bool(gradient.problem)


@pytest.mark.parametrize("kind", ["custom", "mlx", "numpy"])
def test_a_gradient_of_another_dtype_is_a_problem(kind):
    def narrow(inputs, cotangents):
        dx, dw = product_vjp(inputs, cotangents)
        return dx.astype(mx.float16 if isinstance(dx, mx.array) else np.float16), dw

    got = run(tapped(narrow) if kind == "custom" else Product(vjp=narrow, arrays=kind))
    assert got.gradients[0] == Got(None, "has dtype float16, want float32")
    assert got.gradients[1].value.tolist() == RIGHT["w"].tolist()


def test_a_custom_function_inside_a_kernel_is_looked_at_too():
    f = tapped(lambda p, c: product_vjp(p, c)[:1])

    def padded(x, w):
        y, z = f(mx.pad(x, (0, 1)), mx.pad(w, (0, 1)))
        return y[:3], z

    got = run(padded)
    assert got.notes == (
        "the vjp <lambda> returned 1 gradients for 2 primals; of primal 1: missing: the vjp returned 1 gradients for 2 inputs",
    )
    assert np.isnan(got.gradients[1].value).all()
    assert np.isfinite(got.gradients[0].value).all()


BAD_OUTPUTS = {
    "one too few": (lambda x, w: (x * w,), ["", "missing: the forward returned 1 outputs for 2"]),
    "one array": (lambda x, w: x * w, ["", "missing: the forward returned 1 outputs for 2"]),
    "too many": (lambda x, w: (*product(x, w), x), ["one of too many: the forward returned 3 outputs for 2"] * 2),
    "None": (lambda x, w: (x * w, None), ["", "is None"]),
    "wrong shape": (lambda x, w: (x[:1] * w, x), ["", "has shape (3,), want (1,)"]),
}


@pytest.mark.parametrize("forward, problems", BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
@pytest.mark.parametrize("kind", ["callable", "mlx", "numpy"])
def test_an_output_that_does_not_fit_is_a_problem_of_that_output(kind, forward, problems):
    got = run(forward if kind == "callable" else Product(forward=forward, arrays=kind))
    assert [output.problem for output in got.outputs] == problems
    if kind == "callable":
        assert [gradient.problem for gradient in got.gradients] == ["not computed: the outputs do not fit"] * 2


@pytest.mark.parametrize("kind", ["callable", "object"])
def test_an_output_may_be_wider_than_its_inputs_but_not_narrower_and_its_cotangent_has_its_dtype(kind):
    seen = []

    def wide(x, w):
        return x * w, x.astype(mx.float32).sum(keepdims=True)

    def vjp(inputs, cotangents):
        seen.extend(cotangent.dtype for cotangent in cotangents)
        return product_vjp(inputs, [cotangent.astype(mx.float16) for cotangent in cotangents])

    def narrow(x, w):
        return (x * w).astype(mx.float16), x.sum(keepdims=True)

    with tap_custom_functions():
        f = mx.custom_function(wide)
    f.vjp(lambda primals, cotangents, _: vjp(primals, cotangents))
    got = run(f if kind == "callable" else Product(wide, vjp, arrays="mlx"), dtype="f16")
    assert [g.problem for g in (*got.outputs, *got.gradients)] == [""] * 4
    assert seen == [mx.float16, mx.float32]
    got = run(narrow if kind == "callable" else Product(narrow, arrays="mlx"))
    assert got.outputs[0].problem == "has dtype float16, want float32"


def overwriting(x, w):
    y = x * w, x.sum(keepdims=True)
    w[0] = 9.0
    return y


@pytest.mark.parametrize(
    "kernel", [overwriting, Product(overwriting), Product(overwriting, arrays="mlx")], ids=["callable", "numpy", "mlx"]
)
def test_a_kernel_that_overwrites_its_input_is_noted_and_spoils_nothing(kernel):
    for _ in range(2):
        got = run(kernel)
        assert got.notes == ("forward overwrites its input w",)
        assert got.outputs[0].value.tolist() == (X * W).tolist()
    assert W[0] == 4.0


def test_a_vjp_that_overwrites_what_it_is_given_is_noted():
    def vjp(inputs, cotangents):
        gradients = product_vjp(inputs, cotangents)
        inputs[0][:] = 0.0
        cotangents[1][:] = 0.0
        return gradients

    assert run(Product(vjp=vjp)).notes == ("vjp overwrites its input x", "vjp overwrites cotangent 1")


def test_numbers_that_are_not_finite_are_handed_on_and_are_no_problem():
    got = run(Product(vjp=lambda p, c: (product_vjp(p, c)[0] * np.float32("nan"), product_vjp(p, c)[1])))
    assert got.gradients[0].problem == ""
    assert np.isnan(got.gradients[0].value).all()


def test_outputs_and_gradients_may_be_views_of_the_inputs():
    kernel = Product(lambda x, w: (x, w[:1]), lambda _p, c: (c[0][::-1][::-1], np.broadcast_to(c[1], 3)))
    got = run(kernel)
    assert got.outputs[0].value.tolist() == X.tolist()
    assert got.gradients[1].value.tolist() == [2.0, 2.0, 2.0]
    assert got.notes == ()


@pytest.mark.parametrize("kind", ["callable", "object, one per gradient", "object, one per input"])
def test_a_constant_keeps_its_dtype_and_has_no_gradient(kind):
    seen = []

    def forward(x, mask, w):
        seen.append(mask.dtype)
        return x * w * mask, x.sum(keepdims=True)

    def vjp(inputs, cotangents):
        x, mask, w = inputs
        dx, dw = product_vjp((x, w), (cotangents[0] * mask, cotangents[1]))
        return (dx, None, dw) if "input" in kind else (dx, dw)

    kernel = forward if kind == "callable" else Product(forward, vjp)
    got = call(kernel, {"x": X, "mask": MASK, "w": W}, [DY, DZ], dtype="f32", output_shapes=[(3,), (1,)], differentiable=("x", "w"))
    assert set(seen) == {mx.bool_ if kind == "callable" else np.dtype(bool)}
    assert [g.value.tolist() for g in got.gradients] == [(DY * MASK * W + DZ).tolist(), (DY * MASK * X).tolist()]


def test_one_array_will_do_for_an_op_of_one_output():
    got = call(lambda x: x * 2, {"x": X}, [DY], dtype="f32", output_shapes=[(3,)], differentiable=("x",))
    assert got.outputs[0].value.tolist() == (2 * X).tolist()
    assert got.gradients[0].value.tolist() == (2 * DY).tolist()


def test_a_kernel_without_a_backward_says_so_and_can_be_called_forward():
    def singular(x, w):
        q = mx.linalg.qr(mx.eye(3) * x, stream=mx.cpu)[1]
        return q.sum(axis=0) + w, x.sum(keepdims=True)

    with pytest.raises(NoBackward, match="Not implemented for QRF"):
        run(singular)
    assert run(singular, forward_only=True).gradients == ()
    bare = functools.partial(exec_numpy_callable())
    with pytest.raises(NoBackward, match="needs `forward` and `vjp`"):
        run(bare)
    assert run(bare, forward_only=True).outputs[0].value.tolist() == (X * W).tolist()


def exec_numpy_callable():
    """A bare callable written in a module that holds NumPy and no MLX."""
    module: dict[str, object] = {}
    exec("import numpy as np\ndef f(x, w): return np.multiply(x, w), np.sum(x, keepdims=True)", module)
    return module["f"]


def test_what_the_kernel_raises_is_raised():
    def broken(_x, _w):
        raise ZeroDivisionError("its own")

    for kernel in (broken, Product(broken), Product(vjp=broken)):
        with pytest.raises(ZeroDivisionError, match="its own"):
            run(kernel)


def test_a_thing_that_is_no_kernel_is_refused():
    with pytest.raises(UsageError, match="not a kernel: 3"):
        run(3)
    with pytest.raises(UsageError, match="arrays = 'torch'"):
        run(Product(arrays="torch"))


def written(source):
    module: dict[str, object] = {}
    exec(source, module)
    return module["kernel"]


OBJECT = "class K:\n    def forward(self, x): ...\n    def vjp(self, inputs, cotangents): ...\nkernel = K()"


@pytest.mark.parametrize(
    "source, library",
    [
        (f"import mlx.core as mx\nimport numpy as np\n{OBJECT}", "mlx"),
        (f"from mlx.core import exp\n{OBJECT}", "mlx"),
        (f"from mlx.core import array\n{OBJECT}", "mlx"),
        (f"import numpy as np\n{OBJECT}", "numpy"),
        (OBJECT, "numpy"),
        (f"import mlx.core as mx\n{OBJECT}\nkernel.arrays = 'numpy'", "numpy"),
        ("import mlx.core as mx\ndef kernel(x): ...", "mlx"),
        ("import numpy\ndef kernel(x): ...", "numpy"),
        ("def kernel(x): ...", "mlx"),
        ("import numpy, mlx.core as mx\nkernel = mx.compile(lambda x: x)", "mlx"),
        ("import mlx.core as mx\nkernel = mx.custom_function(lambda x: x)", "mlx"),
        ("import mlx.core as mx\nkernel = mx.fast.rms_norm", "mlx"),
        ("import numpy\nclass K:\n    def __call__(self, x): ...\nkernel = K()", "numpy"),
        ("import numpy, functools\ndef f(x): ...\nkernel = functools.partial(f)", "numpy"),
    ],
)
def test_the_module_in_which_a_kernel_is_written_says_which_arrays_it_takes(source, library):
    assert library == arrays_of(written(source)).NAME
