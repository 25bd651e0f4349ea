from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gradcheck import ExitCode, Outcome
from gradcheck.suite import load

_home = load(()).reports["markdown"].render.__module__
written = sys.modules[_home.replace(".markdown", "._markdown")]
reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
RUNS = ["passing", "stranger", "crash", "survivor", "incomplete", "hostile"]


def html_of(text: str) -> str:
    return reader.render(text)


def tables(text: str) -> list[list[list[str]]]:
    """Rows of cells of each table, as a reader of GitHub's Markdown sees them."""
    found: list[list[list[str]]] = []
    for token in reader.parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and token.level >= 4 and found and found[-1]:
            found[-1][-1].append(token.content)
    return found


def many(run, rows: int):
    """A run with so many survivors that no comment holds them."""
    row = next(row for row in run.kills if row.outcome is Outcome.SURVIVED and row.mutant == "drop_dA_path")
    extra = tuple(replace(row, mutant=f"mutant_{k}") for k in range(rows))
    return replace(run, kills=(*run.kills, *extra))


def test_the_verdict_is_the_first_line(render, stranger, passing):
    assert render("markdown", stranger).splitlines()[0] == "## ❌ FAIL: `ssm_scan`, a kernel is wrong (exit 1)"
    assert render("markdown", passing).splitlines()[0].startswith("## ✅ PASS: `ssm_scan`")


def test_a_wrong_gradient_has_its_element_its_step_and_its_replay_line(render, stranger):
    text = render("markdown", stranger)
    assert "**FAILED** `d dt` of `path/to/my_kernels.py:scan` in 7 cases" in text
    assert "d dt\\[b=0, t=64, h=3\\] is 1.5, should be -2.5" in text
    assert "worst step t = 64; leaves the noise at t = 60, 5 of 65 steps" in text
    assert "```sh\ngradcheck replay ssm_scan/B2" in text
    assert "--suite ../theirs" in text


def test_each_gradient_has_its_separation(render, passing):
    (table,) = [rows for rows in tables(render("markdown", passing)) if "decades apart" in rows[0]]
    gradients = {row[2]: row for row in table[1:]}
    assert gradients["`d x`"][-1] == "4.6"  # log10 of what the fixture's l2 band has
    assert gradients["`d x`"][7] == "`previous_state_in_dC`"
    assert {"`d s`", "`d x`", "`d dt`", "`d A`", "`d B`", "`d C`"} <= set(gradients)


def test_a_survivor_shows_its_diff(render, survivor):
    text = render("markdown", survivor)
    assert "### Survivors" in text
    assert "```diff\n--- a/mlx.py" in text
    assert "--mutant drop_dA_path" in text


def test_a_survivor_of_the_base_is_not_new(render, survivor, passing):
    assert "### New survivors" in render("markdown", survivor, base=passing)
    both = render("markdown", survivor, base=survivor)
    assert "### New survivors" not in both
    assert "### Survivors that the base has too" in both
    assert "Nothing changed" in both


def test_what_changed_since_the_base_is_a_table_with_the_worse_first(render, survivor, passing):
    (table,) = [rows for rows in tables(render("markdown", survivor, base=passing)) if rows[0] == ["", "what", "before", "now"]]
    assert [row[2:] for row in table[1:]] == [["KILLED", "SURVIVED"]] * 3
    assert table[1][0] == "🔻"


def test_a_separation_that_shrank_by_a_factor_of_two_is_told_and_one_by_less_is_not(render, passing):
    shrunk = tuple(replace(b, defect=b.defect / 2.1) if b.quantity == "d x" and b.defect else b for b in passing.bands)
    text = render("markdown", replace(passing, bands=shrunk), base=passing)
    assert "`separation of d x · mlx · f32` | 4.6 decades | 4.3 decades" in text
    slightly = tuple(replace(b, defect=b.defect / 1.5) if b.quantity == "d x" and b.defect else b for b in passing.bands)
    assert "Nothing changed" in render("markdown", replace(passing, bands=slightly), base=passing)


def test_a_kernel_that_became_wrong_or_is_gone_is_told(render, passing, stranger):
    gone = render("markdown", stranger, base=passing)
    assert "| 🔻 | `mlx` | right | not checked |" in gone
    assert "wrong in d A, d dt" in gone


@pytest.mark.parametrize("limit", [3_000, 10_000, 65_536, 1 << 20])
def test_it_fits_the_limit_and_no_table_or_diff_is_cut(render, survivor, limit):
    text = render("markdown", many(survivor, 400), limit=limit)
    assert len(text.encode()) <= limit
    assert text.startswith("## ❌ ROTTEN")
    assert len(re.findall(r"^`{3,}", text, re.MULTILINE)) % 2 == 0
    assert text.count("<details>") == text.count("</details>")
    for rows in tables(text):
        assert len(rows) > 1
        assert {len(row) for row in rows} == {len(rows[0])}
        assert rows[-1][0] != ""


def test_what_is_left_out_is_counted_and_where_it_is_said(render, survivor):
    text = render("markdown", many(survivor, 400), limit=20_000)
    shown = len(re.findall(r"^\*\*SURVIVED", text, re.MULTILINE))
    (left,) = re.findall(r"… and (\d+) more: `gradcheck report 20261130-000512-3f9a`", text)
    assert shown + int(left) == 401


def test_a_limit_of_a_table_drops_rows_from_its_end():
    section = written.table("### t", ("a", "b"), [(str(k), "x" * 50) for k in range(100)])
    text = written.document("first", [section], 1500, "elsewhere")
    assert len(text.encode()) <= 1500
    (rows,) = tables(text)
    assert [row[0] for row in rows[1:]] == [str(k) for k in range(len(rows) - 1)]
    assert f"and {100 - (len(rows) - 1)} more: elsewhere" in text


@pytest.mark.parametrize("name", RUNS)
def test_nothing_of_a_stranger_is_markup(render, name, request):
    shown = html_of(render("markdown", request.getfixturevalue(name)))
    allowed = {
        "details",
        "summary",
        "h2",
        "h3",
        "ul",
        "li",
        "p",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "em",
        "strong",
    }
    assert {tag.lower() for tag in re.findall(r"</?([A-Za-z][\w-]*)", shown)} <= allowed


def test_a_name_neither_mentions_anyone_nor_links_nor_leaves_its_cell(render, hostile):
    text = render("markdown", hostile)
    prose = re.sub(r"(`+).*?\1", "", re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert not re.search(r"@\w|(?<!&)#\d|://", prose)
    for rows in tables(text):
        assert {len(row) for row in rows} == {len(rows[0])}
    assert "\x1b" not in text
    assert "\u202e" not in text


@example("1)")  # a list of one empty item, where it stands alone
@given(st.text("`|<>@#\\*_[]()\n -+1.=~$a&;", max_size=60))
def test_any_words_read_back_as_themselves(words):
    def read(source: str) -> str:
        shown = re.sub(r"<[^>]*>", "", html_of(source)).replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
        return " ".join(shown.replace("&amp;", "&").replace("\u200b", "").split())

    plain = " ".join(words.split())
    assert read(f"x {written.code(words)}") == f"x {plain}".strip()
    assert read(f"{written.prose(words)}") == plain
    assert read(f"- {written.prose(words)}") == plain


@given(st.text("`|a \\<", max_size=30))
def test_any_name_stays_in_its_cell(words):
    text = written.document("f", [written.table("t", ("a", "b"), [(written.code(words, cell=True), "end")])], 10_000, "")
    (rows,) = tables(text)
    assert [len(row) for row in rows] == [2, 2]
    assert rows[1][1] == "end"


def test_a_pass_and_an_unfinished_run_do_not_look_alike(render, passing, incomplete):
    assert render("markdown", incomplete).startswith("## ⚠️ INCONCLUSIVE")
    assert "✅" not in render("markdown", replace(passing, exit_code=ExitCode.NOTHING)).splitlines()[0]
