"""A kernel: one implementation of an op, under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kernel:
    """An implementation of an op, named by string so that no suite file imports it.

    Args:
        name: short name, as given to `--kernel`.
        target: `package.module:attribute` or `path/to/file.py:attribute`. The attribute is either an MLX callable that takes
            arrays in the op's input order and returns its outputs (differentiated by `mx.vjp`), or an object with
            `forward(*inputs) -> outputs` and `vjp(inputs, cotangents) -> gradients` over numpy or MLX arrays.
        sources: files of the target's package that a mutant may edit, relative to the package.
        dtypes: input dtypes the kernel claims: `f32`, `f16`, `bf16`.
        carry: dtype in which it keeps the state between steps; `input` when that is the dtype of its inputs.
        variants: branches of the op it implements; empty means all.
        requires: module without which it cannot run here (`mlx`), or nothing.
        install: what `pip install` is given to get that module, where it is not the module's own name.
        forward_only: it has no backward on purpose: a run that checks gradients leaves it out, unless it is asked for by name.
        deterministic: the same call gives the same bits. False, as with float atomics: checks that compare bits judge within noise.
        chunks: keyword argument of the target to sizes of a chunk: `{"chunk": (1, 16, 64)}`. Each must give the same within noise.
    """

    name: str
    target: str
    sources: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("f32",)
    carry: str = "input"
    variants: tuple[str, ...] = ()
    requires: str = ""
    install: str = ""
    forward_only: bool = False
    deterministic: bool = True
    chunks: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    @property
    def metal(self) -> bool:
        """Whether it is written in Metal, which runs on an Apple GPU or, slower, on a CPU."""
        return any(source.endswith(".metal") for source in self.sources)
