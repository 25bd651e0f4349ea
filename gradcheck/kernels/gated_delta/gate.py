"""The gate and beta of a gated delta layer, from its trained parameters, with gradients that stay accurate where a sigmoid saturates.

In float32 1 - sigmoid(20) is 0, and so is the slope sigmoid(1 - sigmoid) which MLX differentiates by; here 1 - sigmoid(z) is sigmoid(-z),
which loses nothing. No gradient is divided by a gate: what a gate sends back is dg·g, which is 0 where the gate is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import mlx.core as mx


def decay(a: mx.array, A_log: mx.array, dt_bias: mx.array, lower_bound: float | None = None) -> mx.array:
    """The gate, in linear space and float32, of the shape of a. Trainable.

    With z = a + dt_bias::

        g = exp(-e^A_log softplus(z))
        g = exp(lower_bound · sigmoid(e^A_log z))       where a `lower_bound` is given

    Args:
        a: [B, T, Hv], or [B, T, Hv, Dk] for a gate per key channel.
        A_log: as many axes as a has behind T, each of its size or 1: [Hv], or [Hv, 1]. Finite below 88.
        dt_bias: likewise: [Hv], or [Hv, Dk].
        lower_bound: of log g, below 0.
    """
    return _decay(lower_bound)(a, A_log, dt_bias)


def strength(b: mx.array, *, allow_neg_eigval: bool = False) -> mx.array:
    """beta = sigmoid(b), doubled where eigenvalues down to -1 are allowed; in float32, of the shape of b. Trainable."""
    beta = cast("mx.array", _sigmoid(b))
    return 2 * beta if allow_neg_eigval else beta


@cache
def _decay(lower_bound: float | None) -> Callable[[mx.array, mx.array, mx.array], mx.array]:
    """The gate with this bound."""

    def prepare(a: mx.array, A_log: mx.array, dt_bias: mx.array) -> tuple[mx.array, mx.array]:
        """z and e^A_log."""
        return a.astype(mx.float32) + dt_bias.astype(mx.float32), mx.exp(A_log.astype(mx.float32))

    @mx.custom_function
    def gate(a: mx.array, A_log: mx.array, dt_bias: mx.array) -> mx.array:
        z, rate = prepare(a, A_log, dt_bias)
        if lower_bound is None:
            return mx.exp(-rate * softplus(z))
        return mx.exp(lower_bound * mx.sigmoid(rate * z))

    @gate.vjp
    def _(primals: tuple[mx.array, ...], dg: mx.array, g: mx.array) -> tuple[mx.array, ...]:
        """Through log g: what reaches a and dt_bias by way of z, and A_log by way of the rate."""
        a, A_log, dt_bias = primals
        z, rate = prepare(a, A_log, dt_bias)
        dlog = dg * g
        if lower_bound is None:
            dz = dlog * -rate * mx.sigmoid(z)
            dA_log = dlog * -rate * softplus(z)  # e^A_log is its own derivative
        else:
            u = rate * z
            du = dlog * lower_bound * mx.sigmoid(u) * mx.sigmoid(-u)
            dz = du * rate
            dA_log = du * u
        return dz.astype(a.dtype), _over(dA_log, A_log), _over(dz, dt_bias)

    return cast("Callable[[mx.array, mx.array, mx.array], mx.array]", gate)


def softplus(z: mx.array) -> mx.array:
    """log(1 + e^z)."""
    return mx.logaddexp(z, 0.0)


@mx.custom_function
def _sigmoid(b: mx.array) -> mx.array:
    return mx.sigmoid(b.astype(mx.float32))


@_sigmoid.vjp
def _sigmoid_vjp(b: mx.array, dbeta: mx.array, beta: mx.array) -> mx.array:
    """db = dbeta · beta (1 - beta)."""
    return (dbeta * beta * mx.sigmoid(-b.astype(mx.float32))).astype(b.dtype)


def _over(gradient: mx.array, parameter: mx.array) -> mx.array:
    """The sum over all that a parameter was broadcast to: batch, steps, and its axes of size 1."""
    lead = gradient.ndim - parameter.ndim
    shared = [lead + i for i, size in enumerate(parameter.shape) if size == 1]
    return gradient.sum(axis=[*range(lead), *shared]).reshape(parameter.shape).astype(parameter.dtype)
