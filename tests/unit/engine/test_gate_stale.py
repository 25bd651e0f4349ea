"""Where the text of a stale mutant went."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck.engine.gate_stale import Stale, _followed

OLD = "a\nfirst = 1\ncarried = a * G\nlast = 2\nb\n"


@pytest.mark.parametrize(
    "new, line, text",
    [
        ("a\nfirst = 1\ncarried = np.multiply(G, a)\nlast = 2\nb\n", 3, "carried = np.multiply(G, a)"),
        ("more\n\na\nfirst = 1\nG *= a\nlast = 2\nb\n", 5, "G *= a"),
        ("a\nfirst = 1\nlast = 2\nb\n", 3, ""),
        ("a\nx\ny\nz\nw\ncarried = G * a\nb\n", 6, "carried = G * a"),
    ],
)
def test_a_text_is_followed_to_where_it_stands_now(new: str, line: int, text: str):
    assert _followed("carried = a * G", OLD, new) == (line, text)


@pytest.mark.parametrize("old, new", [("", "a\n"), ("carried = a * G\ncarried = a * G\n", "a\n"), (OLD, "")])
def test_a_text_that_stood_in_no_one_place_is_not(old: str, new: str):
    assert _followed("carried = a * G", old, new) is None


def test_both_texts_are_shown():
    shown = Stale("m", "plain", Path("/x/leaky.py"), 0, 3, "a\nb", "a\nc").diff
    assert shown.splitlines() == ["--- the mutant looks for", "+++ leaky.py line 3 has", "@@ -1,2 +1,2 @@", " a", "-b", "+c"]
