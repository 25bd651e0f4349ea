"""What is given in place of an array, refused by its name before a shape is looked at."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx


def need_array(who: str, name: str, given: object, shape: str) -> mx.array:
    """`given`, which is an MLX array.

    Args:
        who: the function that was called.
        name: of its argument.
        given: the argument.
        shape: what it should have, in words.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(given, mx.array):
        return given
    if given is None:
        raise TypeError(f"{who}: {name} is None, need an MLX array {shape}")
    kind = type(given)
    what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise TypeError(f"{who}: {name} is of type {what}, need an MLX array {shape}; mx.array({name}) makes one of numbers")


def need_floats(who: str, arrays: Mapping[str, object], shapes: Mapping[str, str]) -> None:
    """Refuse what is no MLX array, or one of whole numbers, of truths or of complex numbers: none of these can be trained.

    Args:
        who: the function that was called.
        arrays: its arguments by name.
        shapes: what each should have, in words.

    Raises:
        TypeError: it names the argument, what it is, and what to give.
    """
    for name, given in arrays.items():
        dtype = need_array(who, name, given, shapes[name]).dtype
        if not mx.issubdtype(dtype, mx.floating):
            kind = str(dtype).rpartition(".")[2]
            raise TypeError(f"{who}: {name} has dtype {kind}, need one of floating-point numbers; give {name}.astype(mx.float32)")
