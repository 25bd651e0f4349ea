"""The selective scan in MLX ops, with a hand-written reverse recurrence as its VJP.

Inside this file arrays have the time axis first, so that one step is one contiguous block: x[T,B,H,P], dt[T,B,H], B and C
[T,B,H,N] (repeated over the heads of a group), states [T,B,H,P,N]. Everything that is parallel over time is one op over all
steps; only the two recurrences themselves are loops. Sums are products and `sum`, not matmuls: a float32 matmul may run in
TF32 on some GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import mlx.core as mx

SOFTPLUS_LINEAR_ABOVE = 20.0  # ggml's threshold: beyond it softplus(dt) is dt, and its slope 1


def ssm_scan(s: mx.array, x: mx.array, dt: mx.array, A: mx.array, B: mx.array, C: mx.array) -> tuple[mx.array, mx.array]:
    """Selective scan: outputs of every step, and the final state. Trainable: all six inputs have gradients.

    With step size `P_t = softplus(dt_t)` (`dt_t` itself above 20), decay `a_t = exp(P_t A)` and `g = h // (H / G)`, per head h::

        S_t = a_t S_{t-1} + P_t x_t (outer) B_{t,g}
        y_t = S_t C_{t,g}

    The backward recomputes and keeps all T + 1 states: memory is O(T · B · H · P · N).

    Args:
        s: initial state, [B, H, P, N].
        x: [B, T, H, P].
        dt: step size before the softplus, [B, T, H].
        A: decay rate, negative in a stable model: [H], one per head (Mamba-2), or [H, N], one per state (Mamba-1).
        B: input projection, [B, T, G, N], where G divides H.
        C: output projection, [B, T, G, N].

    Returns:
        y [B, T, H, P] in the dtype of x, and s_T [B, H, P, N] in the dtype of s. Whatever the input dtypes, the state is carried
        and every sum is made in float32; a gradient has the dtype of its input.

    Raises:
        ValueError: a shape does not fit, or an input is not of a floating dtype.
    """
    check({"s": s, "x": x, "dt": dt, "A": A, "B": B, "C": C})
    return cast("tuple[mx.array, mx.array]", _scan(s, x, dt, A, B, C))


@mx.custom_function
def _scan(*primals: mx.array) -> tuple[mx.array, mx.array]:
    s, x = primals[:2]
    S0, steps, _ = prepare(primals)
    S = states(S0, steps)
    return time_second(read(S, steps)).astype(x.dtype), S[-1].astype(s.dtype)


@_scan.vjp
def _scan_vjp(
    primals: tuple[mx.array, ...], cotangents: tuple[mx.array, mx.array], _outputs: tuple[mx.array, mx.array]
) -> tuple[mx.array, ...]:
    """The reverse recurrence.

    `G_t` is the adjoint of `S_t`, everything after step t included: `G_T = ds_T + dy_T (outer) C_T`, then
    `G_t = a_{t+1} G_{t+1} + dy_t (outer) C_t`, and `ds = a_1 G_1` at the end.
    """
    S0, steps, rate = prepare(primals)
    dy, ds_T = time_first(cotangents[0]), cotangents[1].astype(mx.float32)
    S = states(S0, steps)
    G, ds = adjoints(ds_T, dy, steps)
    return gradients(primals, steps, rate, ds, contract(S, G, dy, steps))


class Steps(NamedTuple):
    """What the recurrence reads at each step, in float32 and time first.

    Args:
        x: [T, B, H, P].
        step: step size `P_t`, [T, B, H].
        decay: `a_t = exp(P_t A)`, [T, B, H, N], or 1 for N in Mamba-2.
        B: per head, [T, B, H, N].
        C: per head, [T, B, H, N].
    """

    x: mx.array
    step: mx.array
    decay: mx.array
    B: mx.array
    C: mx.array

    def part(self, begin: int, end: int) -> Steps:
        """The steps `begin <= t < end`."""
        return Steps(*(array[begin:end] for array in self))


class Contractions(NamedTuple):
    """The products of states and adjoints that the gradients are made of, summed over one axis of the state; time first, per head.

    Args:
        dB: gradient of B, [T, B, H, N].
        dC: gradient of C, [T, B, H, N].
        u: `G_t B_t`, the adjoint of `P_t x_t`, [T, B, H, P].
        dlog_decay: adjoint of `P_t A`, per state, [T, B, H, N].
    """

    dB: mx.array  # noqa: N815 - the literature's symbol
    dC: mx.array  # noqa: N815
    u: mx.array
    dlog_decay: mx.array


def prepare(primals: Sequence[mx.array]) -> tuple[mx.array, Steps, mx.array]:
    """Initial state, steps, and decay rate [H, 1 or N], all in float32."""
    s, x, dt, A, B, C = primals
    step = softplus(time_first(dt))
    return (s.astype(mx.float32), *discretise(step, x, A, B, C))


def discretise(step: mx.array, x: mx.array, A: mx.array, B: mx.array, C: mx.array) -> tuple[Steps, mx.array]:
    """The steps, from step sizes [T, B, H] that are float32 already, and the decay rate [H, 1 or N]."""
    heads = x.shape[2]
    rate = A.astype(mx.float32)
    if A.ndim == 1:
        rate = rate[:, None]
    decay = mx.exp(step[..., None] * rate)
    return Steps(time_first(x), step, decay, _per_head(B, heads), _per_head(C, heads)), rate


def states(S0: mx.array, steps: Steps) -> mx.array:
    """`S_0 … S_T`, [T + 1, B, H, P, N]."""
    entering = (steps.x * steps.step[..., None])[..., None] * steps.B[..., None, :]
    S = [S0[None]]
    for a, new in zip(_each(steps.decay[..., None, :]), _each(entering), strict=True):
        S.append(a * S[-1] + new)
    return mx.concatenate(S)


def read(S: mx.array, steps: Steps) -> mx.array:
    """`y_t = S_t C_t`, [T, B, H, P], from `S_0 … S_T`."""
    return (S[1:] * steps.C[..., None, :]).sum(axis=-1)


def adjoints(ds_T: mx.array, dy: mx.array, steps: Steps) -> tuple[mx.array, mx.array]:
    """`G_1 … G_T`, [T, B, H, P, N], and the gradient of the initial state."""
    from_y = dy[..., None] * steps.C[..., None, :]
    G_reversed = []
    carried = ds_T[None]
    for a, sent in zip(_each(steps.decay[..., None, :])[::-1], _each(from_y)[::-1], strict=True):
        G = carried + sent
        G_reversed.append(G)
        carried = a * G
    return mx.concatenate(G_reversed[::-1]), carried[0]


def contract(S: mx.array, G: mx.array, dy: mx.array, steps: Steps) -> Contractions:
    """The contractions, from `S_0 … S_T` and `G_1 … G_T`."""
    S_before, S_after = S[:-1], S[1:]
    dB = (steps.x[..., None] * steps.step[..., None, None] * G).sum(axis=-2)
    dC = (dy[..., None] * S_after).sum(axis=-2)
    u = (G * steps.B[..., None, :]).sum(axis=-1)
    dlog_decay = steps.decay * (G * S_before).sum(axis=-2)
    return Contractions(dB, dC, u, dlog_decay)


def chain(steps: Steps, rate: mx.array, found: Contractions) -> tuple[mx.array, mx.array, mx.array]:
    """Gradients of x and of the step size, time first, and of A: [T, B, H, P], [T, B, H] and [H, N]."""
    dx = found.u * steps.step[..., None]
    input_path = (found.u * steps.x).sum(axis=-1)
    dA_path = (found.dlog_decay * rate).sum(axis=-1)
    dstep = input_path + dA_path
    dA = (found.dlog_decay * steps.step[..., None]).sum(axis=(0, 1))
    return dx, dstep, dA


def gradients(primals: Sequence[mx.array], steps: Steps, rate: mx.array, ds: mx.array, found: Contractions) -> tuple[mx.array, ...]:
    """The gradients of s, x, dt, A, B and C, each in the shape and dtype of its input."""
    s, x, dt, A, B, C = primals
    dx, dstep, dA = chain(steps, rate, found)
    ddt = dstep * softplus_slope(time_first(dt))
    groups = B.shape[2]
    dB, dC = over_group(found.dB, groups), over_group(found.dC, groups)
    return (
        ds.astype(s.dtype),
        time_second(dx).astype(x.dtype),
        time_second(ddt).astype(dt.dtype),
        (dA if A.ndim == 2 else dA.sum(axis=-1)).astype(A.dtype),
        time_second(dB).astype(B.dtype),
        time_second(dC).astype(C.dtype),
    )


def softplus(z: mx.array) -> mx.array:
    """log(1 + e^z), and z itself above 20."""
    return mx.where(z > SOFTPLUS_LINEAR_ABOVE, z, mx.logaddexp(z, 0.0))


def softplus_slope(z: mx.array) -> mx.array:
    """The derivative of `softplus`."""
    return mx.where(z > SOFTPLUS_LINEAR_ABOVE, 1.0, mx.sigmoid(z))


def _per_head(grouped: mx.array, heads: int) -> mx.array:
    """[B, T, G, N] to [T, B, H, N]: head h reads group h // (H / G)."""
    return mx.repeat(time_first(grouped), heads // grouped.shape[2], axis=2)


def over_group(per_head: mx.array, groups: int) -> mx.array:
    """[T, B, H, N] to [T, B, G, N]: the sum over the heads of each group, the adjoint of repeating them."""
    T, batch, heads, N = per_head.shape
    return per_head.reshape(T, batch, groups, heads // groups, N).sum(axis=3)


def _each(array: mx.array) -> list[mx.array]:
    """The T blocks [1, …] of a time-first array, in one op."""
    return list(mx.split(array, array.shape[0]))


def time_first(array: mx.array) -> mx.array:
    """[B, T, …] to [T, B, …], in float32."""
    return array.astype(mx.float32).swapaxes(0, 1)


def time_second(array: mx.array) -> mx.array:
    """[T, B, …] to [B, T, …]."""
    return array.swapaxes(0, 1)


def check(inputs: Mapping[str, mx.array]) -> None:
    """Raise ValueError for a shape or dtype that does not fit."""
    for name, rank in {"s": 4, "x": 4, "dt": 3, "B": 4, "C": 4}.items():
        if inputs[name].ndim != rank:
            raise ValueError(f"ssm_scan: {name} has shape {inputs[name].shape}, need {rank} axes")
    s, x, dt, A, B, C = inputs.values()
    batch, T, heads, P = x.shape
    groups, N = B.shape[2:]
    if 0 in x.shape or 0 in B.shape:
        raise ValueError(f"ssm_scan: nothing to scan: x is {x.shape} and B is {B.shape}")
    if heads % groups:
        raise ValueError(f"ssm_scan: the {groups} groups of B {B.shape} must divide the {heads} heads of x {x.shape}")
    for name, array, want in (
        ("s", s, (batch, heads, P, N)),
        ("dt", dt, (batch, T, heads)),
        ("B", B, (batch, T, groups, N)),
        ("C", C, (batch, T, groups, N)),
    ):
        if array.shape != want:
            raise ValueError(f"ssm_scan: {name} has shape {array.shape}, need {want} to go with x {x.shape} and B {B.shape}")
    if A.shape not in {(heads,), (heads, N)}:
        raise ValueError(f"ssm_scan: A has shape {A.shape}, need {(heads,)} (Mamba-2) or {(heads, N)} (Mamba-1)")
    for name, array in inputs.items():
        if not mx.issubdtype(array.dtype, mx.floating):
            raise ValueError(f"ssm_scan: {name} has dtype {array.dtype}, need a floating one")
