"""mlx-lm's kernels of recurrences, each beside its float64 reference. `mlx_lm` is imported in the functions: within the tap."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tests.mlx_lm.bounds import UNIT, Array, Compared, compared, drawn, exact, gamma, unit_rows


def gated_delta(name: str, dtype: mx.Dtype, *, vector: bool = False, masked: bool = False) -> list[Compared]:
    """`scalar`, `vector`, `masked`, …: the kernel that takes one row of the state per simdgroup; `packed` and `xtree` for Dk = 128."""
    from mlx_lm.models import gated_delta as module

    wide = name in {"packed", "xtree", "unpacked"}
    B, T, Hk, Hv, Dk, Dv = (1, 7, 1, 2, 128, 16) if wide else (2, 9, 2, 4, 64, 8)
    rng = np.random.default_rng(3)
    q, k = (unit_rows(drawn(rng, dtype, B, T, Hk, Dk)) for _ in range(2))
    v, beta = drawn(rng, dtype, B, T, Hv, Dv), drawn(rng, dtype, B, T, Hv, low=0.1, high=0.9)
    g = drawn(rng, mx.float32, B, T, Hv, *([Dk] if vector else []), low=0.5, high=0.99)
    state = drawn(rng, mx.float32, B, Hv, Dv, Dk)
    mask = mx.array(rng.random((B, T)) < 0.7) if masked else None
    call = {"packed": module.gated_delta_kernel, "xtree": module.gated_delta_kernel_xtree}.get(name, module.gated_delta_kernel_unpacked)
    y, last = call(q, k, v, g, beta, state, mask)
    repeated = [np.repeat(exact(array), Hv // Hk, axis=2) for array in (q, k)]
    gate = exact(g) if vector else exact(g)[..., None]
    arguments = [*repeated, exact(v), gate, exact(beta), exact(state)]
    steps = np.ones((B, T), bool) if mask is None else np.array(mask)
    want, want_state = _delta(*arguments, steps, -1)
    size, size_state = _delta(*map(np.abs, arguments), steps, 1)
    # Each step: the gate, a dot product, v - kv, beta, and the update; then the dot product with q.
    dot = Dk // 32 + 6
    chain = T * (dot + 5)
    return [
        compared(f"gated_delta {name}: y", y, want, gamma(chain + dot) * size),
        compared(f"gated_delta {name}: state", last, want_state, gamma(chain) * size_state),
    ]


def _delta(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, steps: Array, sign: int) -> tuple[Array, Array]:
    """S ← g S; S ← S + (v + sign S k) β kᵀ; y = S q. With sign +1 on absolute values: Σ|terms|."""
    y = np.zeros(v.shape)
    for t in range(v.shape[1]):
        decayed = state * g[:, t, :, None, :]
        delta = (v[:, t] + sign * np.einsum("bhvk,bhk->bhv", decayed, k[:, t])) * beta[:, t, :, None]
        now = decayed + delta[..., None] * k[:, t, :, None, :]
        on = steps[:, t, None, None]
        y[:, t] = np.where(on, np.einsum("bhvk,bhk->bhv", now, q[:, t]), 0)
        state = np.where(on[..., None], now, state)
    return y, state


def ssm(dtype: mx.Dtype) -> list[Compared]:
    """One step of Mamba-2; two heads share a group."""
    from mlx_lm.models import ssm as module

    n, h, d, groups, ds = 2, 4, 16, 2, 64
    rng = np.random.default_rng(4)
    x, B, C = drawn(rng, dtype, n, 1, h, d), drawn(rng, dtype, n, 1, groups, ds), drawn(rng, dtype, n, 1, groups, ds)
    A_log, D, dt_bias = (drawn(rng, dtype, h, low=-1.0) for _ in range(3))
    dt, state = drawn(rng, dtype, n, 1, h), drawn(rng, dtype, n, h, d, ds)
    limits = (0.001, 100.0)
    out, last = module.ssm_update_kernel(x, A_log, B, C, D, dt, dt_bias, state, limits)
    delta = exact(module.compute_dt(dt, dt_bias, limits))[:, 0]
    exponent = -np.exp(exact(A_log)) * delta
    rows_B, rows_C = (np.repeat(exact(array)[:, 0], h // groups, axis=1) for array in (B, C))
    kept = np.exp(exponent)[..., None, None] * exact(state)
    added = (exact(x)[:, 0] * delta[..., None])[..., None] * rows_B[:, :, None, :]
    skipped = exact(x)[:, 0] * exact(D)[:, None]
    size = np.abs(kept) + np.abs(added)
    # exp of a product whose own error is multiplied by it; then the products and the sum. exp is good to 4 u.
    chain = 8 + 5 * float(np.max(np.abs(exponent)))
    want = np.einsum("nhds,nhs->nhd", kept + added, rows_C) + skipped
    error = gamma(chain + ds // 32 + 8) * (np.einsum("nhds,nhs->nhd", size, np.abs(rows_C)) + np.abs(skipped))
    return [
        compared("ssm: out", out, want[:, None], error[:, None]),
        compared("ssm: state", last, kept + added, gamma(chain) * size),
    ]


def wkv7(dtype: mx.Dtype) -> list[Compared]:
    """RWKV-7. The product k v is of two numbers of the inputs' dtype, so it is rounded to that, in each step."""
    from mlx_lm.models import rwkv7 as module

    B, T, H, D = 2, 6, 2, 64
    rng = np.random.default_rng(5)
    r, k, v = (drawn(rng, dtype, B, T, H, D) for _ in range(3))
    w = drawn(rng, dtype, B, T, H, D, low=0.6, high=0.99)
    a, b = (unit_rows(drawn(rng, dtype, B, T, H, D)) for _ in range(2))
    state = drawn(rng, dtype, B, H, D, D)
    y, last = module.wkv7_kernel(r, w, k, v, a, b, state)
    arguments = list(map(exact, (r, w, k, v, a, b, state)))
    (want, want_state), (size, size_state) = _wkv7(*arguments), _wkv7(*map(np.abs, arguments))
    dot = D // 32 + 6
    rounded = UNIT[dtype] if dtype != mx.float32 else 0.0
    chain = T * (dot + 5)
    return [
        compared("wkv7: y", y, want, (rounded + gamma(chain + dot)) * (1 + rounded) * size),
        compared("wkv7: state", last, want_state, (rounded + gamma(chain)) * (1 + rounded) * size_state),
    ]


def _wkv7(r: Array, w: Array, k: Array, v: Array, a: Array, b: Array, state: Array) -> tuple[Array, Array]:
    """S ← S diag(w) + v kᵀ + (S a) bᵀ; y = S r."""
    y = np.zeros(v.shape)
    for t in range(v.shape[1]):
        along = np.einsum("bhij,bhj->bhi", state, a[:, t])
        state = state * w[:, t, :, None, :] + v[:, t, ..., None] * k[:, t, :, None, :] + along[..., None] * b[:, t, :, None, :]
        y[:, t] = np.einsum("bhij,bhj->bhi", state, r[:, t])
    return y, state
