"""The gated delta rule in Metal, with its reverse recurrence as the VJP: `common`, `forward`, `backward` and `sum.metal` beside this file.

The forward keeps the state at the begin of every chunk of steps, and the errors v - S~ k of all steps; with these the backward makes
the other states anew, chunk by chunk, without a sum. Outputs and gradients do not depend on the length of a chunk: they are the same
operations in the same order, so the same bits. Nothing is ever divided by a gate.

There are no atomics. Sums over the rows that one threadgroup holds are made in threadgroup memory; what is left over is written down
as partial sums, which `sum.metal` adds in a fixed order.

Memory, where numbers are of 4 bytes: T / chunk states that are kept and `chunk` that are made again, of B Hv Dv Dk numbers each;
T B Hv Dv errors; per block of rows 2 T B Hv Dk partial sums (3 where each key channel has a gate). At B 1, Hk 16, Hv 64, Dk 192,
Dv 128, T 1024 a state is 6.3 MB and a head is two blocks of 64 rows: 201 + 201 MB for states in chunks of 32, 34 MB for errors,
2 x 101 MB for partial sums, beside 92 MB of inputs, outputs and gradients in bfloat16 and 19 MB of states that come in and go out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, cast

import mlx.core as mx

from gradcheck.metal.beside import Grid, Template, launch

LANES = 32  # of a simdgroup
SIMDGROUPS = 8  # per threadgroup, at most: 256 threads, so that a kernel that needs many registers still fits
NUMBERS = 48  # of the state in one thread, at most where a row leaves the choice: the backward holds as many again of its adjoint
SUMS = 256  # threads per threadgroup of sum.metal
THREADGROUP_MEMORY = 32 * 1024  # bytes; of any Apple GPU

_launch = partial(launch, Path(__file__).parent, "gated_delta")


def gated_delta(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array | None = None,
    mask: mx.array | None = None,
    *,
    chunk: int | None = None,
) -> tuple[mx.array, mx.array]:
    """Outputs of every step, and the final state: equations as `autodiff.gated_delta`. All inputs but the mask have gradients.

    Memory between forward and backward is O(T / chunk) states, and `chunk` more in the backward. Results do not depend on it, to the
    last bit. `chunk=T` keeps the initial state alone, which is right where no gradient is wanted.

    Args:
        q: [B, T, Hk, Dk].
        k: [B, T, Hk, Dk].
        v: [B, T, Hv, Dv].
        g: decay in linear space, [B, T, Hv] or [B, T, Hv, Dk].
        beta: [B, T, Hv].
        state: initial state, [B, Hv, Dv, Dk]; zeros in float32 if not given.
        mask: [B, T]; a step that is False keeps the state, gives y = 0 and has gradients of 0.
        chunk: steps of a chunk; the whole part of √T if not given, which needs the least memory: about 2 √T states.

    Returns:
        y [B, T, Hv, Dv] and the final state [B, Hv, Dv, Dk], in the dtypes of q and of `state`.

    Raises:
        ValueError: a shape or dtype does not fit, a row of Dk numbers does not fit in threadgroup memory, or `chunk` is below 1.
    """
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": state, "mask": mask}
    _check({name: array for name, array in given.items() if array is not None})
    if chunk is not None and chunk < 1:
        raise ValueError(f"gated_delta: chunk is {chunk}, need at least 1 step")
    if state is None:
        state = mx.zeros((v.shape[0], *v.shape[2:], q.shape[3]))
    steps = math.isqrt(q.shape[1]) if chunk is None else min(chunk, q.shape[1])
    y, state_T, _, _ = _recurrence(steps)(q, k, v, g, beta, state, *(() if mask is None else (mask,)))
    return y, state_T


@cache
def _recurrence(chunk: int) -> Callable[..., tuple[mx.array, ...]]:
    """y, the final state, and what the backward needs: the state at the begin of each chunk [chunks, B, Hv, Dv, Dk] and all errors."""

    @mx.custom_function
    def recurrence(*primals: mx.array) -> tuple[mx.array, ...]:
        q, _, v, _, _, state = primals[:6]
        y, state_T, kept, error = _launch(
            "forward",
            {**_inputs(primals), "chunk": mx.array(chunk)},
            {
                "y": (v.shape, q.dtype),
                "state_T": (state.shape, state.dtype),
                "kept": ((-(-q.shape[1] // chunk), *state.shape), mx.float32),
                "error": (v.shape, mx.float32),
            },
            *_rows(primals).launch,
        )
        return y, state_T, kept, error

    @recurrence.vjp
    def _(primals: tuple[mx.array, ...], cotangents: tuple[mx.array, ...], outputs: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
        q, k, v, g, beta, state = primals[:6]
        rows = _rows(primals)
        inputs = _inputs(primals)
        del inputs["v"], inputs["state"]
        of_blocks = (*beta.shape, rows.blocks, q.shape[3])
        of_simdgroups = (*beta.shape, rows.blocks * rows.simdgroups)
        dv, dstate, dq, dk, dg, dbeta, _ = _launch(
            "backward",
            {**inputs, "kept": outputs[2], "error": outputs[3], "dy": cotangents[0], "dstate_T": cotangents[1], "chunk": mx.array(chunk)},
            {
                "dv": (v.shape, v.dtype),
                "dstate": (state.shape, state.dtype),
                "dq_partial": (of_blocks, mx.float32),
                "dk_partial": (of_blocks, mx.float32),
                "dg_partial": (of_blocks if rows.vector else of_simdgroups, mx.float32),
                "dbeta_partial": (of_simdgroups, mx.float32),
                "before": ((chunk, *state.shape), mx.float32),
            },
            *rows.launch,
        )
        gradients = (_sum(dq, q), _sum(dk, k), dv, _sum(dg, g), _sum(dbeta, beta), dstate)
        return (*gradients, *(mx.zeros_like(mask) for mask in primals[6:]))

    return cast("Callable[..., tuple[mx.array, ...]]", recurrence)


class Rows(NamedTuple):
    """How the rows of the states are shared out: a head is `blocks` threadgroups of `simdgroups` each, of `rows` rows each."""

    heads: int
    blocks: int
    simdgroups: int
    rows: int
    columns: int
    vector: bool
    masked: bool

    @property
    def launch(self) -> tuple[Grid, Grid, Template]:
        """Grid, threadgroup and template of the kernels that walk through time."""
        template = (
            ("COLUMNS", self.columns),
            ("ROWS", self.rows),
            ("SIMDGROUPS", _simdgroups(self.columns, vector=self.vector)),
            ("SLOTS", _slots(vector=self.vector)),
            ("VECTOR", self.vector),
            ("MASKED", self.masked),
        )
        return (LANES, self.blocks * self.simdgroups, self.heads), (LANES, self.simdgroups, 1), template


def _rows(primals: Sequence[mx.array]) -> Rows:
    q, _, v, g = primals[:4]
    batch, _, Hv, Dv = v.shape
    columns, vector = -(-q.shape[3] // LANES), g.ndim == 4
    # Many rows in a simdgroup make few partial sums, few rows make many threadgroups.
    rows = max(1, min(4 if Dv <= 64 else 8, NUMBERS // columns))
    simdgroups = -(-Dv // rows)
    blocks = -(-simdgroups // _simdgroups(columns, vector=vector))
    return Rows(batch * Hv, blocks, -(-simdgroups // blocks), rows, columns, vector, masked=len(primals) > 6)


def _slots(*, vector: bool) -> int:
    """Vectors of Dk numbers that are summed over rows: dq, dk, and dg where each key channel has a gate."""
    return 3 if vector else 2


def _simdgroups(columns: int, *, vector: bool) -> int:
    """Simdgroups whose terms threadgroup memory holds, in two buffers; 0 if those of one are too many."""
    return min(SIMDGROUPS, THREADGROUP_MEMORY // (2 * _slots(vector=vector) * columns * LANES * 4))


def _inputs(primals: Sequence[mx.array]) -> dict[str, mx.array]:
    """The primals by name. Where there is no mask, it is one element that nobody reads."""
    mask = primals[6] if len(primals) > 6 else mx.array([True])
    return dict(zip(("q", "k", "v", "g", "beta", "state", "mask"), (*primals[:6], mask), strict=True))


def _sum(partial: mx.array, like: mx.array) -> mx.array:
    """Partial sums, which lie together, added up: in the shape and dtype of `like`."""
    inner = like.shape[3] if like.ndim == 4 else 1
    (total,) = _launch(
        "sum",
        {"partial": partial.reshape(like.size // inner, -1, inner)},
        {"total": (like.shape, like.dtype)},
        (-(-like.size // SUMS) * SUMS, 1, 1),
        (SUMS, 1, 1),
        (),
    )
    return total


def _check(arrays: Mapping[str, mx.array]) -> None:
    """Raise ValueError for a shape or dtype that does not fit."""
    for name, rank in {"q": 4, "k": 4, "v": 4}.items():
        if arrays[name].ndim != rank:
            raise ValueError(f"gated_delta: {name} has shape {arrays[name].shape}, need {rank} axes")
    q, v = arrays["q"], arrays["v"]
    batch, T, Hk, Dk = q.shape
    Hv, Dv = v.shape[2:]
    if 0 in q.shape or 0 in v.shape:
        raise ValueError(f"gated_delta: nothing to do: q is {q.shape} and v is {v.shape}")
    if Hv % Hk:
        raise ValueError(f"gated_delta: the {Hk} key heads of q {q.shape} must divide the {Hv} value heads of v {v.shape}")
    fitting: dict[str, tuple[tuple[int, ...], ...]] = {
        "q": (q.shape,),
        "k": (q.shape,),
        "v": ((batch, T, Hv, Dv),),
        "g": ((batch, T, Hv), (batch, T, Hv, Dk)),
        "beta": ((batch, T, Hv),),
        "state": ((batch, Hv, Dv, Dk),),
        "mask": ((batch, T),),
    }
    for name, array in arrays.items():
        if array.shape not in fitting[name]:
            need = " or ".join(map(str, fitting[name]))
            raise ValueError(f"gated_delta: {name} has shape {array.shape}, need {need} to go with q {q.shape} and v {v.shape}")
        if not (array.dtype == mx.bool_ if name == "mask" else mx.issubdtype(array.dtype, mx.floating)):
            raise ValueError(f"gated_delta: {name} has dtype {array.dtype}, need {'bool' if name == 'mask' else 'a floating one'}")
    vector = arrays["g"].ndim == 4
    if not _simdgroups(-(-Dk // LANES), vector=vector):
        most = LANES * (THREADGROUP_MEMORY // (2 * _slots(vector=vector) * LANES * 4))
        gate = "a gate per channel" if vector else "one gate"
        raise ValueError(f"gated_delta: Dk is {Dk}, and with {gate} at most {most} key channels fit in threadgroup memory")
