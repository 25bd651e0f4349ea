"""The smallest recurrence there is: a leaky sum, diagonal in its state."""

from __future__ import annotations

from gradcheck import F64, Kernel, op

from ._draw import forgetful, uniform


@op(
    source="Martin & Cundy 2018, Parallelizing Linear Recurrent Neural Nets Over Sequence Length, eq. (5)",
    inputs={"h": "B D", "x": "B T D", "a": "D"},
    outputs={"y": "B T D", "h_T": "B D"},
    state="h",
    terms="B D",
    linear="h x",
    dims={"B": (1, 2, 3), "T": (1, 5, 37), "D": (1, 7)},
    regimes={"uniform": uniform, "forgetful": forgetful},
    kernels=[
        Kernel("plain", "hello.leaky:leaky_scan", sources=("leaky.py",), dtypes=("f32", "f16")),
        Kernel("ops", "hello.leaky_ops:leaky_scan", sources=("leaky_ops.py",), requires="mlx"),
    ],
)
def leaky_scan(h: F64, x: F64, a: F64) -> tuple[F64, tuple[F64, ...]]:
    """h_t = a h_{t-1} + x_t and y_t = h_t, for every d by itself."""
    h = a * h + x
    return h, (h,)
