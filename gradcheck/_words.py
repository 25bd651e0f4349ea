"""Numbers in sentences."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 case`, `1,296 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
