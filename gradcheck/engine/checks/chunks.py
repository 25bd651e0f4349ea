"""The size of a chunk is a choice of speed: every size that a kernel may be given must give the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from gradcheck.engine.arrays import arrays_of, is_object
from gradcheck.engine.checks.bench import Bench, Found, few, size_of


def chunks(bench: Bench) -> Found:
    """f with any declared size of chunk is f, judged like any call: by the truth and its noise.

    A kernel is compared with the truth at one size, its default. Others may lose the last, shorter chunk, or hand over nothing where
    one chunk holds all steps. Nothing is compared of a kernel that declares no sizes.
    """
    if not bench.chunks:
        return Found(remark="no sizes of chunks declared")
    truth = bench.truth()
    unsound = bench.wrong_anyway(bench.call(), truth)
    said, compared = [], 0
    for keyword, sizes in bench.chunks.items():
        for size in sizes:
            got = replace(bench, kernel=sized(bench.kernel, {keyword: size})).call()
            off = [text for name, text in bench.off(got, truth).items() if name not in unsound]
            said += [f"with {keyword}={size}, {text}" for text in (*got.notes, *off)]
            compared += size_of(got)
    return Found(few(said), compared)


def sized(kernel: object, options: Mapping[str, int]) -> object:
    """The kernel with keyword arguments given: to the callable, or to both `forward` and `vjp` of an object."""
    library = arrays_of(kernel).NAME
    if is_object(kernel):
        return _Sized(kernel, options, library)
    function: Any = functools.partial(cast("Callable[..., object]", kernel), **options)  # what is no object is callable, or no kernel
    function.arrays = library
    return function


@dataclass(frozen=True, slots=True)
class _Sized:
    kernel: Any
    options: Mapping[str, int]
    arrays: str

    def forward(self, *inputs: object) -> object:
        return self.kernel.forward(*inputs, **self.options)

    def vjp(self, inputs: tuple[object, ...], cotangents: tuple[object, ...]) -> object:
        return self.kernel.vjp(inputs, cotangents, **self.options)
