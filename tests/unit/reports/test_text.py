from __future__ import annotations

import math
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck.suite import load

terminal = load(()).reports["terminal"].render.__module__
text = sys.modules[terminal.replace(".terminal", "._text")]


@given(st.text())
def test_no_control_character_is_left(words):
    assert all(c == "\n" or c.isprintable() for c in text.safe(words))
    assert "\n" not in text.line(words)
    assert "\x1b" not in text.safe(words)


@pytest.mark.parametrize("words", ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07red", "r\x1b[2Jed", "\x1b[1;31;40mred", "re\u202ed"])
def test_escape_sequences_go_whole(words):
    assert text.safe(words) == "red"


TRACEBACK = """ValueError: T is odd,
and 64 is even
  File "/x/call.py", line 9, in vjp
    return vjp(*inputs)
           ^^^^^^^^^^^^
  File "/x/my scan.py", line 7, in back
    raise ValueError(f"T is odd,\\nand {C} is even")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"""


def test_of_a_traceback_the_exception_and_its_place_are_told():
    assert text.brief(TRACEBACK) == "ValueError: T is odd, and 64 is even (/x/my scan.py:7)"
    assert text.brief("exit status 3\nat once") == "exit status 3 at once"


@given(st.text(), st.text("ab\x1b\u202e /", min_size=1))
def test_what_is_told_of_a_traceback_has_no_control_character(words, file):
    told = text.brief(f'{words}\n  File "{file}", line 3, in f\n    g()\n')
    assert told.isprintable()
    assert told.endswith(":3)")


@pytest.mark.parametrize(
    "value, short",
    [
        (0.0, "0"),
        (2.3149, "2.31"),
        (0.0123, "0.0123"),
        (312.4, "312"),
        (31_234.0, "3.1e4"),
        (1e-7, "1.0e-7"),
        (None, "not finite"),
        (math.nan, "not finite"),
    ],
)
def test_numbers_are_short(value, short):
    assert text.number(value) == short


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_value_reads_back(value):
    import numpy as np

    assert np.float32(text.value(value)) == np.float32(value)


@given(st.lists(st.text("ab' -/$", min_size=1, max_size=20), min_size=1, max_size=8), st.integers(30, 120))
def test_a_command_reads_back_as_its_words_however_it_is_broken(words, width):
    assert shlex.split(text.command(words, width).replace("\\\n", " ")) == words


def test_a_command_is_broken_between_options_not_in_them():
    command = text.command(["gradcheck", "run", "--op", "x", "--cases", "y" * 30], 40)
    assert command == f"gradcheck run --op x \\\n--cases {'y' * 30}"


def test_bars_rise_where_the_error_does_and_mark_what_is_not_finite():
    shown = text.spark([0.1, 0.1, 900.0, None], 8.0, 10).plain
    assert shown[0] == shown[1] < shown[2]
    assert shown[3] == "!"


def test_bars_never_hide_a_single_bad_step_among_many():
    profile = [0.1] * 1000
    profile[537] = 1e6
    shown = text.spark(profile, 8.0, 50).plain
    assert len(shown) <= 50
    assert shown.count("█") == 1
