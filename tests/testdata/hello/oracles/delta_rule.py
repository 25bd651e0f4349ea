"""A recurrence whose state is coupled: every element of a column reads all the others."""

from __future__ import annotations

from gradcheck import F64, Kernel, op

from ._draw import forgetful, uniform


@op(
    source="Schlag, Irie & Schmidhuber 2021, Linear Transformers Are Secretly Fast Weight Programmers, eq. (24)",
    inputs={"S": "B K V", "q": "B T K", "k": "B T K", "v": "B T V", "beta": "B T"},
    outputs={"y": "B T V", "S_T": "B K V"},
    state="S",
    terms="B K V",
    linear="S q v beta",
    dims={"B": (1, 2), "T": (1, 5, 17), "K": (3,), "V": (1, 5)},
    regimes={"uniform": uniform, "forgetful": forgetful},
    coupled="K",
    separate={"q": "K"},
    kernels=[Kernel("plain", "hello.delta:delta_rule", sources=("delta.py",))],
)
def delta_rule(S: F64, q: F64, k: F64, v: F64, beta: F64) -> tuple[F64, tuple[F64, ...]]:
    """S_t = S_{t-1} + beta k (v - S_{t-1}' k)' and y_t = S_t' q, with S[K, V]."""
    error = v - (S * k[..., None]).sum(axis=-2)
    S = S + beta[..., None, None] * k[..., None] * error[..., None, :]
    return S, (S * q[..., None],)
