"""A case: one point of the grid at which a kernel is compared with the truth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gradcheck._errors import UsageError

OBJECTIVES = {
    "all": "random weights on every output, the final state included",
    "y": "random weights on the per-step output alone",
    "state": "random weights on the final state alone",
    "impulse": "random weights on the output of one step, zero elsewhere",
}

_AXIS = re.compile(r"([A-Z][A-Za-z]*)(\d+)")


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: op, sizes of the axes, branch of the op, dtype, regime of the inputs, objective, seed.

    `str(case)` is its identity and parses back: `ssm_scan/B2,T65,H4,P8,N16,G2,mamba2/f32/long-memory@impulse/7`.
    Axes begin with a capital, variants with a small letter; the objective `all` is not written.
    """

    op: str
    dims: tuple[tuple[str, int], ...]
    dtype: str
    regime: str
    seed: int
    variant: str = ""
    objective: str = "all"

    def __str__(self) -> str:
        dims = ",".join([*(f"{axis}{size}" for axis, size in self.dims), *([self.variant] if self.variant else [])])
        regime = self.regime if self.objective == "all" else f"{self.regime}@{self.objective}"
        return f"{self.op}/{dims}/{self.dtype}/{regime}/{self.seed}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Axis name to size."""
        return dict(self.dims)

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that `text` names.

        Raises:
            UsageError: `text` is not of the form `op/dims/dtype/regime[@objective]/seed`.
        """
        return _parsed(text)


@lru_cache(maxsize=1 << 12)  # a run asks for the same few hundred tens of thousands of times
def _parsed(text: str) -> Case:
    form = "op/B2,T65,…[,variant]/dtype/regime[@objective]/seed"
    parts = text.split("/")
    if len(parts) != 5:
        raise UsageError(f"case {text!r} has {len(parts)} parts, need 5: {form}")
    op, dims_text, dtype, regime_text, seed = parts
    dims, variant = parse_dims(dims_text)
    regime, _, objective = regime_text.partition("@")
    if objective and objective not in OBJECTIVES:
        raise UsageError(f"case {text!r}: no objective {objective!r}; known: {', '.join(OBJECTIVES)}")
    if not seed.isdecimal():
        raise UsageError(f"case {text!r}: the seed {seed!r} is not a whole number")
    return Case(op, dims, dtype, regime, int(seed), variant, objective or "all")


def parse_dims(text: str, variants: Iterable[str] = ()) -> tuple[tuple[tuple[str, int], ...], str]:
    """Axis sizes and variant of `B2,T65,mamba2`; `B=2` is accepted too.

    Args:
        text: the sizes, and the variant if there is one, in any order.
        variants: those that an error should name, where they are known; others are taken too.

    Raises:
        UsageError: a part is neither an axis with a positive size nor a variant.
    """
    dims: dict[str, int] = {}
    variant = ""
    known = f" ({', '.join(variants)})" if variants else ""
    for given in filter(None, map(str.strip, text.split(","))):
        part = given.replace("=", "")
        axis = _AXIS.fullmatch(part)
        if axis and int(axis[2]) > 0:
            if axis[1] in dims:
                raise UsageError(f"dims {text!r}: the axis {axis[1]} is given twice")
            dims[axis[1]] = int(axis[2])
        elif part[:1].islower() and not variant:
            variant = part
        else:
            raise UsageError(f"dims {text!r}: {given!r} is neither an axis with a positive size (T65) nor a variant{known}")
    if text and not dims and not variant:
        raise UsageError(f"dims {text!r} names neither an axis with a size (T65) nor a variant{known}")
    return tuple(dims.items()), variant
