"""Arguments that do not fit, refused by their names: what is no array, and what would broadcast to something else than is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def need_heads(who: str, q: mx.array, v: mx.array) -> None:
    """Refuse a q [B, T, Hk, Dk] and a v [B, T, Hv, Dv] that are of other axes, empty, or whose heads do not divide.

    Raises:
        ValueError: it names the argument, its shape, and what is needed.
    """
    for name, array in (("q", q), ("v", v)):
        if array.ndim != 4 or 0 in array.shape:
            raise ValueError(f"{who}: {name} has shape {array.shape}, need 4 axes, none of them empty")
    if v.shape[2] % q.shape[2]:
        raise ValueError(f"{who}: v has {v.shape[2]} heads, need a multiple of the {q.shape[2]} of q and k")


def need_shapes(who: str, arrays: Mapping[str, mx.array | None], wanted: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
    """Refuse an array that has none of the shapes that are wanted of it; one that is None is left out.

    Raises:
        ValueError: it names the argument, its shape, and what is needed.
    """
    for name, shapes in wanted.items():
        given = arrays[name]
        if given is not None and given.shape not in shapes:
            raise ValueError(f"{who}: {name} has shape {given.shape}, need {' or '.join(map(str, shapes))}")
