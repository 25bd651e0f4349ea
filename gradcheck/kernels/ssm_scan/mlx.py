"""The selective scan in MLX ops, with a hand-written reverse recurrence as its VJP.

Inside this file arrays have the time axis first, so that one step is one contiguous block: x[T,B,H,P], dt[T,B,H], B and C
[T,B,H,N] (repeated over the heads of a group), states [T,B,H,P,N]. Everything that is parallel over time is one op over all
steps; only the two recurrences themselves are loops. Sums are products and `sum`, not matmuls: a float32 matmul may run in
TF32 on some GPUs.
"""

from __future__ import annotations

from typing import cast

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
    _check({"s": s, "x": x, "dt": dt, "A": A, "B": B, "C": C})
    return cast("tuple[mx.array, mx.array]", _scan(s, x, dt, A, B, C))


@mx.custom_function
def _scan(*primals: mx.array) -> tuple[mx.array, mx.array]:
    S0, X, step, decay, Bh, Ch, _ = _prepare(primals)
    S = _states(S0, X, step, decay, Bh)[1:]
    y = (S * Ch[..., None, :]).sum(axis=-1)
    s, x = primals[:2]
    return _time_second(y).astype(x.dtype), S[-1].astype(s.dtype)


@_scan.vjp
def _scan_vjp(
    primals: tuple[mx.array, ...], cotangents: tuple[mx.array, mx.array], _outputs: tuple[mx.array, mx.array]
) -> tuple[mx.array, ...]:
    """The reverse recurrence.

    `G_t` is the adjoint of `S_t`, everything after step t included: `G_T = ds_T + dy_T (outer) C_T`, then
    `G_t = a_{t+1} G_{t+1} + dy_t (outer) C_t`, and `ds = a_1 G_1` at the end.
    """
    s, x, dt, A, B, C = primals
    S0, X, step, decay, Bh, Ch, rate = _prepare(primals)
    dy, ds_T = _time_first(cotangents[0]), cotangents[1].astype(mx.float32)

    S = _states(S0, X, step, decay, Bh)
    S_before, S_after = S[:-1], S[1:]
    G, ds = _adjoints(ds_T, dy, decay, Ch)

    dC = (dy[..., None] * S_after).sum(axis=-2)
    dB = (X[..., None] * step[..., None, None] * G).sum(axis=-2)
    u = (G * Bh[..., None, :]).sum(axis=-1)
    dx = u * step[..., None]

    dlog_decay = decay * (G * S_before).sum(axis=-2)  # adjoint of P_t A, per state: [T, B, H, N]
    input_path = (u * X).sum(axis=-1)
    dA_path = (dlog_decay * rate).sum(axis=-1)
    dstep = input_path + dA_path
    ddt = dstep * _softplus_slope(_time_first(dt))
    dA = (dlog_decay * step[..., None]).sum(axis=(0, 1))

    groups = B.shape[2]
    return (
        ds.astype(s.dtype),
        _time_second(dx).astype(x.dtype),
        _time_second(ddt).astype(dt.dtype),
        (dA if A.ndim == 2 else dA.sum(axis=-1)).astype(A.dtype),
        _time_second(_over_group(dB, groups)).astype(B.dtype),
        _time_second(_over_group(dC, groups)).astype(C.dtype),
    )


def _states(S0: mx.array, X: mx.array, step: mx.array, decay: mx.array, Bh: mx.array) -> mx.array:
    """`S_0 … S_T`, [T + 1, B, H, P, N]."""
    entering = (X * step[..., None])[..., None] * Bh[..., None, :]
    S = [S0[None]]
    for a, new in zip(_steps(decay[..., None, :]), _steps(entering), strict=True):
        S.append(a * S[-1] + new)
    return mx.concatenate(S)


def _adjoints(ds_T: mx.array, dy: mx.array, decay: mx.array, Ch: mx.array) -> tuple[mx.array, mx.array]:
    """`G_1 … G_T`, [T, B, H, P, N], and the gradient of the initial state."""
    from_y = dy[..., None] * Ch[..., None, :]
    adjoints = []
    carried = ds_T[None]
    for a, read in zip(_steps(decay[..., None, :])[::-1], _steps(from_y)[::-1], strict=True):
        G = carried + read
        adjoints.append(G)
        carried = a * G
    return mx.concatenate(adjoints[::-1]), carried[0]


def _prepare(primals: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
    """Everything in float32 and time first: state, x, step size, decay, B and C per head, rate [H, 1 or N]."""
    s, x, dt, A, B, C = primals
    heads = x.shape[2]
    rate = A.astype(mx.float32)
    if A.ndim == 1:
        rate = rate[:, None]
    step = _softplus(_time_first(dt))
    decay = mx.exp(step[..., None] * rate)
    return s.astype(mx.float32), _time_first(x), step, decay, _per_head(B, heads), _per_head(C, heads), rate


def _softplus(z: mx.array) -> mx.array:
    return mx.where(z > SOFTPLUS_LINEAR_ABOVE, z, mx.logaddexp(z, 0.0))


def _softplus_slope(z: mx.array) -> mx.array:
    return mx.where(z > SOFTPLUS_LINEAR_ABOVE, 1.0, mx.sigmoid(z))


def _per_head(grouped: mx.array, heads: int) -> mx.array:
    """[B, T, G, N] to [T, B, H, N]: head h reads group h // (H / G)."""
    return mx.repeat(_time_first(grouped), heads // grouped.shape[2], axis=2)


def _over_group(per_head: mx.array, groups: int) -> mx.array:
    """[T, B, H, N] to [T, B, G, N]: the sum over the heads of each group, the adjoint of `_per_head`."""
    T, batch, heads, N = per_head.shape
    return per_head.reshape(T, batch, groups, heads // groups, N).sum(axis=3)


def _steps(array: mx.array) -> list[mx.array]:
    """The T blocks [1, …] of a time-first array, in one op."""
    return list(mx.split(array, array.shape[0]))


def _time_first(array: mx.array) -> mx.array:
    return array.astype(mx.float32).swapaxes(0, 1)


def _time_second(array: mx.array) -> mx.array:
    return array.swapaxes(0, 1)


def _check(inputs: dict[str, mx.array]) -> None:
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
