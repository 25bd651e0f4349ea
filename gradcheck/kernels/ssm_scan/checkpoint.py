"""The selective scan with checkpoints: of T states the forward keeps one per chunk, and the backward makes the others anew.

Every number is the result of the same operations in the same order as in `mlx.ssm_scan`, which keeps all states: outputs and
gradients are equal bit for bit, for every length of chunk. Only what is summed over the state is ever kept for all T steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import cast

import mlx.core as mx

from .mlx import Contractions, adjoints, check, contract, gradients, prepare, read, states, time_first, time_second


def ssm_scan(
    s: mx.array, x: mx.array, dt: mx.array, A: mx.array, B: mx.array, C: mx.array, *, every: int | None = None
) -> tuple[mx.array, mx.array]:
    """Selective scan, as `mlx.ssm_scan`: equations, shapes and dtypes are told there, and the results are the same bits.

    Memory between forward and backward is O(T / every) states, and `every` more while the backward is in a chunk.

    Args:
        s: initial state, [B, H, P, N].
        x: [B, T, H, P].
        dt: step size before the softplus, [B, T, H].
        A: decay rate, [H] (Mamba-2) or [H, N] (Mamba-1).
        B: input projection, [B, T, G, N].
        C: output projection, [B, T, G, N].
        every: steps per chunk; the whole part of √T if not given, which needs the least memory: about 2 √T states.

    Returns:
        y [B, T, H, P] and s_T [B, H, P, N].

    Raises:
        ValueError: a shape does not fit, an input is not of a floating dtype, or `every` is below 1.
    """
    check({"s": s, "x": x, "dt": dt, "A": A, "B": B, "C": C})
    if every is not None and every < 1:
        raise ValueError(f"ssm_scan: every is {every}, need at least 1 step per chunk")
    y, s_T, _ = _scan(math.isqrt(x.shape[1]) if every is None else every)(s, x, dt, A, B, C)
    return y, s_T


@cache
def _scan(every: int) -> Callable[..., tuple[mx.array, mx.array, mx.array]]:
    """The scan in chunks of `every` steps. Its third output holds the state at the begin of each chunk, [chunks, B, H, P, N]."""

    @mx.custom_function
    def scan(*primals: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        s, x = primals[:2]
        S0, steps, _ = prepare(primals)
        kept, y = [S0], []
        for begin, end in _chunks(x.shape[1], every):
            chunk = steps.part(begin, end)
            S = states(kept[-1], chunk)
            y.append(read(S, chunk))
            kept.append(S[-1])
        return time_second(mx.concatenate(y)).astype(x.dtype), kept[-1].astype(s.dtype), mx.stack(kept[:-1])

    @scan.vjp
    def _(primals: tuple[mx.array, ...], cotangents: tuple[mx.array, ...], outputs: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
        """The reverse recurrence, chunk by chunk from the last: G is carried from one to the next, S begins at what was kept."""
        _, steps, rate = prepare(primals)
        dy, carried = time_first(cotangents[0]), cotangents[1].astype(mx.float32)
        kept = outputs[2]
        found = []
        for number, (begin, end) in reversed(list(enumerate(_chunks(dy.shape[0], every)))):
            chunk = steps.part(begin, end)
            S = states(kept[number], chunk)
            G, carried = adjoints(carried, dy[begin:end], chunk)
            found.append(contract(S, G, dy[begin:end], chunk))
        whole = Contractions(*(mx.concatenate(list(parts)) for parts in zip(*found[::-1], strict=True)))
        return gradients(primals, steps, rate, carried, whole)

    return cast("Callable[..., tuple[mx.array, mx.array, mx.array]]", scan)


def _chunks(T: int, every: int) -> list[tuple[int, int]]:
    """First step of each chunk, and the step after its last."""
    return [(begin, min(begin + every, T)) for begin in range(0, T, every)]
