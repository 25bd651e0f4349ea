"""Integer functions: exhaustively on 8 bits, drawn on the wider types, against Python's integers."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.metal.header import build, call

KINDS = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}


def _wrap(v: int, bits: int, *, signed: bool) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if signed and v >> (bits - 1) else v


def _saturate(v: int, bits: int, *, signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(v, low), high)


def _low24(x: int, *, signed: bool) -> int:
    return _wrap(x & 0xFFFFFF, 24, signed=signed)


def _rotate(x: int, y: int, bits: int) -> int:
    x, y = x & ((1 << bits) - 1), y % bits
    return (x << y) | (x >> (bits - y))


def _leading(x: int, bits: int) -> int:
    return bits - (x & ((1 << bits) - 1)).bit_length()


def _trailing(x: int, bits: int) -> int:
    return bits if x == 0 else (x & -x).bit_length() - 1


ONE: dict[str, Callable[[int, int, bool], int]] = {
    "popcount": lambda x, b, s: (x & ((1 << b) - 1)).bit_count(),
    "clz": lambda x, b, s: _leading(x, b),
    "ctz": lambda x, b, s: _trailing(x, b),
    "reverse_bits": lambda x, b, s: int(format(x & ((1 << b) - 1), f"0{b}b")[::-1], 2),
    "abs": lambda x, b, s: abs(x),
}
TWO: dict[str, Callable[[int, int, int, bool], int]] = {
    "absdiff": lambda x, y, b, s: abs(x - y),
    "addsat": lambda x, y, b, s: _saturate(x + y, b, signed=s),
    "subsat": lambda x, y, b, s: _saturate(x - y, b, signed=s),
    "hadd": lambda x, y, b, s: (x + y) >> 1,
    "rhadd": lambda x, y, b, s: (x + y + 1) >> 1,
    "mulhi": lambda x, y, b, s: (x * y) >> b,
    "rotate": lambda x, y, b, s: _rotate(x, y, b),
    "max": lambda x, y, b, s: max(x, y),
    "min": lambda x, y, b, s: min(x, y),
    "mul24": lambda x, y, b, s: _low24(x, signed=s) * _low24(y, signed=s),
}
THREE: dict[str, Callable[[int, int, int, int, bool], int]] = {
    "madhi": lambda x, y, z, b, s: ((x * y) >> b) + z,
    "madsat": lambda x, y, z, b, s: _saturate(x * y + z, b, signed=s),
    "mad24": lambda x, y, z, b, s: _low24(x, signed=s) * _low24(y, signed=s) + z,
    "median3": lambda x, y, z, b, s: sorted((x, y, z))[1],
    "max3": lambda x, y, z, b, s: max(x, y, z),
    "min3": lambda x, y, z, b, s: min(x, y, z),
    "clamp": lambda x, y, z, b, s: min(max(x, y), z),
}
SEEN = [
    ("integer.h", "T((W(x) + W(y)) >> 1)", "T((x + y) / 2)"),
    ("integer.h", "x == 0 ? gcm::bits<T> : __builtin_clzl", "x == 0 ? 0 : __builtin_clzl"),
    ("integer.h", "GCM_INTEGER2(mulhi, T((W(x) * W(y)) >> gcm::bits<T>))", "GCM_INTEGER2(mulhi, T((U(x) * U(y)) >> gcm::bits<T>))"),
    ("integer.h", "typedef make_unsigned_t<T> U; typedef gcm::wide_t<T> W; return __VA_ARGS__; }, R(a_), R(b_), R(c_)); \\",
     "typedef make_unsigned_t<T> U; typedef gcm::wide_t<T> W; return __VA_ARGS__; }, R(a_), R(b_), R(b_)); \\"),
    ("integer.h", "if (count == 0) return T(0);", "if (count < 2) return T(0);"),
]  # fmt: skip
WIDE_ONLY = {"mul24", "mad24"}  # Metal has them for 32 bits


def _kinds(name: str) -> list[str]:
    return ["int", "uint"] if name in WIDE_ONLY else list(KINDS)


TEXT = """
#define SHOW extern "C" __attribute__((visibility("default")))
#define ONE(f, T) SHOW void f##_##T(const T* x, T* r, int n) { for (int i = 0; i < n; i++) r[i] = f(x[i]); }
#define TWO(f, T) SHOW void f##_##T(const T* x, const T* y, T* r, int n) { for (int i = 0; i < n; i++) r[i] = f(x[i], y[i]); }
#define THREE(f, T) SHOW void f##_##T(const T* x, const T* y, const T* z, T* r, int n) { for (int i = 0; i < n; i++) r[i] = f(x[i], y[i], z[i]); }
#define BITS(T) SHOW void extract_##T(const T* x, const int* at, const int* count, T* r, int n) { for (int i = 0; i < n; i++) r[i] = extract_bits(x[i], at[i], count[i]); } \\
  SHOW void insert_##T(const T* x, const T* y, const int* at, const int* count, T* r, int n) { for (int i = 0; i < n; i++) r[i] = insert_bits(x[i], y[i], at[i], count[i]); }
BITS(char) BITS(uchar) BITS(int) BITS(ulong)
static_assert(is_same_v<decltype(absdiff(1, 2)), uint> && is_same_v<decltype(popcount(uchar4())), uchar4> && is_same_v<decltype(mulhi(1u, 2u)), uint> && is_same_v<decltype(clz(1ul)), ulong>);
static_assert(numeric_limits<char>::min() == -128 && numeric_limits<short>::max() == 32767 && numeric_limits<long>::min() == LONG_MIN && numeric_limits<ulong>::max() == ULONG_MAX && numeric_limits<bool>::max());
""" + "".join(f"{shape}({name}, {kind})\n" for shape, table in (("ONE", ONE), ("TWO", TWO), ("THREE", THREE)) for name in table for kind in _kinds(name))  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return build(TEXT, tmp_path_factory.mktemp("integers"))


def _arguments(kind: str, count: int) -> list[NDArray[np.generic]]:
    info = np.iinfo(KINDS[kind])
    if info.bits == 8 and count < 3:
        every = np.arange(info.min, int(info.max) + 1).astype(KINDS[kind])
        return [a.ravel().copy() for a in np.meshgrid(*[every] * count)]
    draw = np.random.default_rng(11)
    edges = np.array([info.min, 0, 1, int(info.max) // 2, info.max], KINDS[kind])
    return [
        np.concatenate([draw.choice(edges, 200), draw.integers(info.min, int(info.max), 400, KINDS[kind], endpoint=True)])
        for _ in range(count)
    ]


def _check(library: c.CDLL, name: str, kind: str) -> None:
    table, count = next((table, n) for n, table in ((1, ONE), (2, TWO), (3, THREE)) if name in table)
    arguments = _arguments(kind, count)
    if name == "clamp":
        arguments[1:] = [np.minimum(*arguments[1:]), np.maximum(*arguments[1:])]
    got = np.zeros_like(arguments[0])
    call(library, f"{name}_{kind}", *arguments, got)
    info = np.iinfo(KINDS[kind])
    signed = info.min < 0
    for values in zip(*(a.tolist() for a in arguments), got.tolist(), strict=True):
        want = _wrap(table[name](*values[:-1], info.bits, signed), info.bits, signed=signed)  # type: ignore[operator]
        assert values[-1] == want, f"{name}{values[:-1]} of {kind} is {values[-1]}, not {want}"


@pytest.mark.parametrize("name", [*ONE, *TWO, *THREE])
def test_an_integer_function_is_exact(library: c.CDLL, name: str) -> None:
    for kind in _kinds(name):
        _check(library, name, kind)


def _check_bits(library: c.CDLL, kind: str) -> None:
    info = np.iinfo(KINDS[kind])
    bits, signed = info.bits, info.min < 0
    span = np.array([(at, count) for at in range(bits) for count in range(bits - at + 1)], np.int32)
    at, count = (np.repeat(span[:, i], 4).copy() for i in range(2))
    x, y = (np.random.default_rng(i).integers(info.min, int(info.max), at.size, KINDS[kind], endpoint=True) for i in range(2))
    got = np.zeros_like(x)
    call(library, f"extract_{kind}", x, at, count, got)
    for v, a, n, r in zip(x.tolist(), at.tolist(), count.tolist(), got.tolist(), strict=True):
        want = 0 if n == 0 else _wrap(v >> a, n, signed=signed)
        assert r == want, f"extract_bits({v}, {a}, {n})"
    call(library, f"insert_{kind}", x, y, at, count, got)
    for v, w, a, n, r in zip(x.tolist(), y.tolist(), at.tolist(), count.tolist(), got.tolist(), strict=True):
        mask = ((1 << n) - 1) << a
        assert r == _wrap((v & ~mask) | ((w << a) & mask), bits, signed=signed), f"insert_bits({v}, {w}, {a}, {n})"


@pytest.mark.parametrize("kind", ["char", "uchar", "int", "ulong"])
def test_bits_are_taken_out_and_put_in_at_every_place(library: c.CDLL, kind: str) -> None:
    _check_bits(library, kind)


def test_a_wrong_header_is_seen(tmp_path: Path) -> None:
    wrong = build(TEXT, tmp_path, SEEN)
    for name, kind in (("hadd", "int"), ("clz", "uchar"), ("mulhi", "char"), ("madsat", "short")):
        with pytest.raises(AssertionError, match=name):
            _check(wrong, name, kind)
    with pytest.raises(AssertionError, match="extract_bits"):
        _check_bits(wrong, "char")
