"""Text for a terminal: strangers' words made harmless, numbers made short."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence

from rich.text import Text

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.MULTILINE)
_BARS = "▁▂▃▄▅▆▇█"


def safe(text: str) -> str:
    """`text` without escape sequences, control and direction-changing characters: line breaks stay, other space becomes blanks.

    Kernels, their logs and the names of files come from outside; none may move the cursor, recolour or reorder what is printed.
    """
    plain = _ESCAPE.sub("", text.replace("\t", "    ").replace("\r\n", "\n"))
    return "".join(c if c == "\n" or c.isprintable() else " " if c.isspace() else "" for c in plain)


def line(text: str) -> str:
    """`safe(text)` on one line."""
    return " ".join(safe(text).split("\n")).strip()


def brief(text: str) -> str:
    """`line(text)`; of an exception with its traceback what it says, and where it was raised: `ValueError: T is odd (scan.py:7)`."""
    frames = list(_FRAME.finditer(safe(text)))
    if not frames:
        return line(text)
    file, number = frames[-1].groups()
    return f"{line(safe(text)[: frames[0].start()])} ({file}:{number})"


def say(*parts: str | tuple[str, str]) -> Text:
    """Text from words and `(words, style)`; what looks like markup stays as it is."""
    return Text.assemble(*parts)


def number(value: float | None) -> str:
    """Three digits, short: `2.31`, `15.2`, `312`, `3.1e4`; `not finite` for None."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


def value(got: float | None) -> str:
    """Nine digits: what is needed to tell neighbouring float32 numbers apart."""
    return "not finite" if got is None or not math.isfinite(got) else f"{got:.9g}"


def count(n: int, noun: str) -> str:
    """`1 case`, `1,024 cases`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def words(names: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    *most, end = list(names) or [""]
    return f"{', '.join(most)} {last} {end}" if most else end


def command(words: Sequence[str], width: int) -> str:
    """A shell command, broken between options by backslashes so that no line but a single long word exceeds `width`."""
    lines: list[str] = []
    for option in _options(words):
        if lines and len(lines[-1]) + 1 + len(option) <= width - 2:
            lines[-1] += f" {option}"
        else:
            lines.append(option)
    return " \\\n".join(lines)


def _options(words: Sequence[str]) -> list[str]:
    """Each option with its value; a line break inside one would cut what belongs together."""
    options: list[str] = []
    for word in map(shlex.quote, words):
        if options and options[-1].startswith("--") and " " not in options[-1] and not word.startswith("--"):
            options[-1] += f" {word}"
        else:
            options.append(word)
    return options


def spark(profile: Sequence[float | None], tolerance: float, width: int) -> Text:
    """Error by time step as bars on a log scale, red above `tolerance`; a step that is not finite is `!`.

    Bars span the four decades about the tolerance. Where there are more steps than columns, a column shows its worst step.
    """
    per = math.ceil(len(profile) / width) if profile else 1
    text = Text()
    for start in range(0, len(profile), per):
        finite = [step for step in profile[start : start + per] if step is not None]
        if len(finite) < len(profile[start : start + per]):
            text.append("!", style="bold red")
            continue
        worst = max(finite)
        level = 0.5 + math.log10(worst / tolerance) / 4 if worst > 0 and tolerance > 0 else float(worst > tolerance)
        bar = _BARS[min(max(int(level * len(_BARS)), 0), len(_BARS) - 1)]
        text.append(bar, style="dim" if worst <= tolerance else "red")
    return text
